// A small picture of a map, beside its words on the opening page. Decoration: the words say what it shows.

import {el} from "headwise/element";
import {parse} from "headwise/ink";
import {colourAt} from "headwise/scale";
import {colour, painted} from "headwise/theme";

const HIDDEN = 255;

/** An element; null where there is no picture. */
export function miniature(small) {
  if (!small) return null;
  const drawer = {maps, categories, tiles, intervals: lines, curves: lines, points: lines}[small.kind];
  return drawer ? drawer(small) : null;
}

function maps(small) {
  return el("span", {class: "miniatures"}, small.maps.map(({levels, scale}) =>
    cells(levels[0].length, levels.length, (x, y) => levelColour(levels[y][x], scale))));
}

function categories(small) {
  const rows = small.indices;
  return cells(rows[0].length, rows.length, (x, y) => (rows[y][x] < 0 ? null : parse(small.colours[rows[y][x]])));
}

function tiles(small) {
  const side = small.levels[0].length;
  const columns = Math.ceil(Math.sqrt(small.levels.length * 1.5));
  const rows = Math.ceil(small.levels.length / columns);
  const step = side + Math.max(1, Math.round(side / 8));
  return cells(columns * step, rows * step, (x, y) => {
    const tile = small.levels[Math.floor(y / step) * columns + Math.floor(x / step)];
    const level = tile?.[y % step]?.[x % step];
    return level === undefined || level === HIDDEN ? null : levelColour(level, small.scale);
  });
}

function cells(width, height, colourOf) {
  const canvas = el("canvas", {width, height, class: "miniature"});
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const found = colourOf(x, y);
      if (found) image.data.set([...found, 255], 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function levelColour(level, scale) {
  return level === HIDDEN ? null : parse(colourAt(scale, level / 254));
}

const WIDTH = 160;
const HEIGHT = 120;

/** Curves, intervals and points as thin lines without axes. */
function lines(small) {
  const canvas = el("canvas", {width: 2 * WIDTH, height: 2 * HEIGHT, class: "miniature miniature-lines"});
  return painted(canvas, () => {
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    ({intervals: bars, curves, points})[small.kind](context, small, colour("ink-soft"));
  });
}

function bars(context, {rows, colours}, ink) {
  const known = rows.flat().filter((one) => one !== null);
  const at = scaled(known, 6, WIDTH - 6);
  rows.forEach(([value, low, high], place) => {
    if (value === null) return;
    const y = ((place + 0.5) / rows.length) * HEIGHT;
    context.strokeStyle = context.fillStyle = colours[place] ?? ink;
    context.lineWidth = 1.5;
    stroke(context, [[at(low ?? value), y], [at(high ?? value), y]]);
    context.beginPath();
    context.arc(at(value), y, 2.2, 0, 7);
    context.fill();
  });
}

function curves(context, {curves: all, log}, ink) {
  const shown = all.map((one) => ({...one, x: one.x.map((x) => (log && x !== null ? Math.log(Math.max(x, 1e-12)) : x))}));
  const x = scaled(shown.flatMap((one) => one.x), 4, WIDTH - 4);
  const y = scaled(shown.flatMap((one) => one.y), HEIGHT - 6, 6);
  for (const one of shown) {
    context.strokeStyle = one.colour ?? ink;
    context.lineWidth = 1.6;
    context.setLineDash(one.dashed ? [4, 3] : []);
    stroke(context, one.x.map((value, place) => [value, one.y[place]]).filter(([a, b]) => a !== null && b !== null).map(([a, b]) => [x(a), y(b)]));
  }
  context.setLineDash([]);
}

function points(context, small, ink) {
  const x = scaled(small.x, 4, WIDTH - 4);
  const y = scaled(small.y, HEIGHT - 4, 4);
  context.fillStyle = ink;
  small.x.forEach((value, place) => value !== null && small.y[place] !== null && context.fillRect(x(value) - 1, y(small.y[place]) - 1, 2, 2));
}

function scaled(values, from, to) {
  const known = values.filter((one) => one !== null && Number.isFinite(one));
  const low = known.length ? known.reduce((a, b) => Math.min(a, b)) : 0;
  const high = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function stroke(context, path) {
  context.beginPath();
  path.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
