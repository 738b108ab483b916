// Many small maps in one panel: a picture a head, in a grid, each with its name.
//
// All tiles fit the panel's width at first. They can be made larger; then the panel scrolls in both directions, its
// labels stay, and only the tiles in sight are painted, so that 5,120 maps cost no more than a screen full of dots. A
// tile with room for it has its name in the corner that a causal map leaves empty.

import {barLabel, barRoom, paintBar} from "headwise/bar";
import {textureInk} from "headwise/ink";
import {LINE, NAME, SMALL, textWidth, widest} from "headwise/lettering";
import {packedColour, palette, pooled, stamp, unpack} from "headwise/pixels";
import {thinned, told} from "headwise/numbers";

const LARGEST = 128;
const GAP = 0.05; // of a tile
const LEAST_NAME = 8.5;
export {barHint as hint} from "headwise/bar";
export const ZOOMS = [1, 1.5, 2, 3, 4, 6, 8, 12];

export function leastWidth() {
  return 200;
}

export function mostWidth(panel) {
  return Math.max(panel.columns * LARGEST, 380);
}

export function settledWidth(panel, room) {
  return Math.max(Math.floor(Math.min(room / panel.columns, LARGEST)), 1) * panel.columns;
}

/** As high as all tiles, or as a window on them. */
export function heightOf(panel, width, tallest) {
  return Math.min((width / panel.columns) * rowsOf(panel), tallest);
}

export function leftRoom(panel, _, sans) {
  return panel.row_labels.length ? NAME * LINE + widest(panel.row_labels, SMALL, sans) + 8 : 2;
}

export function footRoom(panel) {
  return panel.column_labels.length ? SMALL * LINE + NAME * LINE + 8 : 4;
}

export function rightRoom(panel, scale, hasBar, sans) {
  return hasBar ? barRoom(scale, barLabel(panel, scale), sans) : 4;
}

/** What must be there before a panel can be painted: the pixels. */
export async function prepare(panel) {
  unpacked.set(panel, unpacked.get(panel) ?? (await unpack(panel.levels)));
}

const unpacked = new WeakMap();

/** How large all tiles are together, in pixels, at the zoom of the slot. */
export function contentSize(slot) {
  const {panel} = slot;
  const side = sideOf(slot);
  return {width: side * panel.columns, height: side * rowsOf(panel)};
}

export function paint(pen, slot, ink) {
  const {panel, scale, box} = slot;
  const pixels = unpacked.get(panel);
  if (pixels) pen.picture(box.x, box.y, box.width, box.height, (ratio) => pictureOf(slot, pixels, ink, ratio));
  if (pixels) pen.inside(box, () => paintNames(pen, slot, ink));
  paintLabels(pen, slot, ink);
  if (slot.bar) paintBar(pen, {...slot.bar, height: Math.min(slot.bar.height, 320)}, scale, barLabel(panel, scale), ink, slot.sans);
}

export function at(slot, x, y) {
  const {panel, box} = slot;
  if (x < box.x || x >= box.x + box.width || y < box.y || y >= box.y + box.height) return null;
  const side = sideOf(slot);
  const [inX, inY] = [x - box.x + scrollOf(slot).x, y - box.y + scrollOf(slot).y];
  const [column, row] = [Math.floor(inX / side), Math.floor(inY / side)];
  const tile = row * panel.columns + column;
  if (column >= panel.columns || tile >= panel.names.length) return null;
  return {tile, inside: [inX / side - column, inY / side - row]};
}

export function start() {
  return {tile: 0};
}

export function move(slot, {tile}, across, down) {
  const {columns, names} = slot.panel;
  const column = Math.min(Math.max((tile % columns) + across, 0), columns - 1);
  const row = Math.min(Math.max(Math.floor(tile / columns) + down, 0), rowsOf(slot.panel) - 1);
  return {tile: Math.min(row * columns + column, names.length - 1)};
}

export function anchor(slot, {tile}) {
  const {x, y, width, height} = tileBox(slot, tile);
  return {x: x + width, y: y + height};
}

/** Where the content must be scrolled to, so that a tile is seen. */
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

export function addressOf({panel}, {tile}) {
  return panel.names[tile];
}

export function find({panel}, address) {
  const tile = panel.names.indexOf(address);
  return tile >= 0 ? {tile} : null;
}

export function outline(pen, slot, {tile}, ink, strong) {
  const {x, y, width, height} = tileBox(slot, tile);
  pen.inside(slot.box, () => pen.box(x, y, width - 1, height - 1, {colour: strong ? ink.accent : ink.ink, width: strong ? 3 : 2}));
}

export function tell(slot, {tile, inside}) {
  const {panel, scale} = slot;
  const name = panel.names[tile];
  const rows = inside ? [pixelRow(unpacked.get(panel), panel, scale, tile, inside)].filter(Boolean) : [];
  return {name, head: /^L\d+H\d+$/.test(name) ? name : null, value: null, caption: panel.title, rows};
}

/** The number below the pointer: what the row looks at, as the scale's level tells it. */
function pixelRow(pixels, panel, scale, tile, [x, y]) {
  if (!pixels) return null;
  const [row, column] = [Math.floor((y / (1 - GAP)) * pixels.rows), Math.floor((x / (1 - GAP)) * pixels.columns)];
  if (row >= pixels.rows || column >= pixels.columns) return null;
  const level = pixels.bytes[(tile * pixels.rows + row) * pixels.columns + column];
  const value = level === 255 ? panel.missing : `about ${told(scale.low + (level / 254) * (scale.high - scale.low))}`;
  return [`${scale.label || "value"}, pixel row ${row}, column ${column}`, value];
}

function rowsOf(panel) {
  return Math.ceil(panel.names.length / panel.columns);
}

function sideOf(slot) {
  return (slot.box.width / slot.panel.columns) * (slot.zoom ?? 1);
}

function scrollOf(slot) {
  return slot.scroll ?? {x: 0, y: 0};
}

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

/** The tiles in sight: {first, last} rows and columns. */
function inSight(slot) {
  const side = sideOf(slot);
  const {x, y} = scrollOf(slot);
  const {panel, box} = slot;
  return {
    firstRow: Math.floor(y / side), lastRow: Math.min(Math.ceil((y + box.height) / side), rowsOf(panel)) - 1,
    firstColumn: Math.floor(x / side), lastColumn: Math.min(Math.ceil((x + box.width) / side), panel.columns) - 1,
  };
}

function eachInSight(slot, draw) {
  const {firstRow, lastRow, firstColumn, lastColumn} = inSight(slot);
  for (let row = firstRow; row <= lastRow; row += 1) {
    for (let column = firstColumn; column <= lastColumn; column += 1) {
      const tile = row * slot.panel.columns + column;
      if (tile < slot.panel.names.length) draw(tile);
    }
  }
}

/** What is in sight as a canvas of device dots. */
function pictureOf(slot, pixels, ink, ratio) {
  const {box, scale} = slot;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const picture = new Uint32Array(image.data.buffer);
  picture.fill(packedColour(ink.paper));
  const colours = palette(scale, textureInk(scale, ink));
  const side = Math.max(Math.floor(sideOf(slot) * (1 - GAP) * ratio), 1);
  const small = smallOnes(slot, side);
  eachInSight(slot, (tile) => {
    if (!small.has(tile)) small.set(tile, pooled(pixels, tile, side));
    const {x, y} = tileBox(slot, tile);
    const [left, top] = [Math.round((x - box.x) * ratio), Math.round((y - box.y) * ratio)];
    stamp(picture, canvas.width, canvas.height, small.get(tile), left, top, side, colours);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Tiles already made smaller, for as long as they keep their size. */
function smallOnes(slot, side) {
  if (slot.smallSide !== side) Object.assign(slot, {smallSide: side, small: new Map()});
  return slot.small;
}

function paintNames(pen, slot, ink) {
  const {panel, sans} = slot;
  const longest = panel.names.reduce((most, name) => Math.max(most, textWidth(name, 10, sans) / 10), 0);
  const size = Math.min(SMALL, (0.7 * sideOf(slot)) / longest);
  const on = textureInk(slot.scale, ink);
  eachInSight(slot, (tile) => {
    const {x, y, width, height} = tileBox(slot, tile);
    if (sideOf(slot) > 18) pen.box(x + 0.5, y + 0.5, width - 1, height - 1, {colour: ink.trace});
    const style = {size, align: "right", baseline: "top", colour: on.ink, plate: `${on.paper}cc`};
    if (size >= LEAST_NAME) pen.text(x + width - 4, y + 3, panel.names[tile], style);
  });
}

function paintLabels(pen, slot, ink) {
  const {panel, box, sans} = slot;
  const side = sideOf(slot);
  const {firstRow, lastRow, firstColumn, lastColumn} = inSight(slot);
  const bottom = box.y + Math.min(box.height, contentSize(slot).height - scrollOf(slot).y);
  const within = (value, low, high) => value >= low && value <= high;
  const shown = (size, room, first, last) => thinned(size, Math.floor((size * side) / room)).filter((place) => within(place, first, last));
  for (const row of panel.row_labels.length ? shown(panel.row_labels.length, SMALL * LINE, firstRow, lastRow) : []) {
    const y = box.y + (row + (1 - GAP) / 2) * side - scrollOf(slot).y;
    if (within(y, box.y, bottom)) pen.text(box.x - 6, y, panel.row_labels[row], {size: SMALL, align: "right", colour: ink.ink});
  }
  const pitch = widest(panel.column_labels, SMALL, sans) + 7;
  for (const column of panel.column_labels.length ? shown(panel.column_labels.length, pitch, firstColumn, lastColumn) : []) {
    const x = box.x + (column + (1 - GAP) / 2) * side - scrollOf(slot).x;
    if (within(x, box.x, box.x + box.width)) {
      pen.text(x, bottom + 4, panel.column_labels[column], {size: SMALL, align: "center", baseline: "top", colour: ink.ink});
    }
  }
  const name = {size: NAME, align: "center", colour: ink.inkSoft};
  if (panel.column_name) pen.text(box.x + box.width / 2, bottom + 6 + SMALL * LINE, panel.column_name, {...name, baseline: "top"});
  const left = box.x - leftRoom(panel, true, sans) + (NAME * LINE) / 2;
  if (panel.row_name) pen.text(left, (box.y + bottom) / 2, panel.row_name, {...name, turn: -90});
}
