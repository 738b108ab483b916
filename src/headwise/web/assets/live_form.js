// What is typed: the prompt, how it is put to the model, and a running state that can be cancelled.

import {el} from "headwise/element";

const MODES = {
  question: ["Question", "asked as the atlas asked its questions; the answer is scored"],
  chat: ["Chat", "your words alone, as the user’s turn"],
  text: ["Text", "read as it is, and continued"],
};
const EXAMPLES = [
  ["question", "What is the capital of Norway?"],
  ["question", "Who wrote the novel “The Trial”?"],
  ["text", "When Mary and John went to the store, John gave a drink to"],
  ["text", "one two three four five six one two three four five"],
  ["chat", "Write one sentence about the sea."],
];

/** The form: {element, values(), fill(values), focus(onRun), busy(now), idle(), failed(text)}; `run` and `cancel` are called. */
export function promptForm(facts, {run, cancel}) {
  const text = el("textarea", {id: "prompt", rows: "3", spellcheck: "false", "aria-describedby": "prompt-note",
    placeholder: "Type a question or a text"});
  const modes = facts.modes.map((mode, place) => el("label", {title: MODES[mode][1]},
    el("input", {type: "radio", name: "mode", value: mode, checked: place === 0}), MODES[mode][0]));
  const length = el("input", {type: "number", min: "0", max: String(facts.answer_tokens), value: String(Math.min(32, facts.answer_tokens)), "aria-label": "Tokens of an answer, at most"});
  const go = el("button", {type: "submit", class: "strong"}, "Run");
  const stop = el("button", {type: "button", hidden: true, on: {click: cancel}}, "Cancel");
  const state = el("span", {class: "live-state", role: "status"});
  const bar = el("progress", {max: "1", value: "0", hidden: true, "aria-label": "Progress"});
  const note = el("p", {class: "small", id: "prompt-note"}, MODES[facts.modes[0]][1]);
  const element = el("form", {class: "live-form"},
    el("label", {class: "label", for: "prompt"}, "Prompt"), text,
    el("div", {class: "live-tools"}, el("fieldset", {class: "live-modes"}, el("legend", {class: "unseen"}, "How it is put"), modes),
      el("label", {class: "live-length"}, "answer of at most ", length, " tokens"), go, stop, bar, state),
    note, examples(facts, (mode, words) => fill({text: words, mode})));

  const mode = () => new FormData(element).get("mode");
  const say = () => { note.textContent = `${MODES[mode()][1]}; at most ${facts.tokens.toLocaleString("en")} tokens. Ctrl + Enter runs.`; };
  function fill(values) {
    if (values.text !== undefined) text.value = values.text;
    const radio = [...element.elements.mode instanceof RadioNodeList ? element.elements.mode : [element.elements.mode]].find((one) => one.value === values.mode);
    if (radio) radio.checked = true;
    if (values.length !== undefined) length.value = values.length;
    say();
  }
  element.addEventListener("change", say);
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!go.disabled) run();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
  });
  say();
  return {
    element, fill,
    focus: (onRun) => (onRun ? go : text).focus({preventScroll: true}),
    values: () => ({text: text.value, mode: mode(), length: Number(length.value)}),
    busy: (now) => working(now, {go, stop, state, bar}),
    idle: (words = "") => resting(words, false, {go, stop, state, bar}),
    failed: (words) => resting(words, true, {go, stop, state, bar}),
  };
}

/** Show that something runs; `now` is what the server tells. */
export function working(now, {go, stop, state, bar}) {
  go.disabled = true;
  stop.hidden = bar.hidden = false;
  state.removeAttribute("data-failed");
  if (now.event === "waiting") bar.removeAttribute("value");
  else bar.value = now.share ?? 0;
  const words = now.event === "waiting" ? waiting(now.ahead) : `${now.stage} …`;
  if (state.textContent !== words) state.textContent = words;
}

/** Show that nothing runs, and what came of it. */
export function resting(words, failed, {go, stop, state, bar}) {
  go.disabled = false;
  stop.hidden = bar.hidden = true;
  state.textContent = words;
  state.toggleAttribute("data-failed", failed);
}

function waiting(ahead) {
  return ahead ? `waiting for ${ahead} other${ahead > 1 ? "s" : ""} …` : "starting …";
}

function examples(facts, choose) {
  const known = EXAMPLES.filter(([mode]) => facts.modes.includes(mode));
  return el("p", {class: "live-examples"}, el("span", {class: "label"}, "Examples"),
    known.map(([mode, words]) => el("button", {type: "button", class: "plain", on: {click: () => choose(mode, words)}}, words)));
}
