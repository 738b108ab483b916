import assert from "node:assert/strict";
import test from "node:test";
import {cropView, labelledTokens, maxWeight, moveView, sameView, wholeView, zoomView} from "headwise/live_map_view";

test("a view never leaves the map and keeps a minimum size", () => {
  const whole = wholeView(100);
  const near = zoomView(whole, 0.5, 100, [0, 1]);
  assert.deepEqual(near, {rows: [50, 100], columns: [0, 50]});
  assert.deepEqual(zoomView(near, 100, 100), whole);
  assert.deepEqual(zoomView(whole, 0.001, 100).rows, [47, 53]);
  assert.deepEqual(moveView(near, -1, 1, 100), near);
  assert.deepEqual(moveView(near, 0.5, -0.5, 100), {rows: [25, 75], columns: [25, 75]});
});

test("a dragged box becomes a view, whatever its direction", () => {
  const crop = cropView(wholeView(100), [0.9, 0.5], [0.1, 0.25], 100);
  assert.deepEqual(crop, {rows: [25, 50], columns: [10, 90]});
  assert.ok(sameView(crop, {rows: [25, 50], columns: [10, 90]}) && !sameView(crop, wholeView(100)));
});

test("labels are far enough apart", () => {
  assert.deepEqual(labelledTokens([0, 10], 200, 13), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(labelledTokens([3, 100], 200, 13), [10, 20, 30, 40, 50, 60, 70, 80, 90]);
});

test("masked weights are never the largest", () => {
  assert.equal(maxWeight({values: Float32Array.from([NaN, 0.25, 0.5, NaN])}), 0.5);
});
