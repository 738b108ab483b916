// Numeric axes of curves, scatter plots and intervals: range, projection, ticks, names and guide lines.
//
// An axis without a range covers its data plus five percent at both ends. The y axis of curves may have labels instead of ticks: they
// name the positions 0, 1, 2, ...

import {logTicks, roundTicks, tickText} from "headwise/numbers";
import {LINE_HEIGHT, NAME_FONT, SMALL_FONT, maxTextWidth, textWidth, truncate} from "headwise/text_metrics";

const TICK = 4;
const MARGIN = 0.05;
const MIN_RIGHT = 8;

/**
 * The range [low, high] of an axis over these numbers; null is missing.
 * @param {Axis} axis
 * @param {Numbers} values
 */
export function rangeOf(axis, values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && Number.isFinite(value) && (!axis.log || value > 0)));
  let low = known.length ? known.reduce((a, b) => Math.min(a, b)) : axis.log ? 0.1 : 0;
  let high = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
  if (low === high) [low, high] = axis.log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  if (axis.log) {
    const reach = (high / low) ** MARGIN;
    return [axis.low ?? low / reach, axis.high ?? high * reach];
  }
  const reach = (high - low) * MARGIN;
  return [axis.low ?? low - reach, axis.high ?? high + reach];
}

/**
 * The function from numbers to pixels along an axis.
 * @param {number[]} number
 * @param {boolean} log
 * @param {number} start
 * @param {number} length
 */
export function projection([low, high], log, start, length) {
  const of = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  return (value) => start + of(value) * length;
}

/**
 * The ticks of an axis as [value, text]; `counts` keeps whole numbers only.
 * @param {Axis} axis
 * @param {number[]} number
 * @param {{counts?: boolean, doubling?: boolean, positions?: number[] | null}} [options]
 * @returns {[number, string][]}
 */
export function ticksOf(axis, [low, high], {counts = false, doubling = false, positions = null} = {}) {
  if (axis.labels.length) return axis.labels.map((label, position) => [position, truncate(label)]);
  if (positions) return positions.map((position) => [position, tickText(position)]);
  const [minimum, maximum] = [Math.min(low, high), Math.max(low, high)];
  const found = axis.log ? logTicks(minimum, maximum, doubling && minimum >= 0.5) : roundTicks(minimum, maximum);
  return found.filter((position) => !counts || Number.isInteger(position)).map((position) => [position, tickText(position)]);
}

/** @param {Axis} axis @param {[number, string][]} ticks @param {string} font */
export function leftMargin(axis, ticks, font) {
  return (
    (axis.name ? NAME_FONT * LINE_HEIGHT + 4 : 0) +
    maxTextWidth(
      ticks.map(([, text]) => text),
      SMALL_FONT,
      font,
    ) +
    TICK +
    4
  );
}

/**
 * Room for the half of the last tick's text that stands beyond the end of the x axis.
 * @param {Axis} axis
 * @param {[number, string][]} ticks
 * @param {number[]} range
 * @param {string} font
 */
export function rightMargin(axis, ticks, range, font) {
  const end = projection(range, axis.log, 0, 1);
  const last = ticks.at(-1);
  const beyond = last && end(last[0]) > 0.95 ? textWidth(last[1], SMALL_FONT, font) / 2 + 1 : 0;
  return Math.max(MIN_RIGHT, beyond);
}

/** @param {Axis} axis */
export function bottomMargin(axis) {
  return TICK + 2 + SMALL_FONT * LINE_HEIGHT + (axis.name ? NAME_FONT * LINE_HEIGHT + 2 : 0);
}

/**
 * Axis lines at the left and below, ticks and axis names. `plot` is {panel, box, x, y, xTicks, yTicks}.
 * @param {Pen} pen
 * @param {Plot} plot
 * @param {Theme} theme
 */
export function paintAxes(pen, {panel, box, x, y, xTicks, yTicks, font, bare = false}, theme) {
  const bottom = box.y + box.height;
  pen.path(
    [
      [box.x - 0.5, box.y],
      [box.x - 0.5, bottom + 0.5],
      [box.x + box.width, bottom + 0.5],
    ],
    {colour: theme.inkSoft},
  );
  for (const [value, text] of fittingTicks(xTicks, x, font)) {
    pen.path(
      [
        [x(value), bottom + 1],
        [x(value), bottom + TICK],
      ],
      {colour: theme.inkSoft},
    );
    pen.text(x(value), bottom + TICK + 2, text, {size: SMALL_FONT, align: "center", baseline: "top", colour: theme.ink});
  }
  for (const [value, text] of yTicks) {
    if (!bare)
      pen.path(
        [
          [box.x - TICK, y(value)],
          [box.x - 1, y(value)],
        ],
        {colour: theme.inkSoft},
      );
    pen.text(box.x - TICK - 2, y(value), text, {size: SMALL_FONT, align: "right", colour: theme.ink});
  }
  if (panel.x.name) {
    const [x0, y0] = [box.x + box.width / 2, bottom + TICK + 3 + SMALL_FONT * LINE_HEIGHT];
    pen.text(x0, y0, panel.x.name, {size: NAME_FONT, align: "center", baseline: "top", colour: theme.inkSoft});
  }
  if (panel.y.name) {
    const left = box.x - leftMargin(panel.y, yTicks, font) + (NAME_FONT * LINE_HEIGHT) / 2;
    pen.text(left, box.y + box.height / 2, panel.y.name, {size: NAME_FONT, align: "center", rotate: -90, colour: theme.inkSoft});
  }
}

/**
 * Dashed guide lines behind the data: chance level, an elbow, x = y.
 * @param {Pen} pen
 * @param {Plot} plot
 * @param {Theme} theme
 */
export function paintGuides(pen, {panel, box, x, y, xRange, yRange}, theme) {
  const line = {colour: theme.trace, width: 1.2, dash: [4, 3]};
  const [right, bottom] = [box.x + box.width, box.y + box.height];
  for (const guide of panel.guides) {
    if (guide.axis === "x") {
      pen.path(
        [
          [x(guide.at), box.y],
          [x(guide.at), bottom],
        ],
        line,
      );
      if (guide.text) pen.text(x(guide.at) + 4, box.y + 1, guide.text, {size: SMALL_FONT, baseline: "top", colour: theme.inkSoft});
    } else if (guide.axis === "y") {
      pen.path(
        [
          [box.x, y(guide.at)],
          [right, y(guide.at)],
        ],
        line,
      );
      if (guide.text)
        pen.text(right, y(guide.at) - 3, guide.text, {size: SMALL_FONT, align: "right", baseline: "bottom", colour: theme.inkSoft});
    } else {
      const ends = [Math.max(Math.min(...xRange), Math.min(...yRange)), Math.min(Math.max(...xRange), Math.max(...yRange))];
      if (ends[0] < ends[1])
        pen.path(
          ends.map((end) => [x(end), y(end)]),
          line,
        );
    }
  }
}

/**
 * Ticks whose labels do not overlap: all, or every second, third, ...
 * @param {[number, string][]} ticks
 * @param {(value: number) => number} x
 * @param {string} font
 */
function fittingTicks(ticks, x, font) {
  for (let step = 1; step < ticks.length; step += 1) {
    const chosen = ticks.filter((_, index) => index % step === 0);
    const ends = chosen.map(([value, text]) => [x(value), textWidth(text, SMALL_FONT, font) / 2 + 3]);
    if (ends.every(([position, half], index) => !index || ends[index - 1][0] + ends[index - 1][1] <= position - half)) return chosen;
  }
  return ticks.slice(0, 1);
}
