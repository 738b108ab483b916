import assert from "node:assert/strict";
import test from "node:test";
import {adaptColour, colourAt, colourFunction, contrast, contrastingInk, luminance, parseHex, shareOf, toHex} from "headwise/colours";

const linear = {low: 0, high: 2, stops: ["#000000", "#ffffff"]};
const log = {low: 0.01, high: 1, log: true, stops: ["#000000", "#ffffff"]};

test("hex colours go both ways", () => {
  assert.deepEqual(parseHex("#1f77b4"), [0x1f, 0x77, 0xb4]);
  assert.equal(toHex([0x1f, 0x77, 0xb4]), "#1f77b4");
});

test("a share is linear or logarithmic, and unclipped", () => {
  assert.equal(shareOf(linear, 1), 0.5);
  assert.equal(shareOf(linear, 3), 1.5);
  assert.ok(Math.abs(shareOf(log, 0.1) - 0.5) < 1e-12);
});

test("colours interpolate between stops and clip at the ends", () => {
  assert.equal(colourAt(linear, 0), "#000000");
  assert.equal(colourAt(linear, 7), "#ffffff");
  const of = colourFunction({low: 0, high: 1, stops: ["#000000", "#808080", "#ff0000"]});
  assert.deepEqual([of(-1), of(1), of(2)], ["#000000", "#ff0000", "#ff0000"]);
  const [red, green] = parseHex(of(0.25));
  assert.ok(Math.abs(red - 64) <= 2 && red === green);
});

test("data colours keep their contrast on dark paper", () => {
  const dark = {dark: true, paper: "#16171a"};
  assert.equal(adaptColour("#d9d9d9", {dark: false, paper: "#ffffff"}), "#d9d9d9");
  for (const colour of ["#1f77b4", "#440154", "#b5500b"]) {
    assert.ok(contrast(luminance(parseHex(adaptColour(colour, dark))), luminance(parseHex(dark.paper))) >= 3);
  }
  assert.deepEqual([contrastingInk("#ffffff"), contrastingInk("#000000")], ["#1c1c1e", "#ffffff"]);
});
