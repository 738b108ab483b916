// The live page: type a prompt, see every head, open one large, switch heads off and see what changes.
//
// The model is loaded while the page is open already; until then it says so. One thing is computed at a time, and can be
// cancelled. The address keeps the prompt (a short one), the head that is open and the heads that are changed, so that a
// link leads back; it runs nothing by itself: the prompt stands in the box, and Enter on the focused button runs it. A prompt
// that was refused or cancelled leaves the earlier result, marked as such.

import {el} from "headwise/element";
import {answerSection} from "headwise/live_answer";
import {promptForm} from "headwise/live_form";
import {headGrid} from "headwise/live_grid";
import {LargeMap} from "headwise/live_map";
import {scoreSection} from "headwise/live_score";
import {asked, now} from "headwise/live_stream";
import {switchPanel} from "headwise/live_switch";
import {told} from "headwise/numbers";
import {link, note} from "headwise/router";

const AGAIN = 1000; // milliseconds between two looks at a model that is being loaded
const LONG = 1500; // tokens from which on fewer random heads are drawn at first: each takes a pass
const SHORT = 600; // characters of a prompt that an address keeps

/** The page. */
export async function page(main, {query}, {atlas}) {
  const live = new Live(main, query, atlas);
  await live.open();
  return {leave: () => live.leave(), shown: () => live.focus()};
}

class Live {
  constructor(main, query, atlas) {
    Object.assign(this, {main, query, atlas, state: Object.fromEntries(query)});
    this.stage = el("div", {class: "live-stage page"});
    this.title = el("p", {class: "lede"});
    main.append(el("header", {class: "study-header"}, el("p", {class: "label"}, "Live"), el("h1", {}, "Type a prompt, look at its heads"), this.title), this.stage);
  }

  async open() {
    const facts = await now("live");
    if (facts.state === "ready") this.#ready(facts);
    else this.#wait(facts);
  }

  focus() {
    this.form?.focus(Boolean(this.query.get("text")) && !this.look);
  }

  leave() {
    clearTimeout(this.timer);
    this.job?.cancel();
    this.scoring?.cancel();
    this.#clear();
  }

  #wait({state, message}) {
    const words = {loading: "The model is being loaded. The other pages can be read meanwhile.", off: "No model is loaded here.", failed: "The model could not be loaded."}[state];
    this.stage.replaceChildren(el("p", {class: "live-waiting", role: "status", "data-state": state}, words),
      state === "loading" ? el("progress", {"aria-label": "Loading the model"}) : el("p", {class: "small"}, state === "off" ? `${message[0].toUpperCase()}${message.slice(1)}.` : message));
    if (state === "loading") this.timer = setTimeout(() => this.open().catch((error) => this.#wait({state: "failed", message: error.message})), AGAIN);
  }

  #ready(facts) {
    this.facts = facts;
    this.title.textContent = `${facts.model}, ${facts.layers} layers of ${facts.heads} heads, on ${facts.device}.`;
    this.form = promptForm(facts, {run: () => this.run(), cancel: () => this.job?.cancel()});
    this.form.fill({text: this.state.text, mode: this.state.mode});
    if (this.state.text) this.form.idle("from a link; press Run (or Enter)");
    this.results = el("div", {class: "live-results"});
    this.stage.replaceChildren(this.form.element, this.results);
    this.focus();
  }

  /** Read a prompt and show all heads. */
  async run(changes = {}) {
    const {text, mode, length} = this.form.values();
    this.job?.cancel();
    this.scoring?.cancel();
    this.job = asked("live/run", {text, mode, answer: length > 0, max_new_tokens: Math.max(1, length), changes}, (said) => this.form.busy(said));
    this.form.busy({event: "waiting", ahead: 0});
    try {
      const look = await this.job.result;
      this.form.idle(`done in ${told(look.seconds)} seconds`);
      this.#keep({text: text.length <= SHORT ? text : "", mode});
      this.#show(look);
    } catch (error) {
      this.#told(error, this.form);
      this.#stale();
    }
  }

  /** What is shown is that of an earlier prompt. */
  #stale() {
    if (!this.look || this.results.hasAttribute("data-stale")) return;
    this.results.toggleAttribute("data-stale", true);
    const [start, rest] = [this.look.text.slice(0, 80), this.look.text.length > 80 ? "…" : ""];
    this.results.prepend(el("p", {class: "warning", role: "status"}, `What follows is still the earlier prompt: “${start}${rest}”`));
  }

  #show(look) {
    this.#clear();
    this.look = look;
    this.head = el("section", {class: "live-head", "aria-label": "One head", hidden: true});
    this.grid = headGrid(look.figures, {onhead: (head) => this.openHead(head, true), wanted: this.state.show, turned: (key) => this.#keep({show: key === "maps" ? "" : key})});
    const draws = look.tokens.length > LONG ? 2 : this.facts.draws;
    this.panel = switchPanel(this.facts, {draws, run: (changes, draws) => this.#compare(changes, draws), look: (changes) => this.#again(changes), cancel: () => this.job?.cancel(),
      changed: (changes) => this.#changed(changes), onhead: (head) => this.openHead(head, true)});
    const plain = !Object.keys(look.changes).length;
    this.score = plain && look.mode === "question" && look.answer && scoreSection((head) => this.openHead(head, true));
    this.results.removeAttribute("data-stale");
    this.results.replaceChildren(...(plain ? [] : [changedNote(look.changes)]), answerSection(look), ...(this.score ? [this.score.element] : []), this.grid.element, this.head, this.panel.element);
    this.grid.show();
    this.panel.fill(fromText(this.state.heads ?? "", this.facts));
    if (this.state.head) this.openHead(this.state.head, false);
    this.results.dataset.look = look.id;
    if (this.score) this.#score(look);
  }

  /** The same prompt with heads changed, and every head then. */
  #again(changes) {
    this.form.fill({text: this.look.text, mode: this.look.mode});
    this.form.element.scrollIntoView({block: "start"});
    this.run(changes);
  }

  #clear() {
    this.grid?.leave();
    this.map?.leave();
    this.score?.leave?.();
    this.scoring?.cancel();
  }

  /** Open one head large. */
  openHead(name, scrolls) {
    const match = /^L(\d+)H(\d+)$/.exec(name);
    if (!match || Number(match[1]) >= this.facts.layers || Number(match[2]) >= this.facts.heads) return;
    this.map?.leave();
    this.map = new LargeMap(this.look, name, this.look.figures[0].payload.scales.weight);
    const off = el("button", {type: "button", on: {click: () => this.#toggle(name)}});
    this.off = {name, button: off};
    this.head.replaceChildren(el("h2", {}, name), el("div", {class: "live-head-title"}, el("span", {class: "count"}, this.#numbers(...match.slice(1).map(Number))),
      off, el("a", {href: link(`head/${name}`)}, "Its page in the atlas")), this.map.element);
    this.head.hidden = false;
    this.head.dataset.head = name;
    this.map.shown();
    this.grid.point(name);
    this.#changed(this.panel.changes());
    this.#keep({head: name});
    if (scrolls) this.head.scrollIntoView({block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth"});
  }

  #toggle(name) {
    if (this.panel.has(name)) this.panel.remove(name);
    else this.panel.add(name, 0);
  }

  #numbers(layer, head) {
    const one = (key, label) => `${label} ${told(this.look.numbers[key]?.[layer]?.[head] ?? null)}`;
    return [one("sink", "first token"), one("entropy", "entropy"), one("previous", "token before"), one("induction", "induction"), one("distance", "distance")].join(" · ");
  }

  #changed(changes) {
    if (this.off) this.off.button.textContent = this.panel.has(this.off.name) ? `Leave ${this.off.name} as it is` : `Switch ${this.off.name} off`;
    this.#keep({heads: Object.entries(changes).map(([head, factor]) => `${head}:${factor}`).join(",")});
  }

  async #compare(changes, draws) {
    this.panel.clear();
    this.job?.cancel();
    this.job = asked("live/what_if", {run: this.look.id, changes, draws}, (said) => this.panel.busy(said));
    this.panel.busy({event: "waiting", ahead: 0});
    try {
      this.panel.show(await this.job.result);
      this.panel.idle();
    } catch (error) {
      this.#told(error, this.panel);
    }
  }

  async #score(look) {
    if (this.facts.scoring_unavailable) {
      this.score.failed(this.facts.scoring_unavailable);
      return;
    }
    const {score} = this;
    this.scoring = asked("live/score", {question: look.text, answer: look.answer}, (said) => score.busy(said));
    try {
      score.show(await this.scoring.result);
    } catch (error) {
      if (error.name !== "AbortError") score.failed(error.message);
    }
  }

  #told(error, panel) {
    if (error.name === "AbortError") panel.idle("cancelled");
    else panel.failed(error.message);
  }

  #keep(values) {
    Object.assign(this.state, values);
    note("live", this.state);
  }
}

function changedNote(changes) {
  const heads = Object.entries(changes).map(([head, factor]) => (factor === 0 ? `${head} off` : `${head} × ${told(factor)}`)).join(", ");
  return el("p", {class: "warning", role: "status"}, `What follows is the model with ${heads}. Run the prompt again for the model as it is.`);
}

/** "L3H7:0,L4H0:0.5" as {L3H7: 0, L4H0: 0.5}. */
function fromText(text, {layers, heads}) {
  const found = [...text.matchAll(/L(\d+)H(\d+):(\d+(?:\.\d+)?)/g)].filter(([, layer, head]) => layer < layers && head < heads);
  return Object.fromEntries(found.map(([, layer, head, factor]) => [`L${Number(layer)}H${Number(head)}`, Number(factor)]));
}
