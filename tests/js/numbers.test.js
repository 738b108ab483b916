import assert from "node:assert/strict";
import test from "node:test";
import {formatNumber, logTicks, roundTicks, thinned, tickText} from "headwise/numbers";

test("numbers have three significant digits, a true minus and powers of ten", () => {
  assert.equal(formatNumber(0.70123), "0.701");
  assert.equal(formatNumber(-0.5), "−0.500");
  assert.equal(formatNumber(12345.6), "12,346");
  assert.equal(formatNumber(3.44e-7), "3.4 × 10⁻⁷");
  assert.equal(formatNumber(270), "270");
  assert.equal(formatNumber(null), "–");
});

test("round ticks lie inside the range, whatever its direction", () => {
  assert.deepEqual(roundTicks(0, 1), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(roundTicks(1, 0), [0, 0.25, 0.5, 0.75, 1]);
  for (const [low, high] of [
    [-0.37, 0.51],
    [0, 0.0015],
    [3, 29],
    [0, 1e6],
  ]) {
    const ticks = roundTicks(low, high);
    assert.ok(ticks.length >= 2 && ticks.length <= 5 && ticks.every((tick) => tick >= low - 1e-9 && tick <= high + 1e-9));
  }
});

test("logarithmic ticks are powers of two for counts, else of ten", () => {
  assert.deepEqual(logTicks(4, 64, true), [4, 8, 16, 32, 64]);
  assert.deepEqual(logTicks(0.01, 1, false), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]);
  assert.deepEqual(logTicks(1e-6, 1, false), [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1]);
});

test("labels are thinned in round steps", () => {
  assert.deepEqual(thinned(9, 20), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  const labels = thinned(80, 8);
  assert.ok(labels[0] === 0 && labels.length <= 9 && labels.at(-1) <= 79);
  assert.equal(tickText(0.25), "0.25");
});
