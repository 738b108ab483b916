// The visible window of a large map, in tokens, and painting it.
//
// A view is {rows: [first, end], columns: [first, end]}; it never leaves the map and has at least MIN_TOKENS tokens per side. Weights are
// coloured from 0 to 1, by their square root, or relative to the largest visible one; masked cells stay transparent. Token labels are as
// dense as readable, those of the answer in the accent colour. This module handles no events.

import {colourAt, parseHex} from "headwise/colours";
import {visibleToken} from "headwise/head_attention";

const MIN_TOKENS = 6;

/**
 * The whole map of so many tokens.
 * @param {number} tokens
 */
export function wholeView(tokens) {
  return {rows: [0, tokens], columns: [0, tokens]};
}

/**
 * Zoom in (factor under 1) or out, around a point given as shares of the view.
 * @param {View} view
 * @param {number} factor
 * @param {number} tokens
 * @param {number[]} [options]
 */
export function zoomView(view, factor, tokens, [x, y] = [0.5, 0.5]) {
  return {rows: zoomSpan(view.rows, factor, y, tokens), columns: zoomSpan(view.columns, factor, x, tokens)};
}

/**
 * Move by shares of the view.
 * @param {View} view
 * @param {number} across
 * @param {number} down
 * @param {number} tokens
 */
export function moveView(view, across, down, tokens) {
  return {rows: moveSpan(view.rows, down, tokens), columns: moveSpan(view.columns, across, tokens)};
}

/**
 * The part of a view between two corners, in shares of it.
 * @param {View} view
 * @param {number[]} number
 * @param {number[]} number2
 * @param {number} tokens
 */
export function cropView(view, [x0, y0], [x1, y1], tokens) {
  /** @type {(span: Span, from: number, to: number) => Span} */
  const part = ([first, last], from, to) => {
    const span = last - first;
    return clampSpan(first + Math.floor(Math.min(from, to) * span), first + Math.ceil(Math.max(from, to) * span), tokens);
  };
  return {rows: part(view.rows, y0, y1), columns: part(view.columns, x0, x1)};
}

/**
 * Whether two views are the same.
 * @param {View} one
 * @param {View} other
 */
export function sameView(one, other) {
  return ["rows", "columns"].every((side) => one[side][0] === other[side][0] && one[side][1] === other[side][1]);
}

/**
 * Which tokens get a label: every n-th, so that labels are at least `room` pixels apart.
 * @param {Span} span
 * @param {number} pixels
 * @param {number} room
 */
export function labelledTokens([first, last], pixels, room) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((one) => (pixels / (last - first)) * one >= room) ?? 2000;
  const indices = [];
  for (let index = Math.ceil(first / step) * step; index < last; index += step) indices.push(index);
  return indices;
}

/** @param {Span} span @param {number} factor @param {number} share @param {number} tokens */
function zoomSpan([first, last], factor, share, tokens) {
  const span = last - first;
  const length = Math.max(Math.min(MIN_TOKENS, tokens), Math.round(span * factor));
  const start = Math.round(first + share * (span - length));
  return clampSpan(start, start + length, tokens);
}

/** @param {Span} span @param {number} share @param {number} tokens */
function moveSpan([first, last], share, tokens) {
  const step = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * (last - first)));
  const start = Math.min(Math.max(first + (share ? step : 0), 0), tokens - (last - first));
  return [start, start + last - first];
}

/**
 * A span of at least MIN_TOKENS tokens inside the map.
 * @param {number} first
 * @param {number} last
 * @param {number} tokens
 */
function clampSpan(first, last, tokens) {
  const length = Math.min(Math.max(last - first, MIN_TOKENS), tokens);
  const start = Math.min(Math.max(first, 0), tokens - length);
  return [start, start + length];
}

export const LEFT = 104; // pixels for the query tokens
export const TOP = 92; // pixels for the key tokens
const FONT = 11;
const LABEL_SPACING = 13; // pixels between two labels
const MAX_LABEL_LENGTH = 13; // characters

/** Colourings of weights: a label, and the share of the scale for a weight, given the largest visible one. */
/** @type {Record<string, [string, (weight: number, maximum: number) => number]>} */
export const COLOURINGS = {
  plain: ["from 0 to 1", (weight) => weight],
  root: ["by the square root", (weight) => Math.sqrt(weight)],
  sight: ["relative to the largest visible", (weight, maximum) => weight / maximum],
};

/**
 * The largest weight of a window.
 * @param {{values: Float32Array}} options
 */
export function maxWeight({values}) {
  let maximum = 0;
  for (const weight of values) if (weight > maximum) maximum = weight; // NaN is never larger
  return maximum;
}

/**
 * The weights of a window as a canvas, one pixel per cell.
 * @param {{high: number, wide: number, values: Float32Array}} options
 * @param {Scale} scale
 * @param {string} colouring
 */
export function weightImage({high, wide, values}, scale, colouring) {
  const canvas = new OffscreenCanvas(wide, high);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(wide, high);
  const dots = new Uint32Array(image.data.buffer);
  const colours = Uint32Array.from({length: 256}, (_, level) => {
    const [red, green, blue] = parseHex(colourAt(scale, level / 255));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
  const share = COLOURINGS[colouring][1];
  const maximum = maxWeight({values}) || 1;
  for (let index = 0; index < values.length; index += 1) {
    if (!Number.isNaN(values[index])) dots[index] = colours[Math.min(255, Math.round(share(values[index], maximum) * 255))];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * The tokens of the visible window, at the left and above.
 * @param {CanvasRenderingContext2D} context
 * @param {Theme} theme
 * @param {{run: RunResult, side: number, view: View}} options
 */
export function paintLabels(context, theme, {run, side, view}) {
  context.font = `${FONT}px ${theme.font}`;
  context.textBaseline = "middle";
  const colour = (index) => (run.tokens[index].generated ? theme.accent : theme.inkSoft);
  /** @type {(index: number, span: Span) => number} */
  const middle = (index, [first, last]) => ((index - first + 0.5) * side) / (last - first);
  context.textAlign = "right";
  for (const index of labelledTokens(view.rows, side, LABEL_SPACING)) {
    context.fillStyle = colour(index);
    context.fillText(shortToken(run.tokens[index].text), LEFT - 6, TOP + middle(index, view.rows));
  }
  context.textAlign = "left";
  for (const index of labelledTokens(view.columns, side, LABEL_SPACING)) {
    context.save();
    context.fillStyle = colour(index);
    context.translate(LEFT + middle(index, view.columns), TOP - 6);
    context.rotate(-Math.PI / 2);
    context.fillText(shortToken(run.tokens[index].text), 0, 0);
    context.restore();
  }
}

/** @param {string} token */
function shortToken(token) {
  const text = visibleToken(token);
  return text.length > MAX_LABEL_LENGTH ? `${text.slice(0, MAX_LABEL_LENGTH - 1)}…` : text;
}
