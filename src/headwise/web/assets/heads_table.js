// The rows of the table of heads: names at the left that stay, a header that sorts, a bar under each number.
//
// Rows and columns out of sight do not exist (`rows`): all columns of a kind are equally wide, so the place of each is known,
// and one empty cell on either side stands for those that are not there. A bar is as long as the share of all heads with a
// smaller number (those with the same count half); for p- and q-values with a larger one, so that a long bar is always what
// one looks for. `BARS` says so to the reader.

import {el} from "headwise/element";
import {link} from "headwise/router";
import {virtualRows} from "headwise/rows";

export const BARS = "The bar under a number is the share of all heads whose number is smaller (of p and q: larger).";
const NAME = 84; // pixels of the first column
const WIDTHS = {number: 104, test: 104, text: 190};
const BESIDE = 200; // pixels beyond the window in which columns are there already

/** Rows of `data`; `opened(name)` and `sorted(column)` hear what the reader does. */
export function headRows(data, {opened, sorted}) {
  let order = [];
  let columns = [];
  let ranks = [];
  let state = {};
  let sight = null; // {from, to, before, after}: which columns are there
  const [head, widths] = [el("thead"), el("colgroup")];
  const view = virtualRows([widths, head], {make, write, label: "All heads", scrolled: look});

  function look(element) {
    const next = sightOf(columns, element.scrollLeft, element.clientWidth || 1200);
    if (sight && next.from === sight.from && next.to === sight.to) return;
    sight = next;
    const held = head.contains(document.activeElement) ? document.activeElement.title : null;
    const shown = columns.slice(sight.from, sight.to);
    widths.replaceChildren(...[NAME, sight.before, ...shown.map(widthOf), sight.after].map((width) => el("col", {width: String(width)})));
    head.replaceChildren(header(shown, sight.from, state, sorted));
    if (held) [...head.querySelectorAll("button")].find((button) => button.title === held)?.focus({preventScroll: true});
    view.reset();
  }

  function make(row) {
    const shown = columns.slice(sight.from, sight.to);
    row.append(el("th", {scope: "row"}, el("a", {})), el("td", {class: "beside"}),
      ...shown.map((column, place) => el("td", {class: column.kind, "aria-colindex": String(sight.from + place + 2)})), el("td", {class: "beside"}));
    row.addEventListener("click", (event) => event.target.closest("a") || getSelection().toString() || opened(row.dataset.head));
  }

  function write(row, place) {
    const at = order[place];
    const name = data.names[at];
    row.dataset.head = name;
    row.setAttribute("aria-rowindex", String(place + 2));
    const anchor = row.firstChild.firstChild;
    anchor.textContent = name;
    anchor.href = link(`head/${name}`);
    for (let number = sight.from; number < sight.to; number++) {
      cell(row.children[number - sight.from + 2], columns[number], ranks[number], columns[number].values[at]);
    }
  }

  function show(rows, shown, now) {
    [order, columns, state, sight] = [rows, shown, now, null];
    ranks = shown.map(sortedOf);
    view.sheet.style.width = `${NAME + shown.reduce((sum, column) => sum + widthOf(column), 0)}px`;
    view.sheet.setAttribute("aria-colcount", String(shown.length + 1));
    view.show(rows.length);
  }

  return {element: view.element, show};
}

function sightOf(columns, left, width) {
  let [from, to, before, after, at] = [0, 0, 0, 0, NAME];
  columns.forEach((column, place) => {
    const end = at + widthOf(column);
    if (end < left - BESIDE) [from, before] = [place + 1, end - NAME];
    if (at <= left + width + BESIDE) to = place + 1;
    else after += widthOf(column);
    at = end;
  });
  return {from, to: Math.max(from, to), before, after};
}

function widthOf(column) {
  return WIDTHS[column.kind];
}

function header(columns, first, state, sorted) {
  const own = {name: "name", title: "head", study: ""};
  const heading = (column, place) => {
    const on = state.sort === column.name;
    const button = el("button", {type: "button", title: column.name, on: {click: () => sorted(column.name)}},
      el("span", {class: "label"}, column.study.replaceAll("_", " ")), el("span", {class: "title"}, column.title),
      el("span", {class: "arrow", "aria-hidden": "true"}, on ? (state.up ? "↑" : "↓") : ""));
    return el("th", {scope: "col", class: column.kind ?? "", "aria-colindex": String(place),
      "aria-sort": on ? (state.up ? "ascending" : "descending") : "none"}, button);
  };
  return el("tr", {"aria-rowindex": "1"}, heading(own, 1), el("td", {class: "beside"}),
    columns.map((column, place) => heading(column, first + place + 2)), el("td", {class: "beside"}));
}

function cell(place, column, sorted, value) {
  if (column.kind === "text") {
    place.textContent = value ?? "";
    place.title = value ?? "";
    return;
  }
  place.textContent = value === null ? "–" : written(value);
  const share = value === null ? 0 : shareBelow(sorted, value);
  place.style.setProperty("--share", value === null ? "0" : String(column.kind === "test" ? 1 - share : share));
}

/** The share of other numbers below this one; those that are equal count half. */
export function shareBelow(sorted, value) {
  if (sorted.length < 2) return 0.5;
  const [below, upTo] = [placeOf(sorted, (one) => one < value), placeOf(sorted, (one) => one <= value)];
  return (below + (upTo - below - 1) / 2) / (sorted.length - 1);
}

/** How many of the first numbers are so; halving, since they are sorted. */
function placeOf(sorted, so) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (so(sorted[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Three significant digits, in figures that stand under each other. */
export function written(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1).replaceAll("-", "−");
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3).replace("-", "−");
}

const kept = new WeakMap(); // a column's numbers in order: sorted once, however often rows are filtered

function sortedOf(column) {
  if (column.kind === "text") return null;
  if (!kept.has(column)) kept.set(column, Float64Array.from(column.values.filter((value) => value !== null)).sort());
  return kept.get(column);
}
