// What if heads were switched off? Heads and their factors, a run, and both answers side by side, with random heads to compare.

import {el} from "headwise/element";
import {percent, said, spreadList} from "headwise/live_answer";
import {resting, working} from "headwise/live_form";
import {told} from "headwise/numbers";

/** {element, add(head), changes(), fill(changes), ...}. `run(changes, draws)` starts it; `changed()` hears of every edit. */
export function switchPanel(facts, {draws: drawn, run, look, cancel, changed, onhead}) {
  const factors = new Map();
  const list = el("ul", {class: "live-switches"});
  const name = el("input", {type: "text", size: "8", placeholder: "L3H7", "aria-label": "Name of a head", spellcheck: "false"});
  const wrong = el("span", {class: "small", role: "alert"});
  const draws = el("input", {type: "number", min: "0", max: "20", value: String(drawn), "aria-label": "Random draws"});
  const go = el("button", {type: "button", class: "strong", disabled: true, on: {click: () => run(changes(), Number(draws.value))}}, "Run with these heads changed");
  const maps = el("button", {type: "button", disabled: true, title: "Read the prompt again with these heads changed, and see every head then",
    on: {click: () => look(changes())}}, "See every head so");
  const stop = el("button", {type: "button", hidden: true, on: {click: cancel}}, "Cancel");
  const state = el("span", {class: "live-state", role: "status"});
  const bar = el("progress", {max: "1", value: "0", hidden: true, "aria-label": "Progress"});
  const result = el("div", {class: "live-both"});
  const adding = el("form", {class: "live-adding"}, name, el("button", {}, "Add head"), wrong);
  const element = el("section", {class: "live-switch", "aria-label": "Switch heads"},
    el("h2", {}, "What if heads were switched off?"),
    el("p", {class: "small"}, "A factor of 0 switches a head off, 1 leaves it, 2 doubles what it writes. As many other heads, drawn at random, are changed alike, so that an effect has something to be compared with."),
    adding, list, el("div", {class: "live-tools"}, go, maps, el("label", {class: "live-length"}, draws, " random draws"), stop, bar, state), result);
  const parts = {go, stop, state, bar};

  function changes() {
    return Object.fromEntries([...factors].filter(([, factor]) => factor !== 1));
  }
  function show() {
    list.replaceChildren(...[...factors].map(([head, factor]) => row(head, factor)));
    go.disabled = maps.disabled = !factors.size;
    changed(changes());
  }
  function row(head, factor) {
    const value = el("output", {class: "count"}, word(factor));
    const slider = el("input", {type: "range", min: "0", max: "2", step: "0.05", value: String(factor), "aria-label": `Factor of ${head}`});
    slider.addEventListener("input", () => {
      factors.set(head, Number(slider.value));
      value.textContent = word(Number(slider.value));
    });
    slider.addEventListener("change", () => changed(changes()));
    return el("li", {}, el("button", {type: "button", class: "plain", on: {click: () => onhead(head)}}, head), slider, value,
      el("button", {type: "button", class: "plain", "aria-label": `Leave ${head} as it is`, on: {click: () => remove(head)}}, "leave as it is"));
  }
  function add(head, factor = 0) {
    factors.set(head, factor);
    show();
  }
  function remove(head) {
    factors.delete(head);
    show();
  }
  adding.addEventListener("submit", (event) => {
    event.preventDefault();
    const match = /^L(\d+)H(\d+)$/i.exec(name.value.trim());
    const there = match && Number(match[1]) < facts.layers && Number(match[2]) < facts.heads;
    wrong.textContent = there ? "" : `Write a head as L0H0 to L${facts.layers - 1}H${facts.heads - 1}.`;
    if (!there) return;
    add(`L${Number(match[1])}H${Number(match[2])}`);
    name.value = "";
  });
  return {
    element, add, changes, has: (head) => factors.has(head), remove,
    fill(given) {
      for (const [head, factor] of Object.entries(given)) factors.set(head, factor);
      show();
    },
    busy: (now) => working(now, parts),
    idle: (words = "") => {
      resting(words, false, parts);
      go.disabled = !factors.size;
    },
    failed: (words) => resting(words, true, parts),
    show: (found) => result.replaceChildren(...both(found)),
    clear: () => result.replaceChildren(),
  };
}

function word(factor) {
  return factor === 0 ? "off" : `× ${told(factor)}`;
}

function both({before, after, effect, controls, controls_at_least: large, logprob, logprob_after: later, changes, seconds}) {
  const heads = Object.entries(changes).map(([head, factor]) => `${head} ${word(factor)}`).join(", ");
  return [
    el("div", {class: "live-sides"}, side("As it is", before, null), side(`With ${heads}`, after, before.next)),
    el("div", {class: "live-effect"}, el("h3", {}, "How much that is"), measures(effect, logprob, later), against(effect, controls, large),
      el("p", {class: "small"}, `Computed in ${told(seconds)} seconds.`)),
  ];
}

function side(title, state, before) {
  return el("div", {class: "live-side"}, el("h3", {}, title),
    state.steps.length ? said(state.steps, state.finished) : el("p", {class: "small"}, "No answer was asked for, or it is empty."),
    el("div", {class: "live-spread"}, spreadList(state.next, "at the end of the prompt", before)));
}

function measures(effect, logprob, later) {
  const rows = [["KL of the next token, at the prompt’s end", `${told(effect.kl)} nats`]];
  if (effect.answer_kl !== null) rows.push(["KL over the original answer, a token", `${told(effect.answer_kl)} nats`]);
  if (logprob !== null) rows.push(["Log-probability of the original answer", `${told(logprob)} → ${told(later)} nats (${effect.logprob_change > 0 ? "+" : ""}${told(effect.logprob_change)})`]);
  rows.push(["Likeliest next token", effect.top_changed ? "another one" : "the same"]);
  return el("dl", {class: "facts"}, rows.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
}

/** The effect among those of random heads: a strip of dots on a logarithmic line. */
function against(effect, controls, large) {
  if (!controls.length) return el("p", {class: "small"}, "No random heads were drawn.");
  const values = [effect.kl, ...controls.map((one) => one.kl)];
  const floor = Math.max(1e-6, Math.min(...values));
  const place = (value) => Math.log10(Math.max(value, floor));
  const [low, high] = [place(Math.min(...values)), place(Math.max(...values))];
  const dot = (value, name, title) => {
    const mark = el("i", {class: name, title});
    mark.style.left = `${high > low ? 100 * (place(value) - low) / (high - low) : 50}%`;
    return mark;
  };
  const strip = el("div", {class: "dots", role: "img", "aria-label": `KL ${told(effect.kl)}; random heads ${controls.map((one) => told(one.kl)).join(", ")}`},
    controls.map((one) => dot(one.kl, "random", `${Object.keys(one.heads).join(", ")}: ${told(one.kl)} nats`)), dot(effect.kl, "own", `these heads: ${told(effect.kl)} nats`));
  const counted = `${large} of ${controls.length} random draw${controls.length > 1 ? "s" : ""} of as many other heads ${large === 1 ? "has" : "have"} at least this KL of the next token, at the prompt’s end`;
  return el("div", {class: "live-control"}, strip,
    el("p", {}, `${counted} (theirs: ${controls.map((one) => told(one.kl)).join(", ")}).`),
    large ? el("p", {class: "small"}, "Heads drawn at random can do as much.") :
      el("p", {class: "small"}, `Larger than all ${controls.length}; with so few draws that is a hint, no more (p ≥ ${percent(1 / (controls.length + 1))}).`));
}
