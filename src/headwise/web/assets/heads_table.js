// The rows of the head table: a fixed name column, sortable headers, a bar under each number.
//
// Only visible rows and columns exist: all rows have the same height and all columns of a kind the same width, so positions are known,
// and spacers replace the rest. Scrolling moves rows from one end to the other and rewrites only those. A bar shows the share of heads
// with a smaller number (ties count half); for p- and q-values with a larger one, so that a long bar is always the interesting one.

import {el} from "headwise/dom";
import {link} from "headwise/router";

export const BARS_NOTE = "The bar under a number is the share of heads with a smaller number (for p and q: larger).";
const NAME_WIDTH = 84; // pixels
/** @type {Record<string, number>} */
const COLUMN_WIDTHS = {number: 104, test: 104, text: 190};
const OVERSCAN = 200; // pixels beyond the window in which columns exist

/**
 * The table of `data`; `onOpen(name)` and `onSort(column)` are called on clicks.
 * @param {HeadTableData} data
 * @param {{onOpen: (name: string) => void, onSort: (column: string) => void}} options
 */
export function headTable(data, {onOpen, onSort}) {
  /** @type {number[]} */
  let order = [];
  /** @type {TableColumn[]} */
  let columns = [];
  /** @type {(Float64Array | null)[]} */
  let ranks = [];
  /** @type {TableState} */
  let state = {where: "", sort: "", up: false, chosen: []};
  let range = {from: 0, to: -1, before: 0, after: 0}; // {from, to, before, after}: the columns that exist
  const [head, widths] = [el("thead"), el("colgroup")];
  const view = virtualRows([widths, head], {fillRow, writeRow, label: "All heads", onScroll: updateColumns});

  /** @param {HTMLElement} element */
  function updateColumns(element) {
    const next = visibleColumns(columns, element.scrollLeft, element.clientWidth || 1200);
    if (next.from === range.from && next.to === range.to) return;
    range = next;
    const focusedTitle = head.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).title : null;
    const shown = columns.slice(range.from, range.to);
    widths.replaceChildren(
      ...[NAME_WIDTH, range.before, ...shown.map(widthOf), range.after].map((width) => el("col", {width: String(width)})),
    );
    head.replaceChildren(header(shown, range.from, state, onSort));
    if (focusedTitle) [...head.querySelectorAll("button")].find((button) => button.title === focusedTitle)?.focus({preventScroll: true});
    view.reset();
  }

  /** @param {HTMLElement} row */
  function fillRow(row) {
    const shown = columns.slice(range.from, range.to);
    row.append(
      el("th", {scope: "row"}, el("a", {})),
      el("td", {class: "spacer-cell"}),
      ...shown.map((column, index) => el("td", {class: column.kind, "aria-colindex": String(range.from + index + 2)})),
      el("td", {class: "spacer-cell"}),
    );
    row.addEventListener("click", (event) => {
      const inLink = /** @type {HTMLElement} */ (event.target).closest("a");
      if (!inLink && !getSelection()?.toString()) onOpen(row.dataset.head ?? "");
    });
  }

  /** @param {HTMLElement} row @param {number} index */
  function writeRow(row, index) {
    const at = order[index];
    const name = data.names[at];
    row.dataset.head = name;
    row.setAttribute("aria-rowindex", String(index + 2));
    const anchor = /** @type {HTMLAnchorElement} */ (row.firstElementChild?.firstElementChild);
    anchor.textContent = name;
    anchor.href = link(`head/${name}`);
    for (let number = range.from; number < range.to; number++) {
      writeCell(
        /** @type {HTMLElement} */ (row.children[number - range.from + 2]),
        columns[number],
        ranks[number],
        columns[number].values[at],
      );
    }
  }

  /** @param {number[]} rows @param {TableColumn[]} shown @param {TableState} now */
  function show(rows, shown, now) {
    [order, columns, state, range] = [rows, shown, now, {from: 0, to: -1, before: 0, after: 0}];
    ranks = shown.map(sortedOf);
    view.sheet.style.width = `${NAME_WIDTH + shown.reduce((sum, column) => sum + widthOf(column), 0)}px`;
    view.sheet.setAttribute("aria-colcount", String(shown.length + 1));
    view.show(rows.length);
  }

  return {element: view.element, show};
}

/** @param {TableColumn[]} columns @param {number} left @param {number} width */
function visibleColumns(columns, left, width) {
  let [from, to, before, after, at] = [0, 0, 0, 0, NAME_WIDTH];
  columns.forEach((column, index) => {
    const end = at + widthOf(column);
    if (end < left - OVERSCAN) [from, before] = [index + 1, end - NAME_WIDTH];
    if (at <= left + width + OVERSCAN) to = index + 1;
    else after += widthOf(column);
    at = end;
  });
  return {from, to: Math.max(from, to), before, after};
}

/** @param {TableColumn} column */
function widthOf(column) {
  return COLUMN_WIDTHS[column.kind];
}

/** @param {TableColumn[]} columns @param {number} first @param {TableState} state @param {(column: string) => void} onSort */
function header(columns, first, state, onSort) {
  const own = {name: "name", title: "head", study: ""};
  const heading = (column, index) => {
    const on = state.sort === column.name;
    const button = el(
      "button",
      {type: "button", title: column.name, on: {click: () => onSort(column.name)}},
      el("span", {class: "label"}, column.study.replaceAll("_", " ")),
      el("span", {class: "title"}, column.title),
      el("span", {class: "arrow", "aria-hidden": "true"}, on ? (state.up ? "↑" : "↓") : ""),
    );
    return el(
      "th",
      {
        scope: "col",
        class: column.kind ?? "",
        "aria-colindex": String(index),
        "aria-sort": on ? (state.up ? "ascending" : "descending") : "none",
      },
      button,
    );
  };
  return el(
    "tr",
    {"aria-rowindex": "1"},
    heading(own, 1),
    el("td", {class: "spacer-cell"}),
    columns.map((column, index) => heading(column, first + index + 2)),
    el("td", {class: "spacer-cell"}),
  );
}

/** @param {HTMLElement} element @param {TableColumn} column @param {Float64Array | null} sortedValues @param {any} value */
function writeCell(element, column, sortedValues, value) {
  if (column.kind === "text") {
    element.textContent = value ?? "";
    element.title = value ?? "";
    return;
  }
  element.textContent = value === null ? "–" : fixedNumber(value);
  const share = value === null ? 0 : shareBelow(sortedValues ?? [], value);
  element.style.setProperty("--share", value === null ? "0" : String(column.kind === "test" ? 1 - share : share));
}

/**
 * The share of other numbers below this one; ties count half.
 * @param {ArrayLike<number>} sortedValues
 * @param {number} value
 */
export function shareBelow(sortedValues, value) {
  if (sortedValues.length < 2) return 0.5;
  const [below, upTo] = [partitionPoint(sortedValues, (one) => one < value), partitionPoint(sortedValues, (one) => one <= value)];
  return (below + (upTo - below - 1) / 2) / (sortedValues.length - 1);
}

/**
 * The number of leading values that satisfy a condition, by bisection.
 * @param {ArrayLike<number>} sortedValues
 * @param {(value: number) => boolean} so
 */
function partitionPoint(sortedValues, so) {
  let [low, high] = [0, sortedValues.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (so(sortedValues[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Three significant digits with aligned decimals.
 * @param {number} value
 */
export function fixedNumber(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1).replaceAll("-", "−");
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3).replace("-", "−");
}

const sortedCache = new WeakMap(); // a column's sorted numbers, computed once

/** @param {TableColumn} column */
function sortedOf(column) {
  if (column.kind === "text") return null;
  if (!sortedCache.has(column)) sortedCache.set(column, Float64Array.from(column.values.filter((value) => value !== null)).sort());
  return sortedCache.get(column);
}

const ROW_HEIGHT = 28; // pixels, as in style.css
const OVERSCAN_ROWS = 8; // beyond the window, on both sides

/**
 * `fillRow(tr)` adds cells to a new row, `writeRow(tr, index)` writes the row at an index into it. `onScroll(element)` is called on
 * every scroll before rows are written; it may call `reset` to recreate the rows.
 * @returns {{element: HTMLElement, sheet: HTMLElement, show: (count: number) => void, reset: () => void}}
 * @param {HTMLElement[]} parts
 * @param {{fillRow: (row: HTMLElement) => void, writeRow: (row: HTMLElement, index: number) => void, label: string, onScroll?: (element: HTMLElement) => void}} options
 */
function virtualRows(parts, {fillRow, writeRow, label, onScroll = () => {}}) {
  const [above, below] = [spacer(), spacer()];
  const body = el("tbody", {}, above, below);
  const sheet = el("table", {class: "heads-table"}, parts, body);
  const element = el("div", {class: "rows", tabindex: "0", role: "region", "aria-label": label}, sheet);
  let count = 0;
  /** @type {HTMLElement[]} */
  let rows = [];
  let first = -1;
  let printing = false; // paper does not scroll: all rows exist

  function paint() {
    onScroll(element);
    const room = printing ? count : Math.ceil((element.clientHeight || 600) / ROW_HEIGHT) + 2 * OVERSCAN_ROWS;
    const wanted = Math.min(count, room);
    const start = Math.max(0, Math.min(Math.floor(element.scrollTop / ROW_HEIGHT) - OVERSCAN_ROWS, count - wanted));
    if (start === first && rows.length === wanted) return;
    const moved = start - first;
    if (first < 0 || rows.length !== wanted || Math.abs(moved) >= wanted) fillRows(start, wanted);
    else if (moved > 0)
      for (let step = 0; step < moved; step++) moveRow(/** @type {HTMLElement} */ (rows.shift()), first + wanted + step, true);
    else for (let step = 1; step <= -moved; step++) moveRow(/** @type {HTMLElement} */ (rows.pop()), first - step, false);
    first = start;
    spacerCell(above).style.height = `${start * ROW_HEIGHT}px`;
    spacerCell(below).style.height = `${(count - start - rows.length) * ROW_HEIGHT}px`;
  }

  /**
   * Write all rows.
   * @param {number} start
   * @param {number} wanted
   */
  function fillRows(start, wanted) {
    while (rows.length < wanted) {
      const row = el("tr");
      fillRow(row);
      rows.push(row);
      below.before(row);
    }
    for (const row of rows.splice(wanted)) row.remove();
    rows.forEach((row, index) => writeRow(row, start + index));
  }

  /**
   * Move one row from one end to the other.
   * @param {HTMLElement} row
   * @param {number} index
   * @param {boolean} down
   */
  function moveRow(row, index, down) {
    if (down) below.before(row);
    else above.after(row);
    rows[down ? "push" : "unshift"](row);
    writeRow(row, index);
  }

  let asked = 0;
  element.addEventListener(
    "scroll",
    () => {
      asked ||= requestAnimationFrame(() => {
        asked = 0;
        paint();
      });
    },
    {passive: true},
  );
  new ResizeObserver(paint).observe(element);
  const setPrinting = (/** @type {boolean} */ now) => {
    printing = now;
    if (element.isConnected) paint();
  };
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));

  return {
    element,
    sheet,
    show(number) {
      count = number;
      first = -1;
      sheet.setAttribute("aria-rowcount", String(number + 1));
      if (element.scrollTop > number * ROW_HEIGHT) element.scrollTop = 0;
      paint();
    },
    reset() {
      rows.forEach((row) => row.remove());
      rows = [];
      first = -1;
    },
  };
}

function spacer() {
  return el("tr", {class: "spacer", "aria-hidden": "true"}, el("td", {colspan: "1000"}));
}

/** @param {HTMLElement} row */
function spacerCell(row) {
  return /** @type {HTMLElement} */ (row.firstElementChild);
}
