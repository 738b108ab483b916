import assert from "node:assert/strict";
import test from "node:test";
import {projection, rangeOf, ticksOf} from "headwise/axes";
import {layoutFigure} from "headwise/layout";
import {SMALL_FONT, textWidth, truncate, wrap} from "headwise/text_metrics";

const axis = (name, size) => ({name, labels: Array.from({length: size}, (_, index) => String(index)), low: null, high: null, log: false});
const scale = {label: "Weight", low: 0, high: 1, stops: ["#000000", "#ffffff"], ticks: [[0, "0"], [1, "1"]], marks: []}; // prettier-ignore
const heatmap = (key, rows = 6, columns = 4, over = {}) => ({
  type: "Heatmap",
  key,
  title: key,
  subtitle: "",
  scale: "s",
  x: axis("Head", columns),
  y: axis("Layer", rows),
  values: Array.from({length: rows}, () => new Array(columns).fill(0.5)),
  marks: [],
  frames: [],
  extras: {},
  missing: "missing",
  ...over,
});
const figure = (panels, columns, scales = {s: scale}) => ({
  title: "",
  subtitle: "",
  panels,
  columns,
  scales,
  notes: [],
  alt: "",
  provenance: "",
});

test("a narrow window has fewer columns, and rows are evenly filled", () => {
  const panels = ["a", "b", "c", "d"].map((key) => heatmap(key));
  assert.equal(layoutFigure(figure(panels, 4), 1200, "sans").columns, 4);
  assert.equal(layoutFigure(figure(panels, 4), 420, "sans").columns, 2);
  assert.equal(layoutFigure(figure(panels, 4), 150, "sans").columns, 1);
});

test("maps with one scale share a colour bar, others have their own", () => {
  const shared = layoutFigure(figure([heatmap("a"), heatmap("b")], 2), 900, "sans");
  assert.ok(shared.shared && shared.slots.every((slot) => slot.bar === null));
  const own = layoutFigure(figure([heatmap("a"), heatmap("b", 6, 4, {scale: "t"})], 2, {s: scale, t: scale}), 900, "sans");
  assert.ok(own.shared === null && own.slots.every((slot) => slot.bar !== null));
});

test("labels are written where the neighbour does not show the same", () => {
  const {slots} = layoutFigure(figure([heatmap("a"), heatmap("b"), heatmap("c"), heatmap("d", 5)], 2), 900, "sans");
  assert.deepEqual(
    slots.map((slot) => slot.labelledY),
    [true, false, true, true],
  );
  assert.deepEqual(
    slots.map((slot) => slot.labelledX),
    [false, false, true, true],
  );
});

test("an axis covers its data and a margin, unless it has a range", () => {
  const plain = {low: null, high: null, log: false, labels: []};
  const [low, high] = rangeOf(plain, [0, null, 10]);
  assert.ok(Math.abs(low + 0.5) < 1e-9 && Math.abs(high - 10.5) < 1e-9);
  assert.deepEqual(rangeOf({...plain, low: 0, high: 1}, [5]), [0, 1]);
  const x = projection([1, 100], true, 0, 200);
  assert.ok(Math.abs(x(10) - 100) < 1e-9);
  assert.deepEqual(ticksOf({...plain, labels: ["a", "b"]}, [0, 1]), [[0, "a"], [1, "b"]]); // prettier-ignore
  assert.deepEqual(ticksOf(plain, [1, 4], {positions: [1, 2]}), [[1, "1"], [2, "2"]]); // prettier-ignore
});

test("long labels are truncated at a word, and text wraps", () => {
  assert.equal(truncate("a name that goes on and on, longer than any label can be"), "a name that goes on and on, longer…");
  assert.deepEqual(wrap("one two three", 45, 10, "sans"), ["one two", "three"]);
});

test("the last tick of an axis has room beyond the end of the axis", () => {
  const axisOf = (high) => ({name: "", labels: [], low: 0, high, log: false});
  const curve = {label: "", colour: "#000000", style: "line", x: [0, 1], y: [0, 1], low: null, high: null};
  const curves = (high) => ({
    type: "Curves",
    key: "c",
    title: "",
    subtitle: "",
    x: axisOf(high),
    y: axisOf(1),
    curves: [curve],
    guides: [],
    scale: "",
  });
  const room = (high) => {
    const {slots, widths} = layoutFigure(figure([curves(high)], 1), 400, "sans");
    return widths[0] - slots[0].box.x - slots[0].box.width;
  };
  assert.ok(room(100000) >= textWidth("100,000", SMALL_FONT, "sans") / 2);
  assert.ok(room(100000) > room(1));
});

test("in one column, curves use the room that long names of another panel's rows take", () => {
  const axisOf = (labels) => ({name: "", labels, low: 0, high: 1, log: false});
  const curve = {label: "", colour: "#000000", style: "line", x: [0, 1], y: [0, 1], low: null, high: null};
  const panel = {key: "c", title: "", subtitle: "", guides: [], scale: ""};
  const curves = {...panel, type: "Curves", x: axisOf([]), y: axisOf([]), curves: [curve]};
  const rows = {...panel, type: "Intervals", x: axisOf([]), y: axisOf(["a name that is rather long"]), values: [0.5], low: [0], high: [1], groups: [], categories: []}; // prettier-ignore
  const {slots, columns} = layoutFigure(figure([curves, rows], 2), 340, "sans");
  assert.equal(columns, 1);
  assert.ok(slots[0].box.x < slots[1].box.x - 40);
  assert.equal(slots[0].box.x + slots[0].box.width, slots[1].box.x + slots[1].box.width);
});
