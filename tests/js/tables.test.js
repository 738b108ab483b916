import assert from "node:assert/strict";
import test from "node:test";
import {figureRows, hasRows, toCsv} from "headwise/downloads";
import {fixedNumber, shareBelow} from "headwise/heads_table";
import {cellName, extraRows, headName, markTexts, tooltipLine} from "headwise/tooltip_text";

const axis = (name, labels) => ({name, labels, low: null, high: null, log: false});
const panel = {
  type: "Heatmap",
  title: "Map",
  x: axis("Head", ["0", "1"]),
  y: axis("Layer", ["0", "1"]),
  values: [
    [1, null],
    [0.5, 2],
  ],
  extras: {
    p: [
      [0.1, 0.2],
      [0.3, 0.4],
    ],
  },
  marks: [{row: 1, column: 1, sign: "ring", text: "strongest"}],
  frames: [],
};

test("CSV fields are quoted, and formulas are escaped", () => {
  assert.equal(toCsv([["a,b", 'say "x"', "=1+1", null, -2]]), '"a,b","say ""x""",\'=1+1,,-2\r\n');
});

test("a figure has one row per cell, with all extras", () => {
  assert.deepEqual(figureRows({panels: [panel]}), [
    ["panel", "Layer", "Head", "value", "p"],
    ["Map", "0", "0", 1, 0.1],
    ["Map", "0", "1", null, 0.2],
    ["Map", "1", "0", 0.5, 0.3],
    ["Map", "1", "1", 2, 0.4],
  ]);
  assert.ok(!hasRows({panels: [{type: "Tiles"}]}));
});

test("cells are heads where the axes are Layer and Head, in either order", () => {
  assert.equal(headName(panel, 1, 0), "L1H0");
  assert.equal(headName({x: panel.y, y: panel.x}, 1, 0), "L0H1");
  assert.equal(headName({x: axis("Token", ["0"]), y: panel.y}, 0, 0), null);
  assert.equal(cellName({x: axis("Token", ["a"]), y: panel.y}, {row: 1, column: 0}), "Layer 1 · Token a");
  assert.deepEqual(markTexts(panel, {row: 1, column: 1}), ["strongest"]);
});

test("extras are written with their intervals", () => {
  const extras = {
    low: [[0.1]],
    high: [[0.9]],
    single_head_auroc: [[0.5]],
    single_head_auroc_low: [[0.4]],
    single_head_auroc_high: [[0.6]],
    value: [[7]],
  };
  assert.deepEqual(extraRows(extras, {row: 0, column: 0}, 7), [
    ["interval", "0.100 to 0.900"],
    ["single-head AUROC", "0.500 (0.400 to 0.600)"],
  ]);
  assert.equal(tooltipLine({name: "L0H0", caption: "Map", rows: [["p", "0.1"]]}), "L0H0, Map; p 0.1");
});

test("a bar is the share of smaller numbers, ties counting half", () => {
  assert.equal(shareBelow([1, 2, 3, 4, 5], 3), 0.5);
  assert.equal(shareBelow([1, 1, 1], 1), 0.5);
  assert.deepEqual([fixedNumber(0.12345), fixedNumber(-12.345), fixedNumber(1e-5)], ["0.123", "−12.35", "1.0e−5"]);
});
