// What all maps of cells share: size, labels, frames, marks, and finding cells.
//
// A map has one label per row and per column, row 0 on top. Its cells are nearly square, within limits. Where the axes are Layer and
// Head, a cell is a head with a name (L12H3); such cells correspond across panels, even if one panel is transposed.

import {contrastingInk} from "headwise/colours";
import {thinned} from "headwise/numbers";
import {LINE_HEIGHT, MIN_FONT, NAME_FONT, SMALL_FONT, maxTextWidth, textWidth, truncate} from "headwise/text_metrics";
import {headName, isHeadMap} from "headwise/tooltip_text";

const MIN_HEIGHT = 56;
const MAX_CELL_ASPECT = 1.6; // width of a cell over its height
const MAX_TICKS = 10;
const TICK = 4;
const MAX_SHORT_LABEL = 3; // characters; longer labels are rotated where there is no room
const MAX_NAMED = 40; // rows or columns up to which every name is written, and the map is enlarged to fit
const PITCH = 1.2; // of the font size, from one name to the next
const ROUNDING = 0.01; // of a name, for rounding errors

/** @param {CellMap} panel */
export function sizeOf(panel) {
  return {rows: panel.values.length, columns: panel.values[0].length};
}

/**
 * Whether a map is tokens by tokens; these use all available space.
 * @param {CellMap} panel
 */
export function isLarge(panel) {
  return (
    panel.x.labels.length === panel.y.labels.length &&
    panel.x.labels.some((label) => label.length > MAX_SHORT_LABEL) &&
    panel.x.labels.every((label, index) => label === panel.y.labels[index])
  );
}

/**
 * Whether labels are names (or numbers that stand for names), and few enough to write all of them.
 * @param {Axis} axis
 */
export function isNamed({labels, names = labels}) {
  return labels.length <= MAX_NAMED && names.some((label) => label.length > MAX_SHORT_LABEL);
}

/**
 * The width below which names would be omitted; a narrower window scrolls sideways.
 * @param {CellMap} panel
 */
export function labelledWidth(panel) {
  return isNamed(panel.x) ? panel.x.labels.length * Math.ceil(MIN_FONT * PITCH) : 0;
}

/** @param {CellMap} panel */
export function minWidth(panel) {
  const {columns} = sizeOf(panel);
  if (panel.x.names) return labelledWidth(panel);
  if (isLarge(panel)) return Math.max(labelledWidth(panel), 180);
  return Math.min(Math.max(columns * (panel.shape === "dot" ? 6 : 2.6), 84), 180);
}

/** @param {CellMap} panel @param {number} tallest @param {string} font */
export function maxWidth(panel, tallest, font) {
  const {rows, columns} = sizeOf(panel);
  const names = panel.x.labels.some((label) => label.length > MAX_SHORT_LABEL) ? (columns + 1) * SMALL_FONT * 1.25 : 0;
  if (isLarge(panel)) return Math.min(Math.max(names, 320), tallest);
  return Math.max((MAX_CELL_ASPECT * tallest * columns) / rows, names, 110, textWidth(panel.title, 13, font, 600));
}

/** @param {CellMap} panel @param {number} width @param {number} tallest */
export function heightOf(panel, width, tallest) {
  const {rows, columns} = sizeOf(panel);
  const names = isNamed(panel.y) ? rows * Math.ceil(MIN_FONT * PITCH) : 0;
  return wholePixels(Math.min(Math.max((width * rows) / columns, MIN_HEIGHT, names), Math.max(tallest, names)), rows);
}

/** @param {CellMap} panel @param {boolean} labelled @param {string} font */
export function leftMargin(panel, labelled, font) {
  if (!labelled) return 2;
  return nameMargin(panel.y) + maxTextWidth(panel.y.labels.map(truncate), SMALL_FONT, font) + TICK + 4;
}

/** @param {CellMap} panel @param {boolean} labelled @param {number} width @param {string} font */
export function bottomMargin(panel, labelled, width, font) {
  if (!labelled) return TICK;
  const lettering = labelsFit(panel, width, font) ? SMALL_FONT * LINE_HEIGHT : maxTextWidth(panel.x.labels.map(truncate), SMALL_FONT, font);
  return nameMargin(panel.x) + lettering + TICK + 3;
}

/**
 * The width of a map in whole pixels per cell, unless that leaves much of it empty.
 * @param {CellMap} panel
 * @param {number} width
 */
export function snappedWidth(panel, width) {
  return wholePixels(width, sizeOf(panel).columns);
}

/**
 * Marks, frames and labels over the painted cells; `colourAt(row, column)` is the colour below a mark.
 * @param {Pen} pen
 * @param {Slot<CellMap>} slot
 * @param {Theme} theme
 * @param {(row: number, column: number) => string | null} colourAt
 */
export function paintOver(pen, slot, theme, colourAt) {
  const {panel, box} = slot;
  const cell = Math.min(...Object.values(cellSize(slot)));
  for (const mark of panel.marks) paintMark(pen, slot, mark, cell, colourAt(mark.row, mark.column));
  for (const frame of panel.frames) paintFrame(pen, slot, frame, theme);
  pen.box(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1, {colour: theme.inkSoft, width: 1, alpha: 0.6});
  paintLabels(pen, slot, theme);
}

/**
 * The rectangle of a cell, its edges on whole pixels.
 * @param {Slot<CellMap>} slot
 * @param {number} row
 * @param {number} column
 */
export function cellBox(slot, row, column) {
  const {box} = slot;
  const {rows, columns} = sizeOf(slot.panel);
  const [left, right] = [column, column + 1].map((edge) => box.x + Math.round((edge * box.width) / columns));
  const [top, bottom] = [row, row + 1].map((edge) => box.y + Math.round((edge * box.height) / rows));
  return {x: left, y: top, width: right - left, height: bottom - top};
}

/**
 * The edges of all rows and columns, in whole pixels: {xs, ys}, one more than there are cells.
 * @param {Slot<CellMap>} slot
 */
export function edges({panel, box}) {
  const {rows, columns} = sizeOf(panel);
  return {
    xs: Array.from({length: columns + 1}, (_, edge) => box.x + Math.round((edge * box.width) / columns)),
    ys: Array.from({length: rows + 1}, (_, edge) => box.y + Math.round((edge * box.height) / rows)),
  };
}

/**
 * The cell under a point of the panel, or null.
 * @param {Slot<CellMap>} slot
 * @param {number} x
 * @param {number} y
 */
export function itemAt(slot, x, y) {
  const {box} = slot;
  const {rows, columns} = sizeOf(slot.panel);
  const column = Math.floor(((x - box.x) / box.width) * columns);
  const row = Math.floor(((y - box.y) / box.height) * rows);
  return row >= 0 && row < rows && column >= 0 && column < columns ? {row, column} : null;
}

/**
 * The first cell for the keyboard: the first ringed one, else the corner.
 * @param {Slot<CellMap>} slot
 */
export function firstItem(slot) {
  const mark = slot.panel.marks.find((each) => each.sign === "ring");
  return mark ? {row: mark.row, column: mark.column} : {row: 0, column: 0};
}

/** @param {Slot<CellMap>} slot @param {Cell} cell @param {number} across @param {number} down */
export function moveItem(slot, {row, column}, across, down) {
  const {rows, columns} = sizeOf(slot.panel);
  return {row: clampIndex(row + down, rows), column: clampIndex(column + across, columns)};
}

/** @param {Slot<CellMap>} slot @param {Cell} cell */
export function tooltipAnchor(slot, {row, column}) {
  const {x, y, width, height} = cellBox(slot, row, column);
  return {x: x + width, y: y + height};
}

/**
 * A cell's key across panels: its head, or its position in maps with the same axes.
 * @param {Slot<CellMap>} slot
 * @param {Cell} cell
 */
export function itemKey(slot, {row, column}) {
  const {panel} = slot;
  const {rows, columns} = sizeOf(panel);
  return headName(panel, row, column) ?? `${rows} ${panel.y.name} ${columns} ${panel.x.name} ${row} ${column}`;
}

/** @param {Slot<CellMap>} slot @param {string} key */
export function findItem(slot, key) {
  const {panel} = slot;
  const {rows, columns} = sizeOf(panel);
  const head = /^L(\d+)H(\d+)$/.exec(key);
  if (head) {
    /** @type {Record<string, string>} */
    const across = {Layer: head[1], Head: head[2]};
    const [row, column] = [panel.y, panel.x].map((axis) => axis.labels.indexOf(across[axis.name]));
    return isHeadMap(panel) && row >= 0 && column >= 0 ? {row, column} : null;
  }
  const prefix = `${rows} ${panel.y.name} ${columns} ${panel.x.name} `;
  if (!key.startsWith(prefix)) return null;
  const [row, column] = key.slice(prefix.length).split(" ").map(Number);
  return {row, column};
}

/**
 * An outline around a cell, visible on dark and light colours, with the labels of its row and column.
 * @param {Pen} pen
 * @param {Slot<CellMap>} slot
 * @param {Cell} item
 * @param {Theme} theme
 * @param {boolean} strong
 */
export function outline(pen, slot, item, theme, strong) {
  const {x, y, width, height} = cellBox(slot, item.row, item.column);
  pen.box(x - 0.5, y - 0.5, width + 1, height + 1, {colour: "#ffffff", width: strong ? 4 : 3});
  pen.box(x - 0.5, y - 0.5, width + 1, height + 1, {colour: "#111111", width: strong ? 2 : 1.4});
  highlightLabels(pen, slot, item, theme);
}

/** @param {number} length @param {number} cells */
function wholePixels(length, cells) {
  const step = Math.floor(length / cells);
  return step * cells >= 0.86 * length ? step * cells : Math.round(length);
}

/** @param {Slot<CellMap>} slot */
function cellSize({panel, box}) {
  const {rows, columns} = sizeOf(panel);
  return {width: box.width / columns, height: box.height / rows};
}

/** @param {number} index @param {number} size */
function clampIndex(index, size) {
  return Math.min(Math.max(index, 0), size - 1);
}

/** @param {Axis} axis */
function nameMargin(axis) {
  return axis.name ? NAME_FONT * LINE_HEIGHT + 3 : 0;
}

/** @param {CellMap} panel @param {number} width @param {string} font */
function labelsFit(panel, width, font) {
  const {labels} = panel.x;
  return (
    labels.every((label) => label.length <= MAX_SHORT_LABEL) ||
    maxTextWidth(labels.map(truncate), SMALL_FONT, font) + 8 <= width / labels.length
  );
}

/** @param {Pen} pen @param {Slot<CellMap>} slot @param {any} mark @param {number} cell @param {string | null} below */
function paintMark(pen, slot, mark, cell, below) {
  const {x, y, width, height} = cellBox(slot, mark.row, mark.column);
  const [middle, centre] = [x + width / 2, y + height / 2];
  if (mark.sign === "dot") {
    const radius = Math.min(2, 0.16 * Math.min(width, height));
    pen.circle(middle, centre, radius, {fill: below ? contrastingInk(below) : "#444444"});
    return;
  }
  if (mark.sign === "text") {
    const size = Math.min(SMALL_FONT + 1, height * 0.62, (width * 1.55) / Math.max(mark.text.length, 1));
    pen.text(middle, centre, mark.text, {size, align: "center", colour: below ? contrastingInk(below) : "#444444"});
    return;
  }
  const radius = Math.min(Math.max(0.36 * cell, 3.4), 7);
  for (const line of [
    {colour: "#ffffff", width: 3},
    {colour: "#1c1c1e", width: 1.4},
  ]) {
    if (mark.sign === "ring") pen.circle(middle, centre, radius, {line});
    else paintCross(pen, middle, centre, radius * 0.8, line);
  }
}

/** @param {Pen} pen @param {number} x @param {number} y @param {number} reach @param {LineStyle} line */
export function paintCross(pen, x, y, reach, line) {
  pen.path([[x - reach, y - reach], [x + reach, y + reach], null, [x - reach, y + reach], [x + reach, y - reach]], line);
}

/** @param {Pen} pen @param {Slot<CellMap>} slot @param {any} frame @param {Theme} theme */
function paintFrame(pen, slot, frame, theme) {
  const first = cellBox(slot, frame.first_row, frame.first_column);
  const last = cellBox(slot, frame.last_row, frame.last_column);
  const [width, height] = [last.x + last.width - first.x, last.y + last.height - first.y];
  const thin = width < 30 || height < 30;
  pen.box(first.x, first.y, width, height, {colour: "#ffffff", width: thin ? 3 : 4});
  pen.box(first.x, first.y, width, height, {colour: "#111111", width: thin ? 1.4 : 2});
  if (frame.text) {
    pen.text(first.x + 2, first.y - 4, frame.text, {size: SMALL_FONT, colour: theme.ink, baseline: "bottom", background: theme.paper});
  }
}

/** @param {Pen} pen @param {Slot<CellMap>} slot @param {Theme} theme */
function paintLabels(pen, slot, theme) {
  const {panel, box, font} = slot;
  const {rows, columns} = sizeOf(panel);
  const along = labelsFit(panel, box.width, font);
  const [wide, tall] = [labelFont(panel.x, box.width), labelFont(panel.y, box.height)];
  const pitch = along ? maxTextWidth(panel.x.labels.map(truncate), SMALL_FONT, font) + 7 : wide * PITCH;
  const short = !isNamed(panel.x) && panel.x.labels.every((label) => label.length <= MAX_SHORT_LABEL);
  const maximum = short ? Math.min(Math.floor(box.width / pitch), MAX_TICKS) : Math.floor(box.width / pitch + ROUNDING);
  for (const index of thinned(columns, maximum)) {
    const {x, width} = cellBox(slot, 0, index);
    labelColumn(
      pen,
      slot,
      panel.x.labels[index],
      x + width / 2,
      along,
      {colour: theme.ink, size: along ? SMALL_FONT : wide},
      theme.inkSoft,
    );
  }
  const high = Math.floor(box.height / (tall * PITCH) + ROUNDING);
  const numbers = !isNamed(panel.y) && panel.y.labels.every((label) => label.length <= MAX_SHORT_LABEL);
  for (const index of thinned(rows, numbers ? Math.min(high, MAX_TICKS) : high)) {
    const {y, height} = cellBox(slot, index, 0);
    labelRow(pen, slot, panel.y.labels[index], y + height / 2, {colour: theme.ink, size: tall}, theme.inkSoft);
  }
  nameAxes(pen, slot, theme);
}

/**
 * The font size of an axis's labels: smaller where names are dense.
 * @param {Axis} axis
 * @param {number} length
 */
function labelFont(axis, length) {
  if (!isNamed(axis)) return SMALL_FONT;
  return Math.min(Math.max(length / axis.labels.length / PITCH, MIN_FONT), SMALL_FONT);
}

/**
 * @param {Pen} pen
 * @param {Slot<CellMap>} slot
 * @param {string} label
 * @param {number} x
 * @param {boolean} along
 * @param {any} style
 * @param {string} [tick]
 */
function labelColumn(pen, slot, label, x, along, style, tick) {
  const bottom = slot.box.y + slot.box.height;
  if (tick)
    pen.path(
      [
        [x, bottom + 1],
        [x, bottom + TICK],
      ],
      {colour: tick},
    );
  if (!slot.labelledX) return;
  if (along) pen.text(x, bottom + TICK + 2, truncate(label), {size: SMALL_FONT, align: "center", baseline: "top", ...style});
  else pen.text(x, bottom + TICK + 2, truncate(label), {size: SMALL_FONT, align: "right", rotate: -90, ...style});
}

/** @param {Pen} pen @param {Slot<CellMap>} slot @param {string} label @param {number} y @param {any} style @param {string} [tick] */
function labelRow(pen, slot, label, y, style, tick) {
  if (!slot.labelledY) return;
  if (tick)
    pen.path(
      [
        [slot.box.x - TICK, y],
        [slot.box.x - 1, y],
      ],
      {colour: tick},
    );
  pen.text(slot.box.x - TICK - 2, y, truncate(label), {size: SMALL_FONT, align: "right", ...style});
}

/** @param {Pen} pen @param {Slot<CellMap>} slot @param {Theme} theme */
function nameAxes(pen, slot, theme) {
  const {panel, box, font} = slot;
  if (slot.labelledX && panel.x.name) {
    const foot = bottomMargin(panel, true, box.width, font);
    const y = box.y + box.height + foot - NAME_FONT * LINE_HEIGHT;
    pen.text(box.x + box.width / 2, y, panel.x.name, {size: NAME_FONT, align: "center", baseline: "top", colour: theme.inkSoft});
  }
  if (slot.labelledY && panel.y.name) {
    const x = box.x - leftMargin(panel, true, font) + (NAME_FONT * LINE_HEIGHT) / 2;
    pen.text(x, box.y + box.height / 2, panel.y.name, {size: NAME_FONT, align: "center", rotate: -90, colour: theme.inkSoft});
  }
}

/**
 * The labels of the row and the column of a cell, written over the others.
 * @param {Pen} pen
 * @param {Slot<CellMap>} slot
 * @param {Cell} cell
 * @param {Theme} theme
 */
function highlightLabels(pen, slot, {row, column}, theme) {
  const {panel, box, font} = slot;
  const {x, y, width, height} = cellBox(slot, row, column);
  const style = {colour: theme.accentInk, weight: 600, background: theme.accent};
  labelColumn(pen, slot, panel.x.labels[column], x + width / 2, labelsFit(panel, box.width, font), style);
  labelRow(pen, slot, panel.y.labels[row], y + height / 2, style);
}
