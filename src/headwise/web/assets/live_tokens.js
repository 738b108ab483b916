// The tokens of an answer, while it is generated and after: shaded by its score so far, and what is known of the selected token.
//
// A token's underline is as long as it was likely. One token is in the tab order; arrow keys, Home and End move to the others. Until the
// reader selects one, the newest is selected while the answer grows. All tokens are text, special ones by their names.

import {el} from "headwise/dom";
import {visibleToken} from "headwise/head_attention";
import {alarmAt, percent, scoreRows, shading, tokenWords} from "headwise/live_stream";
import {formatNumber} from "headwise/numbers";

/** The tokens of one answer, and the score of the selected one. */
export class TokenLine {
  /** @type {AnswerPart} */ part;
  /** @type {HTMLButtonElement[]} */ #buttons = [];
  #selected = 0;
  #chosen = false; // by the reader

  /**
   * @param {{label: string, score: string | null, onhead?: (head: string) => void, onSelect?: (index: number) => void}} options
   */
  constructor({label, score, onhead = () => {}, onSelect = () => {}}) {
    this.score = score;
    this.onhead = onhead;
    this.onSelect = onSelect;
    this.rest = el("span", {class: "small"});
    this.line = el("p", {class: "tokens", role: "group", "aria-label": label}, this.rest);
    this.legend = el("p", {class: "small live-legend"});
    this.detail = el("div", {class: "live-token"});
    this.element = el("div", {class: "live-tokens"}, this.line, this.legend, this.detail);
    this.line.addEventListener("click", (event) => {
      const index = this.#buttons.findIndex((button) => button.contains(/** @type {Node} */ (event.target)));
      if (index >= 0) this.#choose(index);
    });
    this.line.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /**
   * Show a part; tokens that are shown already stay where they are, and keep the focus.
   * @param {AnswerPart} part
   */
  update(part) {
    this.part = part;
    while (this.#buttons.length < part.steps.length) {
      const button = el("button", {type: "button", class: "token", tabindex: "-1"});
      this.rest.before(button);
      this.#buttons.push(button);
    }
    this.#draw();
    if (!this.#chosen && part.steps.length) this.#select(part.done ? Math.max(0, this.#alarmToken()) : part.steps.length - 1);
  }

  /** @param {string | null} score */
  show(score) {
    this.score = score;
    if (this.part) this.#draw();
    if (this.#buttons.length) this.#select(this.#selected);
  }

  /**
   * Say that the answer was stopped.
   * @param {string} time how long it took until then
   */
  stopped(time) {
    const count = this.part.steps.length;
    this.rest.textContent = ` … stopped after ${count} token${count === 1 ? "" : "s"}, ${time}`;
  }

  #draw() {
    const {part, score} = this;
    const alarm = alarmAt(part, score);
    for (const [index, step] of part.steps.entries()) {
      const {kind, share} = shading(step, score);
      const button = this.#buttons[index];
      const words = tokenWords(visibleToken(step.text), step, score, index === alarm);
      button.dataset.kind = kind;
      button.title = words;
      button.setAttribute("aria-label", words);
      button.style.setProperty("--share", share.toFixed(3));
      button.style.setProperty("--likely", Math.exp(step.logprob).toFixed(4));
      button.replaceChildren(...(index === alarm ? [alarmMark()] : []), inlineToken(step.text));
    }
    const ended = part.done && !part.finished ? " … stopped at the limit" : "";
    this.rest.replaceChildren(...(alarm === part.steps.length && alarm > 0 ? [" ", alarmMark(), " alarm at the end"] : []), ended);
    this.legend.replaceChildren(...this.#legendParts(alarm));
  }

  /** @param {number} alarm */
  #legendParts(alarm) {
    const {part, score} = this;
    if (!part.steps.length) return [];
    const kind = shading(part.steps[0], score).kind;
    const mark = alarm >= 0 ? [" ", alarmMark(), " alarm"] : [];
    const scale = el("span", {class: "live-scale", "data-kind": kind, "aria-hidden": "true"});
    if (kind === "probability") return ["0 % ", scale, " 100 % wrong, if it ended here", ...mark];
    return ["likely ", scale, " improbable token", ...mark];
  }

  #alarmToken() {
    return Math.min(alarmAt(this.part, this.score), this.part.steps.length - 1);
  }

  /** @param {number} index */
  #choose(index) {
    this.#chosen = true;
    this.#select(index);
  }

  /** @param {number} index */
  #select(index) {
    this.#selected = index;
    for (const [place, button] of this.#buttons.entries()) {
      button.setAttribute("aria-pressed", String(place === index));
      button.tabIndex = place === index ? 0 : -1;
    }
    this.detail.replaceChildren(...this.#details(index));
    this.onSelect(index);
  }

  /** @param {number} index */
  #details(index) {
    const step = this.part.steps[index];
    const found = this.score === null ? undefined : step.scores[this.score];
    const alarm = alarmAt(this.part, this.score);
    const raised = index === alarm ? "; the alarm is raised here" : found?.alarm && index > alarm ? "; the alarm was raised before" : "";
    const rows = [
      ...scoreRows(found),
      ["Log-probability of the token", `${formatNumber(step.logprob)} nats (${percent(Math.exp(step.logprob))})`],
    ];
    return [
      el("p", {class: "small"}, `Token ${index + 1}, “${visibleToken(step.text)}”${raised}`),
      el(
        "dl",
        {class: "facts"},
        rows.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))),
        found && Object.keys(found.heads).length
          ? el("div", {}, el("dt", {}, "Heads, log-odds added"), el("dd", {class: "live-heads"}, this.#heads(found)))
          : null,
      ),
    ];
  }

  /** @param {ScoreSoFar} found */
  #heads({heads}) {
    return Object.entries(heads).map(([head, added]) =>
      el(
        "span",
        {},
        el("button", {type: "button", class: "plain", on: {click: () => this.onhead(head)}}, head),
        ` ${(added ?? 0) > 0 ? "+" : ""}${formatNumber(added)}`,
      ),
    );
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const last = this.#buttons.length - 1;
    const target = {ArrowRight: this.#selected + 1, ArrowLeft: this.#selected - 1, Home: 0, End: last}[event.key];
    if (target === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#choose(Math.max(0, Math.min(target, last)));
    this.#buttons[this.#selected].focus();
  }
}

function alarmMark() {
  return el("span", {class: "alarm", "aria-hidden": "true"}, "▲");
}

/**
 * A token inside running text: spaces stay spaces, line breaks are shown.
 * @param {string} text
 */
export function inlineToken(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

/**
 * The choice of the score by which tokens are shaded: {element, score, describe(mode, changed)}.
 * @param {LiveInfo} facts
 * @param {string | undefined} initial
 * @param {(score: string) => void} onChange
 */
export function scoreChooser(facts, initial, onChange) {
  const first = facts.scores[0]?.name ?? null;
  const known = facts.scores.some((one) => one.name === initial);
  const note = el("p", {class: "small", id: "score-note"});
  if (first === null) {
    note.textContent = `Tokens are shaded by their own log-probability: ${facts.scores_unavailable}.`;
    return {element: el("div", {class: "live-scores"}, note), score: null};
  }
  const select = el(
    "select",
    {id: "score", "aria-describedby": "score-note"},
    facts.scores.map(({name}, index) =>
      el("option", {value: name, selected: known ? name === initial : !index}, index ? name : `${name} (default)`),
    ),
  );
  const guarantee = el("p", {class: "small"});
  const element = el(
    "div",
    {class: "live-scores"},
    el("label", {for: "score"}, "Score while the answer is generated ", select),
    note,
    el(
      "details",
      {},
      el("summary", {class: "small"}, "What the probability and the alarm mean"),
      guarantee,
      el(
        "p",
        {class: "small"},
        "The probability after a token is that of the text so far as a whole answer; alarms are looked for after 1, 2, 4, 8, … tokens and at the end. Both hold for questions in the prompt format of the atlas: a chat or a text has the score alone, and is shaded by the log-probability of its tokens.",
      ),
    ),
  );
  const chooser = {element, score: select.value};
  const describe = () => {
    const found = facts.scores.find((one) => one.name === select.value);
    note.textContent = `${found?.note}.`;
    guarantee.textContent = found?.alarm ?? "";
  };
  select.addEventListener("change", () => {
    chooser.score = select.value;
    describe();
    onChange(select.value);
  });
  describe();
  return chooser;
}
