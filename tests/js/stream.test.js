import assert from "node:assert/strict";
import test from "node:test";
import {alarmAt, begin, reduce, scoreRows, shading, timeWords, tokenWords, wholeAnswer} from "headwise/live_stream";
import {duration} from "headwise/numbers";

const SCORE = "Heads";

/** One score of an answer so far. */
function soFar(probability, more = {}) {
  return {[SCORE]: {score: 1.25, probability, heads: {L3H7: 0.5}, unusual: [], alarm: false, ...more}};
}

/** A line of the server's stream. */
function token(index, scores = {}, more = {}) {
  return {event: "token", part: "answer", index, limit: 4, text: ` t${index}`, id: index, logprob: -0.5, distribution: {}, scores, ...more};
}

/** The state after events, one every half second. */
function after(...events) {
  return events.reduce((state, event, index) => reduce(state, event, 1000 + 500 * index), begin(1000));
}

test("a job waits, then runs through its stages", () => {
  const waiting = after({event: "waiting", ahead: 2});
  assert.deepEqual([waiting.event, waiting.ahead, waiting.started], ["waiting", 2, 1000]);
  const running = after(
    {event: "waiting", ahead: 0},
    {event: "running", stage: "reading", share: 0.5},
    {event: "running", stage: "reading", share: 0.75},
  );
  assert.deepEqual([running.event, running.stage, running.share, running.stageStarted], ["running", "reading", 0.75, 1500]);
});

test("tokens are collected in order, by part, and earlier states are left as they were", () => {
  const first = after(token(0));
  const second = reduce(first, token(1), 2000);
  assert.deepEqual(
    [first, second].map((state) => state.parts.answer.steps.map((step) => step.text)),
    [[" t0"], [" t0", " t1"]],
  );
  const both = reduce(second, token(0, {}, {part: "changed", text: " else"}), 2500);
  assert.deepEqual(Object.keys(both.parts), ["answer", "changed"]);
  assert.equal(both.parts.changed.steps[0].text, " else");
});

test("the end of an answer brings the score of the whole", () => {
  const {answer} = after(token(0), {event: "answered", part: "answer", finished: true, scores: soFar(0.4)}).parts;
  assert.deepEqual([answer.done, answer.finished, answer.scores[SCORE].probability], [true, true, 0.4]);
  const empty = after({event: "answered", part: "answer", finished: true, scores: {}});
  assert.deepEqual([empty.parts.answer.steps, empty.parts.answer.done], [[], true]);
});

test("what the stream told is what the result holds", () => {
  const part = after(token(0, soFar(0.1)), token(1, soFar(0.2)), {
    event: "answered",
    part: "answer",
    finished: false,
    scores: soFar(0.2),
  }).parts.answer;
  const whole = wholeAnswer({steps: part.steps, finished: false, scores: part.scores});
  assert.deepEqual([whole.steps, whole.scores, whole.done], [part.steps, part.scores, true]);
});

test("unknown events change nothing", () => {
  const state = begin(0);
  assert.equal(reduce(state, {event: "other"}, 5), state);
});

test("the time tells tokens done, how long so far, and how much is left", () => {
  const state = after({event: "running", stage: "generating the answer", share: 0}, token(0), token(1));
  assert.equal(timeWords(state, 3000), "2 of at most 4 tokens · 2 s so far · at most 0 s left for the answer");
  assert.equal(timeWords(after(token(0)), 61_000), "1 of at most 4 tokens · 1 min 0 s so far");
  const slow = {...begin(0), parts: {answer: {...after(token(0), token(1)).parts.answer, limit: 12, first: 0, latest: 2000}}};
  assert.equal(timeWords(slow, 2000), "2 of at most 12 tokens · 2 s so far · at most 20 s left for the answer");
  const long = {...begin(0), event: "running", stage: "observing every head", share: 0.25, stageStarted: 4000};
  assert.equal(timeWords(long, 10_000), "10 s so far · about 18 s left for this step");
  assert.equal(timeWords({...long, share: 0}, 10_000), "10 s so far");
  assert.equal(duration(125_900), "2 min 5 s");
});

test("tokens are shaded by probability where there is one, else by how improbable they were", () => {
  const step = {...token(0, soFar(0.7))};
  assert.deepEqual(shading(step, SCORE), {kind: "probability", share: 0.7});
  for (const [scores, name] of [
    [soFar(null), SCORE],
    [{}, SCORE],
    [soFar(0.7), null],
  ]) {
    const found = shading({...step, scores}, name);
    assert.equal(found.kind, "logprob");
    assert.ok(Math.abs(found.share - (1 - Math.exp(-0.5))) < 1e-9);
  }
  assert.equal(shading({...step, scores: {}, logprob: 1e-7}, null).share, 0); // rounding never makes a token more than certain
});

test("an alarm belongs to the token that raised it, or to the end", () => {
  const raised = soFar(0.9, {alarm: true});
  const part = after(token(0, soFar(0.1)), token(1, raised), token(2, raised)).parts.answer;
  assert.equal(alarmAt(part, SCORE), 1);
  assert.equal(alarmAt(part, null), -1);
  assert.equal(alarmAt(part, "another"), -1);
  const late = after(token(0, soFar(0.1)), {event: "answered", part: "answer", finished: true, scores: raised}).parts.answer;
  assert.equal(alarmAt(late, SCORE), 1);
  assert.equal(alarmAt(after(token(0, soFar(0.1))).parts.answer, SCORE), -1);
});

test("what a score says is in words, a missing one says nothing", () => {
  assert.deepEqual(scoreRows(soFar(0.34)[SCORE]), [
    ["Wrong, if it ended here", "34 %"],
    ["Score", "1.25"],
  ]);
  assert.deepEqual(scoreRows(soFar(null, {unusual: ["Answer rows"]})[SCORE]).at(-1), [
    "Outside the range of the training answers",
    "Answer rows",
  ]);
  assert.deepEqual(scoreRows(undefined), []);
  assert.deepEqual(scoreRows(soFar(null, {score: null})[SCORE]), []);
  assert.equal(
    tokenWords("␣Oslo", token(0, soFar(0.34)), SCORE, true),
    "␣Oslo: token probability 61 %; wrong, if the answer ended here: 34 %; heads L3H7; alarm",
  );
  assert.equal(tokenWords("␣Oslo", token(0), null, false), "␣Oslo: token probability 61 %");
});
