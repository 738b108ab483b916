// What the model said: the answer token by token, and beside it what could have come instead.
//
// A token's underline is as long as it was likely. Choosing a token shows the distribution it was taken from; the first is
// the one at the end of the prompt. All tokens are text, special ones by their names.

import {el} from "headwise/element";
import {shown} from "headwise/head_patterns";
import {told} from "headwise/numbers";

const LONG = 600; // tokens of a prompt that are written out

/** The answer of a look, and the distribution of the token that is chosen. */
export function answerSection(look) {
  const side = el("div", {class: "live-spread"});
  const steps = look.steps.map((step, place) => ({words: `before “${shown(step.text)}”, token ${place + 1} of the answer`, spread: step.distribution}));
  if (!steps.length) steps.push({words: "at the end of the prompt", spread: look.next});
  const choose = (place) => side.replaceChildren(...spreadList(steps[place].spread, steps[place].words));
  choose(0);
  return el("section", {class: "live-answer", "aria-label": "Answer"},
    el("div", {class: "live-said"}, el("h2", {}, look.steps.length ? "Answer" : "No answer was asked for"),
      said(look.steps, look.finished, choose), facts(look), promptTokens(look)),
    side);
}

/** Tokens that were said; `choose(place)` hears of the one that is picked. */
export function said(steps, finished, choose = null) {
  const tokens = steps.map((step, place) => {
    const likely = Math.exp(step.logprob);
    const mark = el(choose ? "button" : "span", {class: "token", type: choose ? "button" : null,
      title: `${shown(step.text)}: probability ${told(likely)}`, "aria-pressed": choose ? String(place === 0) : null}, shownInLine(step.text));
    mark.style.setProperty("--likely", likely);
    return mark;
  });
  const line = el("p", {class: "tokens"}, tokens, steps.length && !finished ? el("span", {class: "small"}, " … stopped at the limit") : null);
  if (choose) line.addEventListener("click", (event) => {
    const place = tokens.indexOf(event.target);
    if (place < 0) return;
    for (const token of tokens) token.setAttribute("aria-pressed", String(token === event.target));
    choose(place);
  });
  return line;
}

/** A distribution as bars; `before` is another one to stand beside it. */
export function spreadList(spread, words, before = null) {
  const was = before && new Map(before.top.map((one) => [one.id, one.p]));
  const rows = spread.top.map((one) => {
    const bar = el("span", {class: "bar"});
    bar.style.setProperty("--p", one.p);
    return el("tr", {}, el("th", {scope: "row"}, el("code", {}, shown(one.text))), el("td", {}, bar), el("td", {}, percent(one.p)),
      was ? el("td", {class: "small"}, was.has(one.id) ? `was ${percent(was.get(one.id))}` : "was not among them") : null);
  });
  return [
    el("h3", {}, "Next token"), el("p", {class: "small"}, words),
    el("table", {class: "spread"}, el("tbody", {}, rows)),
    el("p", {class: "small"}, `${percent(spread.rest)} for all others; entropy ${told(spread.entropy)} nats.`),
  ];
}

/** A share as a percentage. */
export function percent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`;
}

/** A token inside running text: blanks stay blanks, line ends are shown. */
function shownInLine(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

function facts(look) {
  const answer = look.steps.length;
  const said = answer ? `${answer} tokens, log-probability ${told(look.logprob)} nats (${told(look.logprob / answer)} a token). ` : "";
  return el("p", {class: "small"}, `${said}${look.tokens.length.toLocaleString("en")} tokens were read, in ${told(look.seconds)} seconds.`);
}

function promptTokens(look) {
  const prompt = look.tokens.slice(0, look.prompt_tokens);
  const first = prompt.slice(0, LONG).map((token) => el("span", {class: token.special ? "token special" : "token"}, shownInLine(token.text)));
  const more = prompt.length > LONG ? el("span", {class: "small"}, ` … and ${(prompt.length - LONG).toLocaleString("en")} more`) : null;
  return el("details", {class: "live-prompt"}, el("summary", {}, `The ${prompt.length.toLocaleString("en")} tokens of the prompt`), el("p", {class: "tokens plain-tokens"}, first, more));
}
