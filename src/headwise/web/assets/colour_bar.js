// A colour bar: the colours of a scale, its ticks (with a plus where values are clipped), markers and label.

import {shareOf} from "headwise/colours";
import {formatNumber} from "headwise/numbers";
import {LINE_HEIGHT, SMALL_FONT, maxTextWidth, textWidth} from "headwise/text_metrics";

export const BAR_WIDTH = 10;
const GAP = 8;

/**
 * The space of a bar at the right of a map, label included.
 * @param {Scale} scale
 * @param {string} label
 * @param {string} font
 */
export function barMargin(scale, label, font) {
  return (
    GAP +
    BAR_WIDTH +
    5 +
    maxTextWidth(
      scale.ticks.map(([, text]) => text),
      SMALL_FONT,
      font,
    ) +
    (label ? SMALL_FONT * LINE_HEIGHT + 3 : 0) +
    2
  );
}

/**
 * The box of a map's bar.
 * @param {Box} box
 */
export function barBox(box) {
  return {x: box.x + box.width + GAP, y: box.y, width: BAR_WIDTH, height: box.height};
}

/**
 * The label of a panel's bar: that of the scale, unless the panel's title contains it.
 * @param {PanelBase} panel
 * @param {Scale} scale
 */
export function barLabel(panel, scale) {
  return `${panel.title} ${panel.subtitle}`.toLowerCase().includes(scale.label.toLowerCase()) ? "" : scale.label;
}

/** @param {Pen} pen @param {Box} bar @param {Scale} scale @param {string} label @param {Theme} theme @param {string} font */
export function paintBar(pen, bar, scale, label, theme, font) {
  const yOf = (value) => bar.y + (1 - shareOf(scale, value)) * bar.height;
  const right = bar.x + bar.width;
  pen.gradient(bar.x, bar.y, bar.width, bar.height, scale.stops);
  pen.box(bar.x - 0.5, bar.y - 0.5, bar.width + 1, bar.height + 1, {colour: theme.inkSoft, alpha: 0.6});
  for (const [value, text] of scale.ticks) {
    pen.path(
      [
        [right + 1, yOf(value)],
        [right + 4, yOf(value)],
      ],
      {colour: theme.inkSoft},
    );
    pen.text(right + 6, yOf(value), text, {size: SMALL_FONT, colour: theme.ink});
  }
  for (const mark of scale.marks) {
    if (mark.value >= scale.low && mark.value <= scale.high) paintPointer(pen, bar, yOf(mark.value), mark, theme);
  }
  if (label) {
    const x =
      right +
      6 +
      maxTextWidth(
        scale.ticks.map(([, text]) => text),
        SMALL_FONT,
        font,
      ) +
      (SMALL_FONT * LINE_HEIGHT) / 2 +
      2;
    const size = Math.min(SMALL_FONT, (SMALL_FONT * (bar.height + 24)) / Math.max(textWidth(label, SMALL_FONT, font), 1));
    pen.text(x, bar.y + bar.height / 2, label, {size, align: "center", rotate: -90, colour: theme.inkSoft});
  }
}

/**
 * A line across the bar at the value of the selected cell.
 * @param {Pen} pen
 * @param {Box} bar
 * @param {Scale} scale
 * @param {number} value
 * @param {Theme} theme
 */
export function markValueOnBar(pen, bar, scale, value, theme) {
  const y = bar.y + (1 - Math.min(Math.max(shareOf(scale, value), 0), 1)) * bar.height;
  pen.path(
    [
      [bar.x - 3, y],
      [bar.x + bar.width + 3, y],
    ],
    {colour: theme.paper, width: 4},
  );
  pen.path(
    [
      [bar.x - 4, y],
      [bar.x + bar.width + 4, y],
    ],
    {colour: theme.ink, width: 2},
  );
}

/**
 * The markers of a scale with their values.
 * @param {Scale} scale
 */
export function describeMarks(scale) {
  return scale.marks.map(({label, value}) => `${label}: ${formatNumber(value)}`).join("; ");
}

/**
 * The hint at a point: the markers where it is on the bar, else empty.
 * @param {Slot} slot
 * @param {number} x
 * @param {number} y
 */
export function barHint(slot, x, y) {
  const {bar, scale} = slot;
  const on = bar && x >= bar.x - 8 && x <= bar.x + bar.width + 4 && y >= bar.y - 6 && y <= bar.y + bar.height + 6;
  return on ? describeMarks(scale) : "";
}

/**
 * A scale in words.
 * @param {Scale} scale
 */
export function describeScale(scale) {
  const [first, last] = [scale.ticks[0][1], scale.ticks[scale.ticks.length - 1][1]];
  return [`${scale.label || "Colours"} from ${first} to ${last}`, describeMarks(scale)].filter(Boolean).join("; ");
}

/** @param {Pen} pen @param {Box} bar @param {number} y @param {{label: string}} mark @param {Theme} theme */
function paintPointer(pen, bar, y, mark, theme) {
  pen.withTitle(mark.label, () => {
    pen.path(
      [
        [bar.x, y],
        [bar.x + bar.width, y],
      ],
      {colour: "#ffffff", width: 1.4},
    );
    pen.area(
      [
        [bar.x - 6, y - 3.5],
        [bar.x - 0.5, y],
        [bar.x - 6, y + 3.5],
      ],
      theme.ink,
    );
  });
}
