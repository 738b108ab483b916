// What is known of a job while it runs: its stage, the tokens so far and their scores, how long it took and may still take.
//
// A reducer: `reduce(state, event, now)` is the state after one line of the server's stream (see server/live_routes.py); nothing here
// touches the page. A what-if has answers of two models, so tokens are held by part ("answer", "unchanged", "changed").
//
// A token is shaded by the answer's score so far: where the chosen score is calibrated by the probability that the same text, as a whole
// answer, is wrong; else by how improbable the token itself was.

import {duration, formatNumber} from "headwise/numbers";

const ESTIMATE_AFTER = 2000; // milliseconds of a stage before its rest is estimated from its share

/**
 * The state of a job that was just sent.
 * @param {number} now milliseconds
 * @returns {JobState}
 */
export function begin(now) {
  return {event: "waiting", ahead: 0, stage: "", share: 0, started: now, stageStarted: now, parts: {}};
}

/**
 * The state after an event.
 * @param {JobState} state
 * @param {JobEvent} event
 * @param {number} now milliseconds
 * @returns {JobState}
 */
export function reduce(state, event, now) {
  if (event.event === "waiting") return {...state, event: "waiting", ahead: event.ahead ?? 0};
  if (event.event === "running") {
    const stage = event.stage ?? "";
    const stageStarted = stage === state.stage && state.event === "running" ? state.stageStarted : now;
    return {...state, event: "running", stage, share: event.share ?? 0, stageStarted};
  }
  const name = event.part ?? "answer";
  const part = state.parts[name] ?? {steps: [], limit: event.limit ?? 0, done: false, finished: false, scores: {}, first: now, latest: now};
  if (event.event === "token") return withPart(state, name, {...part, steps: [...part.steps, stepOf(event)], latest: now});
  if (event.event === "answered") return withPart(state, name, {...part, done: true, finished: event.finished, scores: event.scores});
  return state;
}

/** @param {JobState} state @param {string} name @param {any} part @returns {JobState} */
function withPart(state, name, part) {
  return {...state, parts: {...state.parts, [name]: part}};
}

/** @param {any} event @returns {GeneratedToken} */
function stepOf({text, id, logprob, distribution, scores}) {
  return {text, id, logprob, distribution, scores};
}

/**
 * An answer that is complete, as a part.
 * @param {{steps: GeneratedToken[], finished: boolean, scores: Record<string, ScoreSoFar>}} answer
 * @returns {AnswerPart}
 */
export function wholeAnswer({steps, finished, scores}) {
  return {steps, limit: steps.length, done: true, finished, scores, first: 0, latest: 0};
}

/**
 * How long a job took so far, how much of it is done, and how long it may still take.
 * @param {JobState} state
 * @param {number} now milliseconds
 */
export function timeWords(state, now) {
  const words = [`${duration(now - state.started)} so far`];
  const part = Object.values(state.parts).find((one) => !one.done);
  if (part) {
    const done = part.steps.length;
    words.unshift(`${done} of at most ${part.limit} tokens`);
    if (done > 1) {
      const left = ((part.latest - part.first) / (done - 1)) * (part.limit - done) - (now - part.latest);
      words.push(`at most ${duration(Math.max(left, 0))} left for the answer`);
    }
  } else if (state.event === "running" && state.share > 0 && now - state.stageStarted >= ESTIMATE_AFTER) {
    const left = (now - state.stageStarted) * (1 / state.share - 1);
    words.push(`about ${duration(left)} left for this step`);
  }
  return words.join(" · ");
}

/**
 * How a token is shaded: from 0 to 1, by the probability that the answer is wrong if it ended here, or by the token's own improbability.
 * @param {GeneratedToken} step
 * @param {string | null} score
 * @returns {{kind: "probability" | "logprob", share: number}}
 */
export function shading(step, score) {
  const probability = (score === null ? undefined : step.scores[score])?.probability ?? null;
  if (probability !== null) return {kind: "probability", share: probability};
  return {kind: "logprob", share: 1 - Math.exp(Math.min(step.logprob, 0))};
}

/**
 * The token with which a score raised its alarm; -1: none, the length: at the end of the answer.
 * @param {AnswerPart} part
 * @param {string | null} score
 */
export function alarmAt(part, score) {
  if (score === null) return -1;
  const index = part.steps.findIndex((step) => step.scores[score]?.alarm);
  return index < 0 && part.scores[score]?.alarm ? part.steps.length : index;
}

/**
 * What a score says of the answer up to a token, as rows of a label and a text.
 * @param {ScoreSoFar | undefined} found
 */
export function scoreRows(found) {
  /** @type {[string, string][]} */
  const rows = [];
  if (!found || found.score === null) return rows;
  if (found.probability !== null) rows.push(["Wrong, if it ended here", percent(found.probability)]);
  rows.push(["Score", formatNumber(found.score)]);
  if (found.unusual.length) rows.push(["Outside the range of the training answers", found.unusual.join(", ")]);
  return rows;
}

/**
 * A token in one line, for its tooltip and for screen readers.
 * @param {string} text
 * @param {GeneratedToken} step
 * @param {string | null} score
 * @param {boolean} alarm whether the alarm is raised with this token
 */
export function tokenWords(text, step, score, alarm) {
  const found = score === null ? undefined : step.scores[score];
  const words = [`${text}: token probability ${percent(Math.exp(step.logprob))}`];
  if (found?.probability !== null && found?.probability !== undefined)
    words.push(`wrong, if the answer ended here: ${percent(found.probability)}`);
  else if (found?.score !== null && found?.score !== undefined) words.push(`score ${formatNumber(found.score)}`);
  if (found && Object.keys(found.heads).length) words.push(`heads ${Object.keys(found.heads).join(", ")}`);
  if (alarm) words.push("alarm");
  return words.join("; ");
}

/**
 * A share as a percentage.
 * @param {number} p
 */
export function percent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`;
}
