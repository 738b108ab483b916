// The answer to a prompt, while it is generated and after, with next-token distributions, and the atlas's score of the whole.
//
// Selecting a token shows the distribution it was taken from; the first is the one at the end of the prompt.

import {el} from "headwise/dom";
import {drawFigure} from "headwise/figure";
import {visibleToken} from "headwise/head_attention";
import {percent, timeWords} from "headwise/live_stream";
import {inlineToken, TokenLine} from "headwise/live_tokens";
import {formatNumber} from "headwise/numbers";

const MAX_SHOWN_TOKENS = 600; // of a prompt

/** The answer of a run, which may still be generated, and the distribution of the selected token. */
export class AnswerView {
  /** @param {{score: string | null, requested: boolean, changes: Factors, onhead: (head: string) => void}} options */
  constructor({score, requested, changes, onhead}) {
    this.requested = requested;
    this.distribution = el("div", {class: "live-distribution"});
    this.title = el("h2", {}, "Answer");
    this.note = Object.keys(changes).length && score !== null ? changedScoreNote() : "";
    this.line = new TokenLine({label: "Tokens of the answer", score, onhead, onSelect: (index) => this.#showDistribution(index)});
    this.generated = el("div", {class: "live-generated"}, this.title, this.note, this.line.element);
    this.element = el("section", {class: "live-answer", "aria-label": "Answer"}, this.generated, this.distribution);
  }

  /**
   * Show the tokens so far.
   * @param {AnswerPart} part
   */
  update(part) {
    this.line.update(part);
  }

  /**
   * Show what else is known at the end.
   * @param {RunResult} run
   */
  finish(run) {
    if (!run.steps.length) {
      this.title.textContent = this.requested ? "The answer is empty" : "No answer requested";
      this.distribution.replaceChildren(...distributionList(run.next, "at the end of the prompt"));
    }
    this.generated.append(answerFacts(run), promptTokens(run));
  }

  /** @param {number} index */
  #showDistribution(index) {
    const step = this.line.part.steps[index];
    const words = `before “${visibleToken(step.text)}”, token ${index + 1} of the answer`;
    this.distribution.replaceChildren(...distributionList(step.distribution, words));
  }
}

/** What holds of scores while heads are scaled. */
export function changedScoreNote() {
  return el("p", {class: "small"}, "Scores are those of the changed model; probabilities and alarms were calibrated on the unchanged one.");
}

/**
 * A distribution as bars; `before` is another one to compare with.
 * @param {NextTokens} distribution
 * @param {string} words
 * @param {NextTokens | null} [before]
 */
export function distributionList(distribution, words, before = null) {
  const previous = before && new Map(before.top.map((one) => [one.id, one.p]));
  const rows = distribution.top.map((one) => {
    const bar = el("span", {class: "bar"});
    bar.style.setProperty("--p", String(one.p));
    return el(
      "tr",
      {},
      el("th", {scope: "row"}, el("code", {}, visibleToken(one.text))),
      el("td", {}, bar),
      el("td", {}, percent(one.p)),
      previous
        ? el("td", {class: "small"}, previous.has(one.id) ? `was ${percent(previous.get(one.id) ?? 0)}` : "was not in the list")
        : null,
    );
  });
  return [
    el("h3", {}, "Next token"),
    el("p", {class: "small"}, words),
    el("table", {class: "distribution"}, el("tbody", {}, rows)),
    el("p", {class: "small"}, `${percent(distribution.rest)} for all others; entropy ${formatNumber(distribution.entropy)} nats.`),
  ];
}

/** @param {RunResult} run */
function answerFacts(run) {
  const answer = run.steps.length;
  const tokenLine = answer
    ? `${answer} tokens, log-probability ${formatNumber(run.logprob)} nats (${formatNumber(run.logprob / answer)} per token). `
    : "";
  return el("p", {class: "small"}, `${tokenLine}${run.tokens.length.toLocaleString("en")} tokens in ${formatNumber(run.seconds)} seconds.`);
}

/** @param {RunResult} run */
function promptTokens(run) {
  const prompt = run.tokens.slice(0, run.prompt_tokens);
  const first = prompt
    .slice(0, MAX_SHOWN_TOKENS)
    .map((token) => el("span", {class: token.special ? "token special" : "token"}, inlineToken(token.text)));
  const more =
    prompt.length > MAX_SHOWN_TOKENS
      ? el("span", {class: "small"}, ` … and ${(prompt.length - MAX_SHOWN_TOKENS).toLocaleString("en")} more`)
      : null;
  return el(
    "details",
    {class: "live-prompt"},
    el("summary", {}, `The ${prompt.length.toLocaleString("en")} tokens of the prompt`),
    el("p", {class: "tokens plain-tokens"}, first, more),
  );
}

/**
 * The score section: {element, busy(status), show(score), failed(text), leave()}. `onhead` opens a head.
 * @param {(head: string) => void} onhead
 */
export function scoreSection(onhead) {
  const body = el("div", {class: "live-score-body"});
  const element = el(
    "section",
    {class: "live-score", "aria-label": "Hallucination score", "aria-live": "polite"},
    el("h2", {}, "Hallucination score"),
    body,
  );
  /** @type {FigureHandle | null} */
  let handle = null;
  const stage = el("span");
  const time = el("span", {class: "live-time", role: "timer", "aria-live": "off"});
  const busy = el("p", {class: "small"}, stage, " ", time);
  const showText = (words) => body.replaceChildren(el("p", {class: "small"}, words));
  return {
    element,
    busy(state, now) {
      const words = `${state.event === "waiting" ? "Waiting to score" : state.stage || "Scoring"} …`;
      if (stage.textContent !== words) stage.textContent = words; // a reader hears each stage once
      time.textContent = timeWords(state, now);
      if (!busy.isConnected) body.replaceChildren(busy);
    },
    failed: showText,
    show(scored) {
      handle?.remove();
      const container = el("div", {class: "figure-container"});
      body.replaceChildren(
        probabilityLine(scored),
        contributionLine(scored) ?? "",
        container,
        el(
          "p",
          {class: "small"},
          scored.figure
            ? "Each cell is a head’s contribution to the log-odds of “wrong”, relative to the average training answer. It explains the detector; it does not show that the head causes an error."
            : "This score is no sum over heads, so there is no map of what each adds.",
        ),
      );
      handle = scored.figure ? drawFigure(container, scored.figure, {onhead, heading: false, notes: false}) : null;
    },
    leave: () => handle?.remove(),
  };
}

/** @param {AnswerScore} answerScore */
function probabilityLine({probability, out_of_range: blocks}) {
  if (probability === null) return el("p", {}, "An empty answer has no score.");
  return el(
    "div",
    {},
    el("p", {class: "verdict"}, el("strong", {}, percent(probability)), " probability that the answer is wrong, by the atlas’s detector."),
    blocks.length
      ? el(
          "p",
          {class: "warning"},
          `Outside the range of the training answers (${blocks.join(", ")}): the probability is an extrapolation.`,
        )
      : null,
  );
}

/** @param {AnswerScore} answerScore */
function contributionLine({block_contributions: contributions}) {
  const parts = Object.entries(contributions).map(([name, added]) => `${name} ${added > 0 ? "+" : ""}${formatNumber(added)}`);
  return parts.length ? el("p", {class: "small"}, `Log-odds added: ${parts.join(", ")}.`) : null;
}
