// Many small maps in one panel: a grid with one image per head, each with its name.
//
// At first all tiles fit the panel's width; in a narrow window, where they would be specks, they are enlarged at once. When enlarged, the panel scrolls in both directions, its labels stay in place, and only
// visible tiles are painted, so that 5,120 maps cost no more than a screenful of pixels. A large enough tile shows its name in the
// corner that a causal map leaves empty.

import {context2d} from "headwise/dom";
import {barLabel, barMargin, paintBar} from "headwise/colour_bar";
import {textureTheme} from "headwise/colours";
import {formatNumber, thinned} from "headwise/numbers";
import {colourTable, maxPool, packedColour, paintTile, unpackTiles} from "headwise/pixels";
import {LINE_HEIGHT, NAME_FONT, SMALL_FONT, maxTextWidth, textWidth} from "headwise/text_metrics";

const MAX_TILE_SIDE = 128;
const GAP = 0.05; // of a tile
const MIN_NAME_FONT = 8.5;
export {barHint as hint} from "headwise/colour_bar";
export const ZOOMS = [1, 1.5, 2, 3, 4, 6, 8, 12];

const NARROW = 420; // pixels of a phone, in which tiles below READABLE are enlarged
const READABLE = 20;

export function minWidth() {
  return 200;
}

/**
 * The zoom at which a panel is first shown.
 * @param {TilesPanel} panel
 * @param {number} width
 */
export function startZoom(panel, width) {
  const side = width / panel.columns;
  return width > NARROW ? 1 : (ZOOMS.find((zoom) => zoom * side >= READABLE) ?? 1);
}

/** @param {TilesPanel} panel */
export function maxWidth(panel) {
  return Math.max(panel.columns * MAX_TILE_SIDE, 380);
}

/** @param {TilesPanel} panel @param {number} room */
export function snappedWidth(panel, room) {
  return Math.max(Math.floor(Math.min(room / panel.columns, MAX_TILE_SIDE)), 1) * panel.columns;
}

/**
 * The height of all tiles, or of a scrolling window.
 * @param {TilesPanel} panel
 * @param {number} width
 * @param {number} tallest
 */
export function heightOf(panel, width, tallest) {
  return Math.min((width / panel.columns) * startZoom(panel, width) * rowsOf(panel), tallest);
}

/** @param {TilesPanel} panel @param {any} _ @param {string} font */
export function leftMargin(panel, _, font) {
  return panel.row_labels.length ? NAME_FONT * LINE_HEIGHT + maxTextWidth(panel.row_labels, SMALL_FONT, font) + 8 : 2;
}

/** @param {TilesPanel} panel */
export function bottomMargin(panel) {
  return panel.column_labels.length ? SMALL_FONT * LINE_HEIGHT + NAME_FONT * LINE_HEIGHT + 8 : 4;
}

/** @param {TilesPanel} panel @param {Scale} scale @param {boolean} hasBar @param {string} font */
export function rightMargin(panel, scale, hasBar, font) {
  return hasBar ? barMargin(scale, barLabel(panel, scale), font) : 4;
}

/**
 * Decompress the pixels before a panel can be painted.
 * @param {TilesPanel} panel
 */
export async function prepare(panel) {
  unpacked.set(panel, unpacked.get(panel) ?? (await unpackTiles(panel.levels)));
}

const unpacked = new WeakMap();

/**
 * The size of all tiles together, in pixels, at the slot's zoom.
 * @param {Slot<TilesPanel>} slot
 */
export function contentSize(slot) {
  const {panel} = slot;
  const side = sideOf(slot);
  return {width: side * panel.columns, height: side * rowsOf(panel)};
}

/** @param {Pen} pen @param {Slot<TilesPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel, scale, box} = slot;
  const pixels = unpacked.get(panel);
  if (pixels) pen.image(box.x, box.y, box.width, box.height, (ratio) => visibleImage(slot, pixels, theme, ratio));
  if (pixels) pen.clip(box, () => paintNames(pen, slot, theme));
  paintLabels(pen, slot, theme);
  if (slot.bar) paintBar(pen, {...slot.bar, height: Math.min(slot.bar.height, 320)}, scale, barLabel(panel, scale), theme, slot.font);
}

/** @param {Slot<TilesPanel>} slot @param {number} x @param {number} y */
export function itemAt(slot, x, y) {
  const {panel, box} = slot;
  if (x < box.x || x >= box.x + box.width || y < box.y || y >= box.y + box.height) return null;
  const side = sideOf(slot);
  const [inX, inY] = [x - box.x + scrollOf(slot).x, y - box.y + scrollOf(slot).y];
  const [column, row] = [Math.floor(inX / side), Math.floor(inY / side)];
  const tile = row * panel.columns + column;
  if (column >= panel.columns || tile >= panel.names.length) return null;
  return {tile, inside: [inX / side - column, inY / side - row]};
}

export function firstItem() {
  return {tile: 0};
}

/** @param {Slot<TilesPanel>} slot @param {TileItem} tileItem @param {number} across @param {number} down */
export function moveItem(slot, {tile}, across, down) {
  const {columns, names} = slot.panel;
  const column = Math.min(Math.max((tile % columns) + across, 0), columns - 1);
  const row = Math.min(Math.max(Math.floor(tile / columns) + down, 0), rowsOf(slot.panel) - 1);
  return {tile: Math.min(row * columns + column, names.length - 1)};
}

/** @param {Slot<TilesPanel>} slot @param {TileItem} tileItem */
export function tooltipAnchor(slot, {tile}) {
  const {x, y, width, height} = tileBox(slot, tile);
  return {x: x + width, y: y + height};
}

/**
 * The scroll position at which a tile is visible.
 * @param {Slot<TilesPanel>} slot
 * @param {TileItem} tileItem
 */
export function scrollTo(slot, {tile}) {
  const {box} = slot;
  const {x, y} = scrollOf(slot);
  const own = tileBox(slot, tile);
  const [left, top] = [own.x - box.x + x, own.y - box.y + y];
  return {
    x: Math.min(Math.max(x, left + own.width - box.width), left),
    y: Math.min(Math.max(y, top + own.height - box.height), top),
  };
}

/** @param {Slot<TilesPanel>} slot @param {TileItem} tileItem */
export function itemKey({panel}, {tile}) {
  return panel.names[tile];
}

/** @param {Slot<TilesPanel>} slot @param {string} key */
export function findItem({panel}, key) {
  const tile = panel.names.indexOf(key);
  return tile >= 0 ? {tile} : null;
}

/** @param {Pen} pen @param {Slot<TilesPanel>} slot @param {TileItem} tileItem @param {Theme} theme @param {boolean} strong */
export function outline(pen, slot, {tile}, theme, strong) {
  const {x, y, width, height} = tileBox(slot, tile);
  pen.clip(slot.box, () => pen.box(x, y, width - 1, height - 1, {colour: strong ? theme.accent : theme.ink, width: strong ? 3 : 2}));
}

/** @param {Slot<TilesPanel>} slot @param {TileItem} tileItem */
export function tooltipContent(slot, {tile, inside}) {
  const {panel, scale} = slot;
  const name = panel.names[tile];
  const row = inside ? pixelRow(unpacked.get(panel), panel, scale, tile, inside) : null;
  return {name, head: /^L\d+H\d+$/.test(name) ? name : null, value: null, caption: panel.title, rows: row ? [row] : []};
}

/**
 * The weight below the pointer, as a tooltip row.
 * @param {TilePixels | undefined} pixels
 * @param {TilesPanel} panel
 * @param {Scale} scale
 * @param {number} tile
 * @param {number[]} number
 */
function pixelRow(pixels, panel, scale, tile, [x, y]) {
  if (!pixels) return null;
  const [row, column] = [Math.floor((y / (1 - GAP)) * pixels.rows), Math.floor((x / (1 - GAP)) * pixels.columns)];
  if (row >= pixels.rows || column >= pixels.columns) return null;
  const level = pixels.bytes[(tile * pixels.rows + row) * pixels.columns + column];
  const value = level === 255 ? panel.missing : `about ${formatNumber(scale.low + (level / 254) * (scale.high - scale.low))}`;
  return [`${scale.label || "value"}, cell row ${row}, column ${column}`, value];
}

/** @param {TilesPanel} panel */
function rowsOf(panel) {
  return Math.ceil(panel.names.length / panel.columns);
}

/** @param {Slot<TilesPanel>} slot */
function sideOf(slot) {
  return (slot.box.width / slot.panel.columns) * (slot.zoom ?? 1);
}

/** @param {Slot<TilesPanel>} slot */
function scrollOf(slot) {
  return slot.scroll ?? {x: 0, y: 0};
}

/** @param {Slot<TilesPanel>} slot @param {number} tile */
function tileBox(slot, tile) {
  const side = sideOf(slot);
  const {box, panel} = slot;
  const size = side * (1 - GAP);
  return {
    x: box.x + (tile % panel.columns) * side - scrollOf(slot).x,
    y: box.y + Math.floor(tile / panel.columns) * side - scrollOf(slot).y,
    width: size,
    height: size,
  };
}

/**
 * The visible rows and columns.
 * @param {Slot<TilesPanel>} slot
 */
function visibleRange(slot) {
  const side = sideOf(slot);
  const {x, y} = scrollOf(slot);
  const {panel, box} = slot;
  return {
    firstRow: Math.floor(y / side),
    lastRow: Math.min(Math.ceil((y + box.height) / side), rowsOf(panel)) - 1,
    firstColumn: Math.floor(x / side),
    lastColumn: Math.min(Math.ceil((x + box.width) / side), panel.columns) - 1,
  };
}

/** @param {Slot<TilesPanel>} slot @param {(tile: number) => void} draw */
function forEachVisible(slot, draw) {
  const {firstRow, lastRow, firstColumn, lastColumn} = visibleRange(slot);
  for (let row = firstRow; row <= lastRow; row += 1) {
    for (let column = firstColumn; column <= lastColumn; column += 1) {
      const tile = row * slot.panel.columns + column;
      if (tile < slot.panel.names.length) draw(tile);
    }
  }
}

/**
 * The visible tiles as a canvas of device pixels.
 * @param {Slot<TilesPanel>} slot
 * @param {TilePixels} pixels
 * @param {Theme} theme
 * @param {number} ratio
 */
function visibleImage(slot, pixels, theme, ratio) {
  const {box, scale} = slot;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const context = context2d(canvas);
  const image = context.createImageData(canvas.width, canvas.height);
  const picture = new Uint32Array(image.data.buffer);
  picture.fill(packedColour(theme.paper));
  const colours = colourTable(scale, textureTheme(scale, theme));
  const side = Math.max(Math.floor(sideOf(slot) * (1 - GAP) * ratio), 1);
  const pooledByTile = pooledTiles(slot, side);
  forEachVisible(slot, (tile) => {
    if (!pooledByTile.has(tile)) pooledByTile.set(tile, maxPool(pixels, tile, side));
    const {x, y} = tileBox(slot, tile);
    const [left, top] = [Math.round((x - box.x) * ratio), Math.round((y - box.y) * ratio)];
    paintTile(picture, canvas.width, canvas.height, /** @type {TilePixels} */ (pooledByTile.get(tile)), left, top, side, colours);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * Pooled tiles, cached for the current size.
 * @param {Slot<TilesPanel>} slot
 * @param {number} side
 * @returns {Map<number, TilePixels>}
 */
function pooledTiles(slot, side) {
  if (slot.pooledSide !== side) Object.assign(slot, {pooledSide: side, pooled: new Map()});
  return /** @type {Map<number, TilePixels>} */ (slot.pooled);
}

/** @param {Pen} pen @param {Slot<TilesPanel>} slot @param {Theme} theme */
function paintNames(pen, slot, theme) {
  const {panel, font} = slot;
  const longest = panel.names.reduce((most, name) => Math.max(most, textWidth(name, 10, font) / 10), 0);
  const size = Math.min(SMALL_FONT, (0.7 * sideOf(slot)) / longest);
  const on = textureTheme(slot.scale, theme);
  forEachVisible(slot, (tile) => {
    const {x, y, width, height} = tileBox(slot, tile);
    if (sideOf(slot) > 18) pen.box(x + 0.5, y + 0.5, width - 1, height - 1, {colour: theme.trace});
    /** @type {TextStyle} */
    const style = {size, align: "right", baseline: "top", colour: on.ink, background: `${on.paper}cc`};
    if (size >= MIN_NAME_FONT) pen.text(x + width - 4, y + 3, panel.names[tile], style);
  });
}

/** @param {Pen} pen @param {Slot<TilesPanel>} slot @param {Theme} theme */
function paintLabels(pen, slot, theme) {
  const {panel, box, font} = slot;
  const side = sideOf(slot);
  const {firstRow, lastRow, firstColumn, lastColumn} = visibleRange(slot);
  const bottom = box.y + Math.min(box.height, contentSize(slot).height - scrollOf(slot).y);
  const within = (value, low, high) => value >= low && value <= high;
  const shown = (size, room, first, last) => thinned(size, Math.floor((size * side) / room)).filter((index) => within(index, first, last));
  for (const row of panel.row_labels.length ? shown(panel.row_labels.length, SMALL_FONT * LINE_HEIGHT, firstRow, lastRow) : []) {
    const y = box.y + (row + (1 - GAP) / 2) * side - scrollOf(slot).y;
    if (within(y, box.y, bottom)) pen.text(box.x - 6, y, panel.row_labels[row], {size: SMALL_FONT, align: "right", colour: theme.ink});
  }
  const pitch = maxTextWidth(panel.column_labels, SMALL_FONT, font) + 7;
  for (const column of panel.column_labels.length ? shown(panel.column_labels.length, pitch, firstColumn, lastColumn) : []) {
    const x = box.x + (column + (1 - GAP) / 2) * side - scrollOf(slot).x;
    if (within(x, box.x, box.x + box.width)) {
      pen.text(x, bottom + 4, panel.column_labels[column], {size: SMALL_FONT, align: "center", baseline: "top", colour: theme.ink});
    }
  }
  /** @type {TextStyle} */
  const name = {size: NAME_FONT, align: "center", colour: theme.inkSoft};
  if (panel.column_name)
    pen.text(box.x + box.width / 2, bottom + 6 + SMALL_FONT * LINE_HEIGHT, panel.column_name, {...name, baseline: "top"});
  const left = box.x - leftMargin(panel, true, font) + (NAME_FONT * LINE_HEIGHT) / 2;
  if (panel.row_name) pen.text(left, (box.y + bottom) / 2, panel.row_name, {...name, rotate: -90});
}
