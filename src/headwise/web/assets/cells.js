// What all maps of cells share: how large they are, their labels, frames and marks, and how a cell is found and told.
//
// A map has one label a row and one a column, row 0 on top. Its cells are near square, within limits. Where the axes are
// Layer and Head, a cell is a head and is called by its name (L12H3); such cells find each other across panels, even
// where one panel has layers across and the other has them down.

import {thinned} from "headwise/numbers";
import {headOf, isHeads} from "headwise/telling";
import {inkOn} from "headwise/ink";
import {LEAST, LINE, NAME, SMALL, cut, textWidth, widest} from "headwise/lettering";

const SHORTEST = 56;
const FLATTEST = 1.6; // width of a cell over its height
const MOST_TICKS = 10;
const TICK = 4;
const LONG = 3; // letters of a label that is turned when there is no room
const NAMED = 40; // rows or columns up to which every name is written: the map is made as large as that needs
const PITCH = 1.2; // of the size of the letters, from one name to the next
const CLOSE = 0.01; // of a name: what division leaves

export function sizeOf(panel) {
  return {rows: panel.values.length, columns: panel.values[0].length};
}

/** Maps of tokens by tokens take the room there is. */
export function isLarge(panel) {
  return panel.x.labels.length === panel.y.labels.length && panel.x.labels.some((label) => label.length > LONG) &&
    panel.x.labels.every((label, index) => label === panel.y.labels[index]);
}

/** Names, not numbers, and few enough to write all of them. */
function isNamed({labels}) {
  return labels.length <= NAMED && labels.some((label) => label.length > LONG);
}

/** The width below which names would be left out; a narrower window scrolls sideways. */
export function neededWidth(panel) {
  return isNamed(panel.x) ? panel.x.labels.length * Math.ceil(LEAST * PITCH) : 0;
}

export function leastWidth(panel) {
  const {columns} = sizeOf(panel);
  if (isLarge(panel)) return Math.max(neededWidth(panel), 180);
  return Math.min(Math.max(columns * (panel.shape === "dot" ? 6 : 2.6), 84), 180);
}

export function mostWidth(panel, tallest, sans) {
  const {rows, columns} = sizeOf(panel);
  const names = panel.x.labels.some((label) => label.length > LONG) ? (columns + 1) * SMALL * 1.25 : 0;
  if (isLarge(panel)) return Math.min(Math.max(names, 320), tallest);
  return Math.max((FLATTEST * tallest * columns) / rows, names, 110, textWidth(panel.title, 13, sans, 600));
}

export function heightOf(panel, width, tallest) {
  const {rows, columns} = sizeOf(panel);
  const names = isNamed(panel.y) ? rows * Math.ceil(LEAST * PITCH) : 0;
  return whole(Math.min(Math.max((width * rows) / columns, SHORTEST, names), Math.max(tallest, names)), rows);
}

export function leftRoom(panel, labelled, sans) {
  if (!labelled) return 2;
  return nameRoom(panel.y) + widest(panel.y.labels.map(cut), SMALL, sans) + TICK + 4;
}

export function footRoom(panel, labelled, width, sans) {
  if (!labelled) return TICK;
  const lettering = upright(panel, width, sans) ? SMALL * LINE : widest(panel.x.labels.map(cut), SMALL, sans);
  return nameRoom(panel.x) + lettering + TICK + 3;
}

/** The width of a map in whole pixels a cell, where that does not leave much of it empty. */
export function settledWidth(panel, width) {
  return whole(width, sizeOf(panel).columns);
}

/** Marks, frames and labels over the painted cells; `colourAt(row, column)` is what stands below a mark. */
export function paintOver(pen, slot, ink, colourAt) {
  const {panel, box} = slot;
  const cell = Math.min(...Object.values(cellSize(slot)));
  for (const mark of panel.marks) paintMark(pen, slot, mark, cell, colourAt(mark.row, mark.column));
  for (const frame of panel.frames) paintFrame(pen, slot, frame, ink);
  pen.box(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1, {colour: ink.inkSoft, width: 1, alpha: 0.6});
  paintLabels(pen, slot, ink);
}

/** The rectangle of a cell, its edges on whole pixels. */
export function cellBox(slot, row, column) {
  const {box} = slot;
  const {rows, columns} = sizeOf(slot.panel);
  const [left, right] = [column, column + 1].map((edge) => box.x + Math.round((edge * box.width) / columns));
  const [top, bottom] = [row, row + 1].map((edge) => box.y + Math.round((edge * box.height) / rows));
  return {x: left, y: top, width: right - left, height: bottom - top};
}

/** The edges of all rows and columns, in whole pixels: {xs, ys}, one more than there are cells. */
export function edges({panel, box}) {
  const {rows, columns} = sizeOf(panel);
  return {
    xs: Array.from({length: columns + 1}, (_, edge) => box.x + Math.round((edge * box.width) / columns)),
    ys: Array.from({length: rows + 1}, (_, edge) => box.y + Math.round((edge * box.height) / rows)),
  };
}

/** The cell under a point of the panel, or null. */
export function at(slot, x, y) {
  const {box} = slot;
  const {rows, columns} = sizeOf(slot.panel);
  const column = Math.floor(((x - box.x) / box.width) * columns);
  const row = Math.floor(((y - box.y) / box.height) * rows);
  return row >= 0 && row < rows && column >= 0 && column < columns ? {row, column} : null;
}

/** Where the keyboard starts: at the first cell that is pointed at, else in the corner. */
export function start(slot) {
  const mark = slot.panel.marks.find((each) => each.sign === "ring");
  return mark ? {row: mark.row, column: mark.column} : {row: 0, column: 0};
}

export function move(slot, {row, column}, across, down) {
  const {rows, columns} = sizeOf(slot.panel);
  return {row: clamp(row + down, rows), column: clamp(column + across, columns)};
}

export function anchor(slot, {row, column}) {
  const {x, y, width, height} = cellBox(slot, row, column);
  return {x: x + width, y: y + height};
}

/** What a cell is called across panels: its head, or its place among maps with the same axes. */
export function addressOf(slot, {row, column}) {
  const {panel} = slot;
  const {rows, columns} = sizeOf(panel);
  return headOf(panel, row, column) ?? `${rows} ${panel.y.name} ${columns} ${panel.x.name} ${row} ${column}`;
}

export function find(slot, address) {
  const {panel} = slot;
  const {rows, columns} = sizeOf(panel);
  const head = /^L(\d+)H(\d+)$/.exec(address);
  if (head) {
    const across = {Layer: head[1], Head: head[2]};
    const [row, column] = [panel.y, panel.x].map((axis) => axis.labels.indexOf(across[axis.name]));
    return isHeads(panel) && row >= 0 && column >= 0 ? {row, column} : null;
  }
  const prefix = `${rows} ${panel.y.name} ${columns} ${panel.x.name} `;
  if (!address.startsWith(prefix)) return null;
  const [row, column] = address.slice(prefix.length).split(" ").map(Number);
  return {row, column};
}

/** An outline around a cell, seen on dark and on light colours, with the names of its row and column. */
export function outline(pen, slot, place, ink, strong) {
  const {x, y, width, height} = cellBox(slot, place.row, place.column);
  pen.box(x - 0.5, y - 0.5, width + 1, height + 1, {colour: "#ffffff", width: strong ? 4 : 3});
  pen.box(x - 0.5, y - 0.5, width + 1, height + 1, {colour: "#111111", width: strong ? 2 : 1.4});
  pointOut(pen, slot, place, ink);
}

function whole(length, cells) {
  const step = Math.floor(length / cells);
  return step * cells >= 0.86 * length ? step * cells : Math.round(length);
}

function cellSize({panel, box}) {
  const {rows, columns} = sizeOf(panel);
  return {width: box.width / columns, height: box.height / rows};
}

function clamp(place, size) {
  return Math.min(Math.max(place, 0), size - 1);
}

function nameRoom(axis) {
  return axis.name ? NAME * LINE + 3 : 0;
}

function upright(panel, width, sans) {
  const {labels} = panel.x;
  return labels.every((label) => label.length <= LONG) || widest(labels.map(cut), SMALL, sans) + 8 <= width / labels.length;
}

function paintMark(pen, slot, mark, cell, below) {
  const {x, y, width, height} = cellBox(slot, mark.row, mark.column);
  const [middle, centre] = [x + width / 2, y + height / 2];
  if (mark.sign === "dot") {
    const radius = Math.min(2, 0.16 * Math.min(width, height));
    pen.circle(middle, centre, radius, {fill: below ? inkOn(below) : "#444444"});
    return;
  }
  if (mark.sign === "text") {
    const size = Math.min(SMALL + 1, height * 0.62, (width * 1.55) / Math.max(mark.text.length, 1));
    pen.text(middle, centre, mark.text, {size, align: "center", colour: below ? inkOn(below) : "#444444"});
    return;
  }
  const radius = Math.min(Math.max(0.36 * cell, 3.4), 7);
  for (const line of [{colour: "#ffffff", width: 3}, {colour: "#1c1c1e", width: 1.4}]) {
    if (mark.sign === "ring") pen.circle(middle, centre, radius, {line});
    else paintCross(pen, middle, centre, radius * 0.8, line);
  }
}

export function paintCross(pen, x, y, reach, line) {
  pen.path([[x - reach, y - reach], [x + reach, y + reach], null, [x - reach, y + reach], [x + reach, y - reach]], line);
}

function paintFrame(pen, slot, frame, ink) {
  const first = cellBox(slot, frame.first_row, frame.first_column);
  const last = cellBox(slot, frame.last_row, frame.last_column);
  const [width, height] = [last.x + last.width - first.x, last.y + last.height - first.y];
  const thin = width < 30 || height < 30;
  pen.box(first.x, first.y, width, height, {colour: "#ffffff", width: thin ? 3 : 4});
  pen.box(first.x, first.y, width, height, {colour: "#111111", width: thin ? 1.4 : 2});
  if (frame.text) {
    pen.text(first.x + 2, first.y - 4, frame.text, {size: SMALL, colour: ink.ink, baseline: "bottom", plate: ink.paper});
  }
}

function paintLabels(pen, slot, ink) {
  const {panel, box, sans} = slot;
  const {rows, columns} = sizeOf(panel);
  const along = upright(panel, box.width, sans);
  const [wide, tall] = [lettersOf(panel.x, box.width), lettersOf(panel.y, box.height)];
  const pitch = along ? widest(panel.x.labels.map(cut), SMALL, sans) + 7 : wide * PITCH;
  const short = panel.x.labels.every((label) => label.length <= LONG);
  const most = short ? Math.min(Math.floor(box.width / pitch), MOST_TICKS) : Math.floor(box.width / pitch + CLOSE);
  for (const place of thinned(columns, most)) {
    const {x, width} = cellBox(slot, 0, place);
    labelColumn(pen, slot, panel.x.labels[place], x + width / 2, along, {colour: ink.ink, size: along ? SMALL : wide}, ink.inkSoft);
  }
  const high = Math.floor(box.height / (tall * PITCH) + CLOSE);
  const numbers = panel.y.labels.every((label) => label.length <= LONG);
  for (const place of thinned(rows, numbers ? Math.min(high, MOST_TICKS) : high)) {
    const {y, height} = cellBox(slot, place, 0);
    labelRow(pen, slot, panel.y.labels[place], y + height / 2, {colour: ink.ink, size: tall}, ink.inkSoft);
  }
  nameAxes(pen, slot, ink);
}

/** The size of the letters of an axis: smaller where names stand close. */
function lettersOf(axis, length) {
  if (!isNamed(axis)) return SMALL;
  return Math.min(Math.max(length / axis.labels.length / PITCH, LEAST), SMALL);
}

function labelColumn(pen, slot, label, x, along, style, tick) {
  const bottom = slot.box.y + slot.box.height;
  if (tick) pen.path([[x, bottom + 1], [x, bottom + TICK]], {colour: tick});
  if (!slot.labelledX) return;
  if (along) pen.text(x, bottom + TICK + 2, cut(label), {size: SMALL, align: "center", baseline: "top", ...style});
  else pen.text(x, bottom + TICK + 2, cut(label), {size: SMALL, align: "right", turn: -90, ...style});
}

function labelRow(pen, slot, label, y, style, tick) {
  if (!slot.labelledY) return;
  if (tick) pen.path([[slot.box.x - TICK, y], [slot.box.x - 1, y]], {colour: tick});
  pen.text(slot.box.x - TICK - 2, y, cut(label), {size: SMALL, align: "right", ...style});
}

function nameAxes(pen, slot, ink) {
  const {panel, box, sans} = slot;
  if (slot.labelledX && panel.x.name) {
    const foot = footRoom(panel, true, box.width, sans);
    const y = box.y + box.height + foot - NAME * LINE;
    pen.text(box.x + box.width / 2, y, panel.x.name, {size: NAME, align: "center", baseline: "top", colour: ink.inkSoft});
  }
  if (slot.labelledY && panel.y.name) {
    const x = box.x - leftRoom(panel, true, sans) + (NAME * LINE) / 2;
    pen.text(x, box.y + box.height / 2, panel.y.name, {size: NAME, align: "center", turn: -90, colour: ink.inkSoft});
  }
}

/** The labels of the row and the column of a cell, written out over those that stand there. */
function pointOut(pen, slot, {row, column}, ink) {
  const {panel, box, sans} = slot;
  const {x, y, width, height} = cellBox(slot, row, column);
  const style = {colour: ink.accentInk, weight: 600, plate: ink.accent};
  labelColumn(pen, slot, panel.x.labels[column], x + width / 2, upright(panel, box.width, sans), style);
  labelRow(pen, slot, panel.y.labels[row], y + height / 2, style);
}
