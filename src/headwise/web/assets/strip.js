// One number of a head among all others, on a line: every head a thin stroke, this one in the accent colour.
//
// A thick line is the 95 % interval of this head's number, a small triangle what a head without the property would get. The
// line runs from the least to the largest value of any head (or of the interval, or the baseline).

import {el} from "headwise/element";
import {told} from "headwise/numbers";
import {colour, painted} from "headwise/theme";

const WIDTH = 240;
const HEIGHT = 22;
const SIDE = 5;

/** A canvas; `all` are the numbers of all heads, null where not measured. */
export function strip(value, all) {
  const known = all.filter((one) => one !== null);
  const ends = [value.value, value.low, value.high, value.baseline].filter((one) => one !== null);
  const low = [...known, ...ends].reduce((a, b) => Math.min(a, b));
  const high = [...known, ...ends].reduce((a, b) => Math.max(a, b));
  const at = (one) => SIDE + ((one - low) / (high - low || 1)) * (WIDTH - 2 * SIDE);
  const canvas = el("canvas", {width: 2 * WIDTH, height: 2 * HEIGHT, class: "strip", role: "img", "aria-label": said(value)});
  canvas.title = `all heads: ${told(low)} to ${told(high)}`;
  return painted(canvas, () => {
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    others(context, known.map(at));
    if (value.baseline !== null) triangle(context, at(value.baseline));
    own(context, value, at);
  });
}

/** The same in words. */
function said(value) {
  const place = value.percentile === null ? "" : `, more than ${told(Math.round(value.percentile * 10) / 10)} % of the heads`;
  return `${value.label} ${told(value.value)}${place}`;
}

function others(context, places) {
  context.strokeStyle = colour("ink-faint");
  context.globalAlpha = Math.max(0.06, Math.min(0.4, 60 / places.length));
  context.lineWidth = 1;
  context.beginPath();
  for (const x of places) {
    context.moveTo(x, 6);
    context.lineTo(x, 16);
  }
  for (const x of new Set(places.map((place) => Math.round(2 * place) / 2))) {
    context.moveTo(x, 8);
    context.lineTo(x, 14);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function triangle(context, x) {
  context.fillStyle = colour("ink-soft");
  context.beginPath();
  context.moveTo(x - 3.5, HEIGHT);
  context.lineTo(x + 3.5, HEIGHT);
  context.lineTo(x, HEIGHT - 5);
  context.fill();
}

function own(context, value, at) {
  context.strokeStyle = context.fillStyle = colour("accent");
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
