// What if heads were switched off? Heads and their factors, a run, both answers side by side, and random heads as a control.

import {el} from "headwise/dom";
import {changedScoreNote, distributionList} from "headwise/live_answer";
import {showBusy, showIdle} from "headwise/live_prompt_form";
import {percent, wholeAnswer} from "headwise/live_stream";
import {TokenLine} from "headwise/live_tokens";
import {formatNumber} from "headwise/numbers";

/**
 * {element, add(head), changes(), fill(changes), ...}. `run(changes, draws)` starts a comparison; `onChange()` is called on every edit.
 * @param {LiveInfo} facts
 * @param {{draws: number, score: string | null, run: (changes: Factors, draws: number) => void, rerun: (changes: Factors) => void, cancel: () => void, onChange: (changes: Factors) => void, onhead: (head: string) => void}} options
 */
export function ablationPanel(facts, {draws: initialDraws, score: initialScore, run, rerun, cancel, onChange, onhead}) {
  const factors = new Map();
  const list = el("ul", {class: "live-switches"});
  const name = el("input", {type: "text", size: "8", placeholder: "L3H7", "aria-label": "Name of a head", spellcheck: "false"});
  const error = el("span", {class: "small", role: "alert"});
  const draws = el("input", {type: "number", min: "0", max: "20", value: String(initialDraws), "aria-label": "Random draws"});
  const runButton = el(
    "button",
    {type: "button", class: "strong", disabled: true, on: {click: () => run(changes(), Number(draws.value))}},
    "Run with these heads scaled",
  );
  const rerunButton = el(
    "button",
    {
      type: "button",
      disabled: true,
      title: "Run the prompt again with these heads scaled, and show every head",
      on: {click: () => rerun(changes())},
    },
    "Show all maps with these changes",
  );
  const cancelButton = el("button", {type: "button", hidden: true, on: {click: cancel}}, "Cancel");
  const state = el("span", {class: "live-state", role: "status"});
  const time = el("span", {class: "live-time", role: "timer"});
  const bar = el("progress", {max: "1", value: "0", hidden: true, "aria-label": "Progress"});
  const result = el("div", {class: "live-both"});
  const addForm = el("form", {class: "live-adding"}, name, el("button", {}, "Add head"), error);
  const element = el(
    "section",
    {class: "live-switch", "aria-label": "Switch heads"},
    el("h2", {}, "What if heads were switched off?"),
    el(
      "p",
      {class: "small"},
      "A factor of 0 switches the head off, 1 leaves it unchanged, 2 doubles its output. As a control, as many other heads are drawn at random and scaled by the same factors.",
    ),
    addForm,
    list,
    el(
      "div",
      {class: "live-tools"},
      runButton,
      rerunButton,
      el("label", {class: "live-length"}, draws, " random draws"),
      cancelButton,
      bar,
      state,
      time,
    ),
    result,
  );
  const parts = {go: runButton, stop: cancelButton, state, time, bar};
  let score = initialScore;
  /** @type {{before: SideView, after: SideView} | null} */
  let sides = null;

  function changes() {
    return Object.fromEntries([...factors].filter(([, factor]) => factor !== 1));
  }
  function show() {
    list.replaceChildren(...[...factors].map(([head, factor]) => row(head, factor)));
    runButton.disabled = rerunButton.disabled = !factors.size;
    onChange(changes());
  }
  /** @param {Factors} scaled */
  function openSides(scaled) {
    if (sides) return sides;
    const after = `With ${headsText(scaled)}`;
    sides = {before: new SideView("Unchanged", score, onhead), after: new SideView(after, score, onhead, score !== null)};
    result.replaceChildren(el("div", {class: "live-sides"}, sides.before.element, sides.after.element));
    return sides;
  }
  function clear() {
    sides = null;
    result.replaceChildren();
  }
  /** @param {string} head @param {number} factor */
  function row(head, factor) {
    const value = el("output", {class: "count"}, factorText(factor));
    const slider = el("input", {type: "range", min: "0", max: "2", step: "0.05", value: String(factor), "aria-label": `Factor of ${head}`});
    slider.addEventListener("input", () => {
      factors.set(head, Number(slider.value));
      value.textContent = factorText(Number(slider.value));
    });
    slider.addEventListener("change", () => onChange(changes()));
    return el(
      "li",
      {},
      el("button", {type: "button", class: "plain", on: {click: () => onhead(head)}}, head),
      slider,
      value,
      el("button", {type: "button", class: "plain", "aria-label": `Remove ${head}`, on: {click: () => remove(head)}}, "remove"),
    );
  }
  /** @param {string} head @param {number} [factor] */
  function add(head, factor = 0) {
    factors.set(head, factor);
    show();
  }
  /** @param {string} head */
  function remove(head) {
    factors.delete(head);
    show();
  }
  addForm.addEventListener("submit", (event) => {
    event.preventDefault();
    const match = /^L(\d+)H(\d+)$/i.exec(name.value.trim());
    const there = match && Number(match[1]) < facts.layers && Number(match[2]) < facts.heads;
    error.textContent = there ? "" : `Write a head as L0H0 to L${facts.layers - 1}H${facts.heads - 1}.`;
    if (!there) return;
    add(`L${Number(match[1])}H${Number(match[2])}`);
    name.value = "";
  });
  return {
    element,
    add,
    changes,
    has: (head) => factors.has(head),
    remove,
    fill(given) {
      for (const [head, factor] of Object.entries(given)) factors.set(head, factor);
      show();
    },
    busy: (state, now) => showBusy(state, now, parts),
    /** The answers so far; `original` is the unchanged one where it is known. */
    stream(state, scaled, original) {
      const {unchanged = original, changed} = state.parts;
      if (!changed && !state.parts.unchanged) return;
      const {before, after} = openSides(scaled);
      if (unchanged) before.line.update(unchanged);
      if (changed) after.line.update(changed);
    },
    showScore(name) {
      score = name;
      sides?.before.line.show(name);
      sides?.after.line.show(name);
    },
    idle: (words = "") => {
      showIdle(words, false, parts);
      runButton.disabled = !factors.size;
    },
    failed: (words) => showIdle(words, true, parts),
    show(found) {
      const {before, after} = openSides(found.changes);
      before.finish(found.before, null);
      after.finish(found.after, found.before.next);
      result.append(effectView(found));
    },
    clear,
  };
}

/** @param {number} factor */
function factorText(factor) {
  return factor === 0 ? "off" : `× ${formatNumber(factor)}`;
}

/** @param {Factors} changes */
export function headsText(changes) {
  return Object.entries(changes)
    .map(([head, factor]) => `${head} ${factorText(factor)}`)
    .join(", ");
}

/** @param {WhatIfResult} whatIfResult */
function effectView({effect, controls, controls_at_least: exceeding, stored, logprob, logprob_after: later, seconds}) {
  return el(
    "div",
    {class: "live-effect"},
    el("h3", {}, "Size of the effect"),
    effectFacts(effect, logprob, later),
    controlPlot(effect, controls, exceeding),
    stored.length ? storedTable(stored) : null,
    el("p", {class: "small"}, `Computed in ${formatNumber(seconds)} seconds.`),
  );
}

/** The answer of one model state, which may still be generated, and its next token at the end of the prompt. */
class SideView {
  /**
   * @param {string} title
   * @param {string | null} score
   * @param {(head: string) => void} onhead
   * @param {boolean} [changed]
   */
  constructor(title, score, onhead, changed = false) {
    this.line = new TokenLine({label: `Answer: ${title}`, score, onhead});
    this.element = el("div", {class: "live-side"}, el("h3", {}, title), changed ? changedScoreNote() : null, this.line.element);
  }

  /** @param {Continuation} state @param {NextTokens | null} before */
  finish(state, before) {
    if (state.steps.length) this.line.update(wholeAnswer(state));
    else this.line.element.replaceChildren(el("p", {class: "small"}, "No answer was requested, or it is empty."));
    this.element.append(el("div", {class: "live-distribution"}, distributionList(state.next, "at the end of the prompt", before)));
  }
}

/** @param {Effect} effect @param {number | null} logprob @param {number | null} later */
function effectFacts(effect, logprob, later) {
  const rows = [["KL of the next token, at the prompt’s end", `${formatNumber(effect.kl)} nats`]];
  if (effect.answer_kl !== null) rows.push(["KL over the original answer, per token", `${formatNumber(effect.answer_kl)} nats`]);
  if (logprob !== null)
    rows.push([
      "Log-probability of the original answer",
      `${formatNumber(logprob)} → ${formatNumber(later)} nats (${effect.logprob_change > 0 ? "+" : ""}${formatNumber(effect.logprob_change)})`,
    ]);
  rows.push(["Most likely next token", effect.top_changed ? "changed" : "unchanged"]);
  return el(
    "dl",
    {class: "facts"},
    rows.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))),
  );
}

/**
 * What the atlas's study `causal` measured about the same heads over many texts.
 * @param {StoredEffect[]} stored
 */
function storedTable(stored) {
  const header = ["Head", "Loss without it, all tokens", "Rank in its layer", "Beyond matched heads", "Gold answers"];
  const rows = stored.map((one) => [
    one.exact ? one.head : `${one.head} (estimated)`,
    withEnds(one.effect, one.effect_low, one.effect_high),
    one.rank === null ? "" : `${one.rank} of ${one.heads}`,
    withEnds(one.excess, one.excess_low, one.excess_high),
    withEnds(one.answer, one.answer_low, one.answer_high),
  ]);
  return el(
    "div",
    {class: "live-stored"},
    el("h3", {}, "Over the texts of the atlas"),
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          header.map((text) => el("th", {scope: "col"}, text)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((text) => el("td", {}, text)),
          ),
        ),
      ),
    ),
    el(
      "p",
      {class: "small"},
      "Study causal: rise of the loss with each head’s output replaced by its mean, one head at a time, in nats per token, with 95 % intervals. Estimated: by attribution, corrected by what ablation gave for other heads. Gold answers: fall of the log-probability of expected answers.",
    ),
  );
}

/** @param {number | null} value @param {number | null} low @param {number | null} high */
function withEnds(value, low, high) {
  if (value === null) return "not measured";
  return low === null || high === null ? formatNumber(value) : `${formatNumber(value)} (${formatNumber(low)} to ${formatNumber(high)})`;
}

/**
 * The effect and those of random heads as dots on a logarithmic axis.
 * @param {Effect} effect
 * @param {ControlEffect[]} controls
 * @param {number} exceeding
 */
function controlPlot(effect, controls, exceeding) {
  if (!controls.length) return el("p", {class: "small"}, "No random heads were drawn.");
  const values = [effect.kl, ...controls.map((one) => one.kl)];
  const floor = Math.max(1e-6, Math.min(...values));
  const index = (value) => Math.log10(Math.max(value, floor));
  const [low, high] = [index(Math.min(...values)), index(Math.max(...values))];
  const dot = (value, name, title) => {
    const mark = el("i", {class: name, title});
    mark.style.left = `${high > low ? (100 * (index(value) - low)) / (high - low) : 50}%`;
    return mark;
  };
  const strip = el(
    "div",
    {
      class: "dots",
      role: "img",
      "aria-label": `KL ${formatNumber(effect.kl)}; random heads ${controls.map((one) => formatNumber(one.kl)).join(", ")}`,
    },
    controls.map((one) => dot(one.kl, "random", `${Object.keys(one.heads).join(", ")}: ${formatNumber(one.kl)} nats`)),
    dot(effect.kl, "own", `these heads: ${formatNumber(effect.kl)} nats`),
  );
  const counted = `${exceeding} of ${controls.length} random draw${controls.length > 1 ? "s" : ""} of as many other heads ${exceeding === 1 ? "has" : "have"} at least this KL of the next token, at the prompt’s end`;
  return el(
    "div",
    {class: "live-control"},
    strip,
    el("p", {}, `${counted} (${controls.map((one) => formatNumber(one.kl)).join(", ")}).`),
    exceeding
      ? el("p", {class: "small"}, "Random heads have effects of this size.")
      : el(
          "p",
          {class: "small"},
          `Larger than all ${controls.length}; with so few draws this is only a hint (p ≥ ${percent(1 / (controls.length + 1))}).`,
        ),
  );
}
