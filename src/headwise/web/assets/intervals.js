// A dot-and-interval plot: one row per name, a dot at the value and a line from the low to the high end of its interval.

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
import {tooltipLine} from "headwise/tooltip_text";

const BLUE = "#31688e";
const ROW = SMALL_FONT * LINE_HEIGHT + 5;

export function minWidth() {
  return 170;
}

export function maxWidth() {
  return 380;
}

/** @param {IntervalsPanel} panel */
export function heightOf(panel) {
  return Math.round(Math.max(panel.y.labels.length * ROW + 8, 60));
}

/** @param {IntervalsPanel} panel @param {any} _ @param {string} font */
export function leftMargin(panel, _, font) {
  return axisLeft(panel.y, ticksOf(panel.y, [0, 1]), font);
}

/** @param {IntervalsPanel} panel @param {any} _ @param {number} width @param {string} font */
export function bottomMargin(panel, _, width, font) {
  return axisFoot(panel.x) + entriesHeight(entries(panel), width, font) + 2;
}

/** @param {IntervalsPanel} panel @param {any} _scale @param {any} _bar @param {string} font */
export function rightMargin(panel, _scale, _bar, font) {
  const range = xRange(panel);
  return axisRight(panel.x, ticksOf(panel.x, range, {doubling: true}), range, font);
}

/** @param {Pen} pen @param {Slot<IntervalsPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel, box} = slot;
  const plot = plotOf(slot);
  paintGuides(pen, plot, theme);
  panel.values.forEach((value, index) => {
    const colour = adaptColour(colourOf(panel, index), theme);
    const y = plot.y(index);
    pen.withTitle(pen.hasTitles ? () => tooltipLine(tooltipContent(slot, {index})) : null, () => {
      if (panel.low[index] !== null && panel.high[index] !== null) {
        pen.path(
          [
            [plot.x(panel.low[index]), y],
            [plot.x(panel.high[index]), y],
          ],
          {colour, width: 2, alpha: 0.6},
        );
      }
      if (value !== null) pen.circle(plot.x(value), y, 4, {fill: colour});
    });
  });
  paintAxes(pen, plot, theme);
  paintEntries(pen, entries(panel), box.x, box.y + box.height + axisFoot(panel.x) + 4, box.width, theme, slot.font);
}

/** @param {Slot<IntervalsPanel>} slot @param {number} x @param {number} y */
export function itemAt({panel, box}, x, y) {
  const index = Math.floor(((y - box.y) / box.height) * panel.values.length);
  return x >= 0 && x <= box.x + box.width && index >= 0 && index < panel.values.length ? {index} : null;
}

export function firstItem() {
  return {index: 0};
}

/** @param {Slot<IntervalsPanel>} slot @param {{index: number}} options @param {number} across @param {number} down */
export function moveItem({panel}, {index}, across, down) {
  return {index: Math.min(Math.max(index + (down || across), 0), panel.values.length - 1)};
}

/** @param {Slot<IntervalsPanel>} slot @param {{index: number}} options */
export function tooltipAnchor(slot, {index}) {
  const plot = plotOf(slot);
  return {x: plot.x(slot.panel.values[index] ?? plot.xRange[0]) + 6, y: plot.y(index) + 6};
}

/** @param {Slot<IntervalsPanel>} slot @param {{index: number}} options */
export function itemKey({panel}, {index}) {
  return headAt(panel, index) ?? `row ${panel.y.labels[index]}`;
}

/** @param {Slot<IntervalsPanel>} slot @param {string} key */
export function findItem({panel}, key) {
  const index = panel.y.labels.indexOf(key.replace(/^row /, ""));
  return index >= 0 ? {index} : null;
}

/** @param {Pen} pen @param {Slot<IntervalsPanel>} slot @param {{index: number}} options @param {Theme} theme @param {boolean} strong */
export function outline(pen, slot, {index}, theme, strong) {
  const plot = plotOf(slot);
  const {panel, box} = slot;
  const half = box.height / panel.values.length / 2;
  pen.box(box.x + 1, plot.y(index) - half + 1, box.width - 2, 2 * half - 2, {colour: theme.trace});
  if (panel.values[index] !== null) {
    const fill = adaptColour(colourOf(panel, index), theme);
    pen.circle(plot.x(panel.values[index]), plot.y(index), strong ? 6 : 5, {fill, line: {colour: theme.ink, width: 2}});
  }
}

/** @param {Slot<IntervalsPanel>} slot @param {{index: number}} options */
export function tooltipContent({panel}, {index}) {
  const group = panel.groups.length ? panel.categories[panel.groups[index]]?.label : "";
  const [low, high] = [panel.low[index], panel.high[index]];
  return {
    name: panel.y.labels[index],
    head: headAt(panel, index),
    value: panel.values[index],
    caption: panel.title,
    rows: [
      [panel.x.name || "value", formatNumber(panel.values[index])],
      ...(low === null || high === null ? [] : [["interval", `${formatNumber(low)} to ${formatNumber(high)}`]]),
      ...(group ? [["", group, colourOf(panel, index)]] : []),
    ],
  };
}

/** @param {IntervalsPanel} panel @param {number} index */
function headAt(panel, index) {
  return /^L\d+H\d+$/.test(panel.y.labels[index]) ? panel.y.labels[index] : null;
}

/** @param {IntervalsPanel} panel @param {number} index */
function colourOf(panel, index) {
  return panel.categories[panel.groups.length ? panel.groups[index] : 0]?.colour ?? BLUE;
}

/** @param {IntervalsPanel} intervalsPanel */
function entries({categories}) {
  return categories.length < 2 ? [] : categories.filter((each) => each.label).map((each) => ({...each, sign: "square"}));
}

/** @param {IntervalsPanel} panel */
function xRange(panel) {
  const guides = panel.guides.filter((guide) => guide.axis === "x").map((guide) => guide.at);
  return rangeOf(panel.x, [...panel.values, ...panel.low, ...panel.high, ...guides]);
}

/** @param {Slot<IntervalsPanel>} slot @returns {Plot<IntervalsPanel>} */
function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box, font} = slot;
    const range = xRange(panel);
    const step = box.height / panel.values.length;
    const yRange = [panel.values.length - 0.5, -0.5];
    slot.plot = {
      panel,
      box,
      font,
      xRange: range,
      yRange,
      bare: true,
      x: projection(range, panel.x.log, box.x, box.width),
      y: (index) => box.y + (index + 0.5) * step,
      xTicks: ticksOf(panel.x, range, {doubling: true}),
      yTicks: ticksOf(panel.y, yRange),
    };
  }
  return slot.plot;
}
