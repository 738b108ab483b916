// The generated answer token by token with next-token distributions, and the detector's score of it.
//
// A token's underline is as long as it was likely. Selecting a token shows the distribution it was taken from; the first is the one at
// the end of the prompt. All tokens are text, special ones by their names.

import {el} from "headwise/dom";
import {drawFigure} from "headwise/figure";
import {visibleToken} from "headwise/head_attention";
import {formatNumber} from "headwise/numbers";

const MAX_SHOWN_TOKENS = 600; // of a prompt

/**
 * The answer of a run, and the distribution of the selected token.
 * @param {RunResult} run
 */
export function answerSection(run) {
  const distribution = el("div", {class: "live-distribution"});
  const steps = run.steps.map((step, index) => ({
    words: `before “${visibleToken(step.text)}”, token ${index + 1} of the answer`,
    spread: step.distribution,
  }));
  if (!steps.length) steps.push({words: "at the end of the prompt", spread: run.next});
  const choose = (index) => distribution.replaceChildren(...distributionList(steps[index].spread, steps[index].words));
  choose(0);
  return el(
    "section",
    {class: "live-answer", "aria-label": "Answer"},
    el(
      "div",
      {class: "live-generated"},
      el("h2", {}, run.steps.length ? "Answer" : "No answer requested"),
      tokenLine(run.steps, run.finished, choose),
      answerFacts(run),
      promptTokens(run),
    ),
    distribution,
  );
}

/**
 * Generated tokens; `choose(index)` is called with the selected one.
 * @param {GeneratedToken[]} steps
 * @param {boolean} finished
 * @param {((index: number) => void) | null} [choose]
 */
export function tokenLine(steps, finished, choose = null) {
  const tokens = steps.map((step, index) => {
    const likely = Math.exp(step.logprob);
    const mark = el(
      choose ? "button" : "span",
      {
        class: "token",
        type: choose ? "button" : null,
        title: `${visibleToken(step.text)}: probability ${formatNumber(likely)}`,
        "aria-pressed": choose ? String(index === 0) : null,
      },
      inlineToken(step.text),
    );
    mark.style.setProperty("--likely", String(likely));
    return mark;
  });
  const line = el(
    "p",
    {class: "tokens"},
    tokens,
    steps.length && !finished ? el("span", {class: "small"}, " … stopped at the limit") : null,
  );
  if (choose)
    line.addEventListener("click", (event) => {
      const index = tokens.findIndex((token) => token === event.target);
      if (index < 0) return;
      for (const token of tokens) token.setAttribute("aria-pressed", String(token === event.target));
      choose(index);
    });
  return line;
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

/**
 * A share as a percentage.
 * @param {number} p
 */
export function percent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`;
}

/**
 * A token inside running text: spaces stay spaces, line breaks are shown.
 * @param {string} text
 */
function inlineToken(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
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
  const showText = (words) => body.replaceChildren(el("p", {class: "small"}, words));
  return {
    element,
    busy: (status) => showText(status.event === "waiting" ? "Waiting to score …" : `${status.stage ?? "scoring"} …`),
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
          "Each cell is a head’s contribution to the log-odds of “wrong”, relative to the average training answer. It explains the detector; it does not show that the head causes an error.",
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
