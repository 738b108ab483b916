// A rug plot: one number of a head among all heads, every head a thin stroke, this one in the accent colour.
//
// A thick line is the 95 % confidence interval, a small triangle the baseline. The axis runs from the smallest to the largest value of
// all heads (or of the interval, or the baseline).

import {context2d, el} from "headwise/dom";
import {formatNumber} from "headwise/numbers";
import {cssColour, paintOnThemeChange} from "headwise/theme";

const WIDTH = 240;
const HEIGHT = 22;
const MARGIN = 5;

/**
 * A canvas; `all` are the numbers of all heads, null where missing.
 * @param {HeadValue} value
 * @param {Numbers} all
 */
export function rugPlot(value, all) {
  const known = all.filter((one) => one !== null);
  const ends = [value.value, value.low, value.high, value.baseline].filter((one) => one !== null);
  const low = [...known, ...ends].reduce((a, b) => Math.min(a, b));
  const high = [...known, ...ends].reduce((a, b) => Math.max(a, b));
  const at = (one) => MARGIN + ((one - low) / (high - low || 1)) * (WIDTH - 2 * MARGIN);
  const canvas = el("canvas", {width: 2 * WIDTH, height: 2 * HEIGHT, class: "rug-plot", role: "img", "aria-label": describeValue(value)});
  canvas.title = `all heads: ${formatNumber(low)} to ${formatNumber(high)}`;
  return paintOnThemeChange(canvas, () => {
    const context = context2d(canvas);
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    paintAll(context, known.map(at));
    if (value.baseline !== null) paintBaseline(context, at(value.baseline));
    paintOwn(context, value, at);
  });
}

/**
 * The same in words.
 * @param {HeadValue} value
 */
function describeValue(value) {
  const position = value.percentile === null ? "" : `, larger than ${formatNumber(Math.round(value.percentile * 10) / 10)} % of the heads`;
  return `${value.label} ${formatNumber(value.value)}${position}`;
}

/** @param {CanvasRenderingContext2D} context @param {number[]} positions */
function paintAll(context, positions) {
  context.strokeStyle = cssColour("ink-faint");
  context.globalAlpha = Math.max(0.06, Math.min(0.4, 60 / positions.length));
  context.lineWidth = 1;
  context.beginPath();
  for (const x of positions) {
    context.moveTo(x, 6);
    context.lineTo(x, 16);
  }
  for (const x of new Set(positions.map((position) => Math.round(2 * position) / 2))) {
    context.moveTo(x, 8);
    context.lineTo(x, 14);
  }
  context.stroke();
  context.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} context @param {number} x */
function paintBaseline(context, x) {
  context.fillStyle = cssColour("ink-soft");
  context.beginPath();
  context.moveTo(x - 3.5, HEIGHT);
  context.lineTo(x + 3.5, HEIGHT);
  context.lineTo(x, HEIGHT - 5);
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {HeadValue} value @param {(value: number) => number} at */
function paintOwn(context, value, at) {
  context.strokeStyle = context.fillStyle = cssColour("accent");
  if (value.low !== null && value.high !== null) {
    context.lineWidth = 3;
    context.globalAlpha = 0.45;
    context.beginPath();
    context.moveTo(at(value.low), 11);
    context.lineTo(at(value.high), 11);
    context.stroke();
    context.globalAlpha = 1;
  }
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(at(value.value), 2);
  context.lineTo(at(value.value), 19);
  context.stroke();
}
