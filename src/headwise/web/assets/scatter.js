// Points with names, one per head or per example. Selected points have their names next to them.

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
import {SMALL_FONT, textWidth} from "headwise/text_metrics";
import {tooltipLine} from "headwise/tooltip_text";

const BLUE = "#31688e";
const PICK_RADIUS = 24;

export function minWidth() {
  return 190;
}

export function maxWidth() {
  return 360;
}

/** @param {any} _ @param {number} width */
export function heightOf(_, width) {
  return Math.round(Math.max(0.9 * width, 100));
}

/** @param {ScatterPanel} panel @param {any} _ @param {string} font */
export function leftMargin(panel, _, font) {
  const range = rangeOf(panel.y, valuesOf(panel, "y"));
  return axisLeft(panel.y, ticksOf(panel.y, range), font);
}

/** @param {ScatterPanel} panel @param {any} _ @param {number} width @param {string} font */
export function bottomMargin(panel, _, width, font) {
  return axisFoot(panel.x) + entriesHeight(entries(panel), width, font) + 2;
}

/** @param {ScatterPanel} panel @param {any} _scale @param {any} _bar @param {string} font */
export function rightMargin(panel, _scale, _bar, font) {
  const range = rangeOf(panel.x, valuesOf(panel, "x"));
  return axisRight(panel.x, ticksOf(panel.x, range, {doubling: true}), range, font);
}

/** @param {Pen} pen @param {Slot<ScatterPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel, box} = slot;
  const plot = plotOf(slot);
  paintGuides(pen, plot, theme);
  panel.x_values.forEach((_, index) => {
    const point = pointOf(plot, panel, index);
    if (!point) return;
    const fill = adaptColour(colourOf(panel, index), theme);
    pen.withTitle(pen.hasTitles ? () => tooltipLine(tooltipContent(slot, {index})) : null, () =>
      pen.circle(point[0], point[1], 3, {fill, alpha: 0.75}),
    );
  });
  paintAxes(pen, plot, theme);
  paintNames(pen, plot, slot, theme);
  paintEntries(pen, entries(panel), box.x, box.y + box.height + axisFoot(panel.x) + 4, box.width, theme, slot.font);
}

/** @param {Slot<ScatterPanel>} slot @param {number} x @param {number} y */
export function itemAt(slot, x, y) {
  const plot = plotOf(slot);
  /** @type {{index: number} | null} */
  let best = null;
  let near = PICK_RADIUS ** 2;
  slot.panel.x_values.forEach((_, index) => {
    const point = pointOf(plot, slot.panel, index);
    const distance = point ? (point[0] - x) ** 2 + (point[1] - y) ** 2 : Infinity;
    if (distance < near) [best, near] = [{index}, distance];
  });
  return best;
}

/** @param {Slot<ScatterPanel>} slot */
export function firstItem(slot) {
  const index = slot.panel.shown[0] ?? order(slot)[0];
  return index === undefined ? null : {index};
}

/**
 * The next point to the right or left; up and down go along the other axis.
 * @param {Slot<ScatterPanel>} slot
 * @param {{index: number}} options
 * @param {number} across
 * @param {number} down
 */
export function moveItem(slot, {index}, across, down) {
  const points = order(slot, down ? "y_values" : "x_values");
  const step = across || -down;
  return {index: points[Math.min(Math.max(points.indexOf(index) + step, 0), points.length - 1)]};
}

/** @param {Slot<ScatterPanel>} slot @param {{index: number}} options */
export function tooltipAnchor(slot, {index}) {
  const [x, y] = pointOf(plotOf(slot), slot.panel, index) ?? [slot.box.x, slot.box.y];
  return {x: x + 5, y: y + 5};
}

/** @param {Slot<ScatterPanel>} slot @param {{index: number}} options */
export function itemKey(slot, {index}) {
  return headAt(slot.panel, index);
}

/** @param {Slot<ScatterPanel>} slot @param {string} key */
export function findItem(slot, key) {
  const index = slot.panel.names.indexOf(key);
  return index >= 0 && pointOf(plotOf(slot), slot.panel, index) ? {index} : null;
}

/** @param {Pen} pen @param {Slot<ScatterPanel>} slot @param {{index: number}} options @param {Theme} theme @param {boolean} strong */
export function outline(pen, slot, {index}, theme, strong) {
  const point = pointOf(plotOf(slot), slot.panel, index);
  if (!point) return;
  pen.circle(point[0], point[1], strong ? 6 : 5, {
    fill: adaptColour(colourOf(slot.panel, index), theme),
    line: {colour: theme.ink, width: 2},
  });
}

/** @param {Slot<ScatterPanel>} slot @param {{index: number}} options */
export function tooltipContent({panel}, {index}) {
  const group = panel.groups.length ? panel.categories[panel.groups[index]]?.label : "";
  return {
    name: panel.names[index] ?? `${index + 1}`,
    head: headAt(panel, index),
    value: panel.y_values[index],
    caption: panel.title,
    rows: [
      [panel.y.name || "y", formatNumber(panel.y_values[index])],
      [panel.x.name || "x", formatNumber(panel.x_values[index])],
      ...(group ? [["", group, colourOf(panel, index)]] : []),
    ],
  };
}

/** @param {ScatterPanel} panel @param {number} index */
function headAt(panel, index) {
  const name = panel.names[index] ?? "";
  return /^L\d+H\d+$/.test(name) ? name : null;
}

/** @param {Slot<ScatterPanel>} slot @param {"x_values" | "y_values"} [side] */
function order({panel}, side = "x_values") {
  const measured = (index) => panel.x_values[index] !== null && panel.y_values[index] !== null;
  const known = panel.x_values.map((_, index) => index).filter(measured);
  return known.sort((a, b) => Number(panel[side][a]) - Number(panel[side][b]) || a - b);
}

/** @param {ScatterPanel} panel @param {number} index */
function colourOf(panel, index) {
  return panel.categories[panel.groups.length ? panel.groups[index] : 0]?.colour ?? BLUE;
}

/** @param {ScatterPanel} scatterPanel */
function entries({categories}) {
  return categories.length < 2 ? [] : categories.filter((each) => each.label).map((each) => ({...each, sign: "dot"}));
}

/** @param {ScatterPanel} panel @param {"x" | "y"} side */
function valuesOf(panel, side) {
  return [...panel[`${side}_values`], ...panel.guides.filter((guide) => guide.axis === side).map((guide) => guide.at)];
}

/** @param {Plot<ScatterPanel>} plot @param {ScatterPanel} panel @param {number} index */
function pointOf(plot, panel, index) {
  const [x, y] = [panel.x_values[index], panel.y_values[index]];
  return x === null || y === null ? null : [plot.x(x), plot.y(y)];
}

/** @param {Slot<ScatterPanel>} slot @returns {Plot<ScatterPanel>} */
function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box, font} = slot;
    const [xRange, yRange] = /** @type {("x" | "y")[]} */ (["x", "y"]).map((side) => rangeOf(panel[side], valuesOf(panel, side)));
    slot.plot = {
      panel,
      box,
      font,
      xRange,
      yRange,
      x: projection(xRange, panel.x.log, box.x, box.width),
      y: projection(yRange, panel.y.log, box.y + box.height, -box.height),
      xTicks: ticksOf(panel.x, xRange, {doubling: true}),
      yTicks: ticksOf(panel.y, yRange),
    };
  }
  return slot.plot;
}

/**
 * Names towards the middle, from the highest point down, each at least a line below the one before.
 * @param {Pen} pen
 * @param {Plot<ScatterPanel>} plot
 * @param {Slot<ScatterPanel>} slot
 * @param {Theme} theme
 */
function paintNames(pen, plot, {panel, box, font}, theme) {
  const shown = panel.shown.map((index) => ({index, point: pointOf(plot, panel, index) ?? []})).filter(({point}) => point.length);
  shown.sort((a, b) => a.point[1] - b.point[1]);
  let free = box.y;
  for (const {
    index,
    point: [x, y],
  } of shown) {
    const name = panel.names[index] ?? "";
    const right = x + 8 + textWidth(name, SMALL_FONT - 1, font) > box.x + box.width || x > box.x + box.width / 2;
    free = Math.max(y, free);
    /** @type {TextStyle} */
    const style = {size: SMALL_FONT - 1, align: right ? "right" : "left", colour: theme.ink, background: `${theme.paper}cc`};
    pen.text(x + (right ? -6 : 6), free, name, style);
    free += SMALL_FONT;
  }
}
