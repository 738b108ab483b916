// Pixels of tiles: decompressed once, max-pooled, and painted as one image.
//
// A payload has them as deflate + base64. 0 to 254 are levels of the scale, 255 is masked. Where a tile has fewer pixels than its map
// has rows, each pixel is the maximum of its rectangle, so that a single bright cell stays visible. Only visible tiles are painted.

import {colourAt, parseHex} from "headwise/colours";

export const HIDDEN = 255;
const LEVELS = 255;

/**
 * Decompress zlib + base64, as written by Python's payload.py and report.py.
 * @param {string} text
 */
export async function inflate(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * {tiles, rows, columns, bytes} of the payload's pixels.
 * @param {PackedBytes} packedBytes
 */
export async function unpackTiles({shape, deflated}) {
  const [tiles, rows, columns] = shape;
  return {tiles, rows, columns, bytes: await inflate(deflated)};
}

/**
 * One tile in at most `side` rows and columns: {rows, columns, bytes}.
 * @param {TilePixels} tilePixels
 * @param {number} tile
 * @param {number} side
 */
export function maxPool({rows, columns, bytes}, tile, side) {
  const [high, wide] = [Math.min(rows, side), Math.min(columns, side)];
  const from = tile * rows * columns;
  if (high === rows && wide === columns) return {rows, columns, bytes: bytes.subarray(from, from + rows * columns)};
  const small = new Uint8Array(high * wide);
  for (let row = 0; row < rows; row += 1) {
    const line = Math.min(Math.floor(((row + 1) * high - 1) / rows), high - 1) * wide;
    for (let column = 0; column < columns; column += 1) {
      const index = line + Math.min(Math.floor(((column + 1) * wide - 1) / columns), wide - 1);
      const raised = (bytes[from + row * columns + column] + 1) & 255; // masked becomes 0: less than any level
      if (raised > small[index]) small[index] = raised;
    }
  }
  for (let index = 0; index < small.length; index += 1) small[index] = (small[index] - 1) & 255;
  return {rows: high, columns: wide, bytes: small};
}

/**
 * The colours of all levels, packed as in a canvas.
 * @param {Scale} scale
 * @param {Theme} theme
 */
export function colourTable(scale, theme) {
  const colours = new Uint32Array(LEVELS + 2);
  for (let level = 0; level < LEVELS; level += 1) colours[level] = packedColour(colourAt(scale, level / (LEVELS - 1)));
  colours[HIDDEN] = packedColour(theme.panel);
  colours[HIDDEN + 1] = packedColour(theme.line); // hatching
  return colours;
}

/**
 * Paint a tile into an image (a Uint32Array with `width` pixels per row), `side` pixels wide, its corner at (left, top).
 * @param {Uint32Array} picture
 * @param {number} width
 * @param {number} height
 * @param {TilePixels} tile
 * @param {number} left
 * @param {number} top
 * @param {number} side
 * @param {Uint32Array} colours
 */
export function paintTile(picture, width, height, tile, left, top, side, colours) {
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

/**
 * The source index (of `size`) for each of `side` pixels.
 * @param {number} size
 * @param {number} side
 */
function stretch(size, side) {
  const key = size * 65536 + side;
  if (!stretches.has(key))
    stretches.set(
      key,
      Int32Array.from({length: side}, (_, dot) => Math.floor((dot * size) / side)),
    );
  return stretches.get(key);
}

const stretches = new Map();

/** @param {string} colour */
export function packedColour(colour) {
  const [red, green, blue] = parseHex(colour);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
