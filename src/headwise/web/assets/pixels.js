// The pixels of tiles: unpacked once, made smaller by their largest values, and painted as one picture.
//
// A payload brings them deflated and in base64; the browser inflates them. 0 to 254 are levels of the scale, 255 is hidden
// by the mask. Where a tile has fewer dots than its map has rows, each dot shows the largest of what it stands for, so that
// a single bright pixel stays. Only the tiles in sight are made.

import {colourAt} from "headwise/scale";
import {parse} from "headwise/ink";

export const HIDDEN = 255;
const LEVELS = 255;

/** {tiles, rows, columns, bytes} of the payload's pixels. */
export async function unpack({shape, deflated}) {
  const packed = Uint8Array.from(atob(deflated), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const [tiles, rows, columns] = shape;
  return {tiles, rows, columns, bytes};
}

/** One tile in at most `side` rows and columns: {rows, columns, bytes}. */
export function pooled({rows, columns, bytes}, tile, side) {
  const [high, wide] = [Math.min(rows, side), Math.min(columns, side)];
  const from = tile * rows * columns;
  if (high === rows && wide === columns) return {rows, columns, bytes: bytes.subarray(from, from + rows * columns)};
  const small = new Uint8Array(high * wide);
  for (let row = 0; row < rows; row += 1) {
    const line = Math.min(Math.floor(((row + 1) * high - 1) / rows), high - 1) * wide;
    for (let column = 0; column < columns; column += 1) {
      const place = line + Math.min(Math.floor(((column + 1) * wide - 1) / columns), wide - 1);
      const raised = (bytes[from + row * columns + column] + 1) & 255; // hidden becomes 0: less than any level
      if (raised > small[place]) small[place] = raised;
    }
  }
  for (let place = 0; place < small.length; place += 1) small[place] = (small[place] - 1) & 255;
  return {rows: high, columns: wide, bytes: small};
}

/** The colours of all bytes, packed as a canvas keeps them. */
export function palette(scale, ink) {
  const colours = new Uint32Array(LEVELS + 2);
  for (let level = 0; level < LEVELS; level += 1) colours[level] = packedColour(colourAt(scale, level / (LEVELS - 1)));
  colours[HIDDEN] = packedColour(ink.panel);
  colours[HIDDEN + 1] = packedColour(ink.line); // strokes of the texture
  return colours;
}

/** Paint a tile into a picture (a Uint32Array of `width` dots a row), `side` dots wide, its corner at (left, top). */
export function stamp(picture, width, height, tile, left, top, side, colours) {
  const period = Math.max(4, Math.floor(side / 10));
  const [first, last] = [Math.max(0, -left), Math.min(side, width - left)];
  const {bytes} = tile;
  const across = stretch(tile.columns, side);
  const down = stretch(tile.rows, side);
  for (let y = Math.max(0, -top); y < Math.min(side, height - top); y += 1) {
    const line = down[y] * tile.columns;
    const start = (top + y) * width + left;
    for (let x = first; x < last; x += 1) {
      const level = bytes[line + across[x]];
      picture[start + x] = colours[level === HIDDEN && (x + y) % period === 0 ? HIDDEN + 1 : level];
    }
  }
}

/** Which of `size` pixels each of `side` dots shows. */
function stretch(size, side) {
  const key = size * 65536 + side;
  if (!stretches.has(key)) stretches.set(key, Int32Array.from({length: side}, (_, dot) => Math.floor((dot * size) / side)));
  return stretches.get(key);
}

const stretches = new Map();

export function packedColour(colour) {
  const [red, green, blue] = parse(colour);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
