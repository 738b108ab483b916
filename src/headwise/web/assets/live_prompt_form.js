// The prompt form: text, prompt mode, answer length, and the progress of a run that can be cancelled.

import {el} from "headwise/dom";
import {timeWords} from "headwise/live_stream";

/** @type {Record<string, string[]>} */
const MODES = {
  question: ["Question", "In the prompt format of the atlas; the answer is scored"],
  chat: ["Chat", "The text as the user’s turn"],
  text: ["Text", "The text itself, continued"],
};
const EXAMPLES = [
  ["question", "What is the capital of Norway?"],
  ["question", "Who wrote the novel “The Trial”?"],
  ["text", "When Mary and John went to the store, John gave a drink to"],
  ["text", "one two three four five six one two three four five"],
  ["chat", "Write one sentence about the sea."],
];

/**
 * The form: {element, values(), fill(values), focus(onRun), busy(status), idle(), failed(text)}; `run` and `cancel` are called.
 * @param {LiveInfo} facts
 * @param {{run: () => void, cancel: () => void}} options
 */
export function promptForm(facts, {run, cancel}) {
  const text = el("textarea", {
    id: "prompt",
    rows: "3",
    spellcheck: "false",
    "aria-describedby": "prompt-note",
    placeholder: "Type a question or a text",
  });
  const modes = facts.modes.map((mode, index) =>
    el("label", {title: MODES[mode][1]}, el("input", {type: "radio", name: "mode", value: mode, checked: index === 0}), MODES[mode][0]),
  );
  const length = el("input", {
    type: "number",
    min: "0",
    max: String(facts.answer_tokens),
    value: String(Math.min(32, facts.answer_tokens)),
    "aria-label": "Maximum answer tokens",
  });
  const go = el("button", {type: "submit", class: "strong"}, "Run");
  const stop = el("button", {type: "button", hidden: true, on: {click: cancel}}, "Cancel");
  const state = el("span", {class: "live-state", role: "status"});
  const time = el("span", {class: "live-time", role: "timer"});
  const bar = el("progress", {max: "1", value: "0", hidden: true, "aria-label": "Progress"});
  const note = el("p", {class: "small", id: "prompt-note"}, MODES[facts.modes[0]][1]);
  const element = el(
    "form",
    {class: "live-form"},
    el("label", {class: "label", for: "prompt"}, "Prompt"),
    text,
    el(
      "div",
      {class: "live-tools"},
      el("fieldset", {class: "live-modes"}, el("legend", {class: "visually-hidden"}, "Prompt mode"), modes),
      el("label", {class: "live-length"}, "Answer of at most ", length, " tokens"),
      go,
      stop,
      bar,
      state,
      time,
    ),
    note,
    examples(facts, (mode, words) => fill({text: words, mode})),
  );

  const mode = () => String(new FormData(element).get("mode"));
  const updateNote = () => {
    note.textContent = `${MODES[mode()][1]}; at most ${facts.tokens.toLocaleString("en")} tokens. Ctrl + Enter runs.`;
  };
  /** @param {{text?: string, mode?: string, length?: string}} values */
  function fill(values) {
    if (values.text !== undefined) text.value = values.text;
    const radios = /** @type {NodeListOf<HTMLInputElement>} */ (element.querySelectorAll("input[name=mode]"));
    const radio = [...radios].find((one) => one.value === values.mode);
    if (radio) radio.checked = true;
    if (values.length !== undefined) length.value = values.length;
    updateNote();
  }
  element.addEventListener("change", updateNote);
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!go.disabled) run();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
  });
  updateNote();
  const parts = {go, stop, state, time, bar};
  return {
    element,
    fill,
    focus: (onRun) => (onRun ? go : text).focus({preventScroll: true}),
    values: () => ({text: text.value, mode: mode(), length: Number(length.value)}),
    busy: (state, now) => showBusy(state, now, parts),
    idle: (words = "") => showIdle(words, false, parts),
    failed: (words) => showIdle(words, true, parts),
  };
}

/**
 * Show the progress of a job, and how long it takes: the stage is announced to screen readers, the time is not.
 * @param {JobState} job
 * @param {number} now milliseconds
 * @param {ProgressParts} progressParts
 */
export function showBusy(job, now, {go, stop, state, time, bar}) {
  go.disabled = true;
  stop.hidden = bar.hidden = false;
  state.removeAttribute("data-failed");
  if (job.event === "waiting") bar.removeAttribute("value");
  else bar.value = job.share;
  const words = job.event === "waiting" ? waiting(job.ahead) : `${job.stage} …`;
  if (state.textContent !== words) state.textContent = words;
  time.textContent = timeWords(job, now);
}

/**
 * Show that no job runs, with a message.
 * @param {string} words
 * @param {boolean} failed
 * @param {ProgressParts} progressParts
 */
export function showIdle(words, failed, {go, stop, state, time, bar}) {
  go.disabled = false;
  stop.hidden = bar.hidden = true;
  time.textContent = "";
  state.textContent = words;
  state.toggleAttribute("data-failed", failed);
}

/** @param {number | undefined} ahead */
function waiting(ahead) {
  return ahead ? `waiting for ${ahead} other${ahead > 1 ? "s" : ""} …` : "starting …";
}

/** @param {LiveInfo} facts @param {(mode: string, words: string) => void} choose */
function examples(facts, choose) {
  const known = EXAMPLES.filter(([mode]) => facts.modes.includes(mode));
  return el(
    "p",
    {class: "live-examples"},
    el("span", {class: "label"}, "Examples"),
    known.map(([mode, words]) => el("button", {type: "button", class: "plain", on: {click: () => choose(mode, words)}}, words)),
  );
}
