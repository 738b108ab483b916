// Lines over a numeric axis, with confidence bands; labelled below the axis, where no line can cross the labels.
//
// Where all curves share their x positions, the pointer selects a position and the tooltip lists all curves there, constant curves
// included; otherwise (as for ROC curves) it selects the nearest point of one curve.

import {
  bottomMargin as axisFoot,
  leftMargin as axisLeft,
  rightMargin as axisRight,
  paintAxes,
  paintGuides,
  projection,
  rangeOf,
  ticksOf,
} from "headwise/axes";
import {adaptColour} from "headwise/colours";
import {entriesHeight, paintEntries} from "headwise/legend";
import {formatNumber} from "headwise/numbers";
import {LINE_HEIGHT, SMALL_FONT} from "headwise/text_metrics";

const MAX_LISTED_TICKS = 6; // positions of a logarithmic axis that each get a tick
const PICK_RADIUS = 60; // pixels

export function minWidth() {
  return 190;
}

export function maxWidth() {
  return 340;
}

/** @param {CurvesPanel} panel @param {number} width */
export function heightOf(panel, width) {
  return Math.round(Math.max(0.72 * width, 100, panel.y.labels.length * SMALL_FONT * LINE_HEIGHT));
}

/** @param {CurvesPanel} panel @param {any} _ @param {string} font */
export function leftMargin(panel, _, font) {
  return axisLeft(panel.y, yTicks(panel, yRange(panel)), font);
}

/** @param {CurvesPanel} panel @param {any} _ @param {number} width @param {string} font */
export function bottomMargin(panel, _, width, font) {
  return axisFoot(panel.x) + entriesHeight(entries(panel), width, font) + 2;
}

/** @param {CurvesPanel} panel @param {any} _scale @param {any} _bar @param {string} font */
export function rightMargin(panel, _scale, _bar, font) {
  const range = xRange(panel);
  return axisRight(panel.x, xTicks(panel, range), range, font);
}

/** @param {Pen} pen @param {Slot<CurvesPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const plot = plotOf(slot);
  paintGuides(pen, plot, theme);
  pen.clip({x: slot.box.x, y: slot.box.y - 2, width: slot.box.width + 3, height: slot.box.height + 4}, () => {
    for (const curve of slot.panel.curves) paintBand(pen, plot, curve, theme);
    for (const curve of slot.panel.curves) paintCurve(pen, plot, curve, theme);
  });
  paintAxes(pen, plot, theme);
  const top = slot.box.y + slot.box.height + axisFoot(slot.panel.x) + 4;
  paintEntries(pen, entries(slot.panel), slot.box.x, top, slot.box.width, theme, slot.font);
}

/** @param {Slot<CurvesPanel>} slot @param {number} x @param {number} y */
export function itemAt(slot, x, y) {
  const {box, panel} = slot;
  if (x < box.x - 8 || x > box.x + box.width + 8 || y < box.y - 8 || y > box.y + box.height + 8) return null;
  const plot = plotOf(slot);
  const common = sharedPositions(panel);
  /** @type {CurvePoint | null} */
  let best = null;
  let near = common ? Infinity : PICK_RADIUS ** 2;
  panel.curves.slice(0, common ? 1 : undefined).forEach((curve, which) =>
    curve.x.forEach((value, index) => {
      if (value === null || curve.y[index] === null) return;
      const distance = (plot.x(value) - x) ** 2 + (common ? 0 : (plot.y(curve.y[index]) - y) ** 2);
      if (distance < near) [best, near] = [{curve: which, index}, distance];
    }),
  );
  return best;
}

/** @param {Slot<CurvesPanel>} slot */
export function firstItem({panel}) {
  const curve = panel.curves.findIndex((each) => each.x.length);
  return curve < 0 ? null : {curve, index: 0};
}

/** @param {Slot<CurvesPanel>} slot @param {CurvePoint} curvePoint @param {number} across @param {number} down */
export function moveItem(slot, {curve, index}, across, down) {
  const {curves} = slot.panel;
  const other = Math.min(Math.max(curve + (sharedPositions(slot.panel) ? 0 : down), 0), curves.length - 1);
  return {curve: other, index: Math.min(Math.max(index + across, 0), curves[other].x.length - 1)};
}

/** @param {Slot<CurvesPanel>} slot @param {CurvePoint} curvePoint */
export function tooltipAnchor(slot, {curve, index}) {
  const plot = plotOf(slot);
  const one = slot.panel.curves[curve];
  return {x: plot.x(one.x[index]) + 6, y: plot.y(one.y[index] ?? plot.yRange[0])};
}

export function itemKey() {
  return null;
}

export function findItem() {
  return null;
}

/** @param {Pen} pen @param {Slot<CurvesPanel>} slot @param {CurvePoint} curvePoint @param {Theme} theme */
export function outline(pen, slot, {curve, index}, theme) {
  const plot = plotOf(slot);
  const common = sharedPositions(slot.panel);
  const value = slot.panel.curves[curve].x[index];
  if (common)
    pen.path(
      [
        [plot.x(value), slot.box.y],
        [plot.x(value), slot.box.y + slot.box.height],
      ],
      {colour: theme.inkSoft},
    );
  slot.panel.curves.forEach((each, which) => {
    const height = common ? valueAt(each, value) : which === curve ? each.y[index] : null;
    if (height === null) return;
    pen.circle(plot.x(value), plot.y(height), 5, {fill: adaptColour(each.colour, theme), line: {colour: theme.paper, width: 2}});
  });
}

/** @param {Slot<CurvesPanel>} slot @param {CurvePoint} curvePoint */
export function tooltipContent(slot, {curve, index}) {
  const {panel} = slot;
  const own = panel.curves[curve];
  const position = own.x[index];
  const seen = sharedPositions(panel) ? panel.curves.filter((each) => valueAt(each, position) !== null) : [own];
  const label = panel.y.labels[Math.round(own.y[index] ?? -1)];
  return {
    name: label ?? `${panel.x.name || "x"} ${formatNumber(position)}`,
    head: null,
    value: own.y[index],
    caption: panel.title,
    rows:
      label === undefined
        ? seen.map((each) => [each.label || panel.y.name, numberOf(each, each === own ? index : indexAt(each, position)), each.colour])
        : [[panel.x.name, formatNumber(position)]],
  };
}

/** @param {Curve} curve @param {number} index */
function numberOf(curve, index) {
  const [low, high] = [curve.low?.[index] ?? null, curve.high?.[index] ?? null];
  return formatNumber(curve.y[index]) + (low === null || high === null ? "" : ` (${formatNumber(low)} to ${formatNumber(high)})`);
}

/**
 * The index of x in a curve; any index of a constant curve; -1: none.
 * @param {Curve} curve
 * @param {number} value
 */
function indexAt({x, y}, value) {
  const index = x.indexOf(value);
  return index < 0 && y.every((height) => height === y[0]) ? 0 : index;
}

/** @param {Curve} curve @param {number} value */
function valueAt(curve, value) {
  return curve.y[indexAt(curve, value)] ?? null;
}

/**
 * Whether all non-constant curves have the x positions of the first.
 * @param {CurvesPanel} curvesPanel
 */
function sharedPositions({curves}) {
  const [first, ...rest] = curves;
  return rest.every(
    (curve) =>
      (curve.x.length === first.x.length && curve.x.every((value, index) => value === first.x[index])) ||
      curve.y.every((height) => height === curve.y[0]),
  );
}

/**
 * The legend entries of the curves; none for a single curve.
 * @param {CurvesPanel} curvesPanel
 */
function entries({curves}) {
  if (curves.length < 2) return [];
  return curves
    .filter((curve) => curve.label)
    .map((curve) => ({
      label: curve.label,
      colour: curve.colour,
      sign: {points: "dot", dashed: "dashed"}[curve.style] ?? "line",
    }));
}

/** @param {Slot<CurvesPanel>} slot @returns {Plot<CurvesPanel>} */
function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box} = slot;
    const [xRange_, yRange_] = [xRange(panel), yRange(panel)];
    slot.plot = {
      panel,
      box,
      xRange: xRange_,
      yRange: yRange_,
      font: slot.font,
      x: projection(xRange_, panel.x.log, box.x, box.width),
      y: projection(yRange_, panel.y.log, box.y + box.height, -box.height),
      xTicks: xTicks(panel, xRange_),
      yTicks: yTicks(panel, yRange_),
    };
  }
  return slot.plot;
}

/** @param {CurvesPanel} panel */
function xRange(panel) {
  const guides = panel.guides.filter((guide) => guide.axis === "x").map((guide) => guide.at);
  return rangeOf(panel.x, [...panel.curves.flatMap((curve) => extendSteps(curve, panel.x.log).x), ...guides]);
}

/** @param {CurvesPanel} panel @param {number[]} range */
function xTicks(panel, range) {
  const positions = [...new Set(panel.curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const listed = panel.x.log && positions.length > 0 && positions.length <= MAX_LISTED_TICKS;
  return ticksOf(panel.x, range, {doubling: true, positions: listed ? positions : null});
}

/** @param {CurvesPanel} panel */
function yRange(panel) {
  const guides = panel.guides.filter((guide) => guide.axis === "y").map((guide) => guide.at);
  return rangeOf(panel.y, [...panel.curves.flatMap((curve) => [...curve.y, ...(curve.low ?? []), ...(curve.high ?? [])]), ...guides]);
}

/** @param {CurvesPanel} panel @param {number[]} range */
function yTicks(panel, range) {
  const counts = panel.curves.every((curve) => curve.y.every((value) => Number.isInteger(value)));
  return ticksOf(panel.y, range, {counts});
}

/**
 * Step curves extended by half a step at both ends, so that all steps have equal widths.
 * @param {Curve} curve
 * @param {boolean} log
 */
function extendSteps(curve, log) {
  if (curve.style !== "step" || log || curve.x.length < 2) return curve;
  const {x} = curve;
  const ends = (side) => side && [side[0], ...side, side.at(-1)];
  return {
    ...curve,
    x: [1.5 * x[0] - 0.5 * x[1], ...x, 1.5 * x[x.length - 1] - 0.5 * x[x.length - 2]],
    y: ends(curve.y),
    low: ends(curve.low),
    high: ends(curve.high),
  };
}

/**
 * Points of a curve or band in pixels; steps change half way between positions; missing values are gaps.
 * @param {Plot<CurvesPanel>} plot
 * @param {Curve} curve
 * @param {Numbers} side
 */
function points(plot, curve, side) {
  const found = [];
  curve.x.forEach((value, index) => {
    const height = side[index];
    if (height === null || value === null) return found.push(null);
    const [x, y] = [plot.x(value), plot.y(height)];
    if (curve.style !== "step") return found.push([x, y]);
    const [before, after] = [curve.x[index - 1], curve.x[index + 1]];
    found.push([before === undefined ? x : plot.x((before + value) / 2), y]);
    return found.push([after === undefined ? x : plot.x((after + value) / 2), y]);
  });
  return found;
}

/** @param {Pen} pen @param {Plot<CurvesPanel>} plot @param {Curve} curve @param {Theme} theme */
function paintBand(pen, plot, curve, theme) {
  if (!curve.low || !curve.high) return;
  const long = extendSteps(curve, plot.panel.x.log);
  const [low, high] = [points(plot, long, long.low), points(plot, long, long.high)];
  const known = low.map((point, index) => point !== null && high[index] !== null);
  for (let first = 0; first < known.length; first += 1) {
    if (!known[first]) continue;
    let end = first;
    while (end < known.length && known[end]) end += 1;
    if (end === first + 1) pen.path([low[first], high[first]], {colour: adaptColour(curve.colour, theme), width: 1.8});
    pen.area([...high.slice(first, end), ...low.slice(first, end).reverse()], adaptColour(curve.colour, theme), 0.2);
    first = end;
  }
}

/** @param {Pen} pen @param {Plot<CurvesPanel>} plot @param {Curve} curve @param {Theme} theme */
function paintCurve(pen, plot, curve, theme) {
  const long = extendSteps(curve, plot.panel.x.log);
  const colour = adaptColour(curve.colour, theme);
  const line = points(plot, long, long.y);
  if (curve.style === "points") {
    for (const point of line) if (point) pen.circle(point[0], point[1], 2.5, {fill: colour});
    return;
  }
  pen.withTitle(curve.label, () => pen.path(line, {colour, width: 1.8, dash: curve.style === "dashed" ? [6, 4] : []}));
  line.forEach((point, index) => {
    const alone = point && !line[index - 1] && !line[index + 1]; // a line has no length there
    if (alone) pen.circle(point[0], point[1], 2.5, {fill: colour});
  });
}
