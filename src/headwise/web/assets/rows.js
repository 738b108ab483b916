// A table of thousands of heads that scrolls smoothly: only the rows in sight exist, and they are used again.
//
// All rows are equally high, so the place of each is known; two empty rows stand for those above and below. Scrolling takes
// rows from one end of the window to the other and rewrites only these. This module does not know what a column means.

import {el} from "headwise/element";

const HEIGHT = 28; // pixels of a row, as style.css has it
const MORE = 8; // rows beyond the window on both sides

/**
 * `make(tr)` fills a fresh row with cells, `write(tr, place)` writes the row at a place into it. `scrolled(element)` hears of
 * every move of the window before rows are written; it may call `reset` when rows are to be made anew.
 * @returns {{element: HTMLElement, sheet: HTMLElement, show: (count: number) => void, reset: () => void}}
 */
export function virtualRows(parts, {make, write, label, scrolled = () => {}}) {
  const [above, below] = [spacer(), spacer()];
  const body = el("tbody", {}, above, below);
  const sheet = el("table", {class: "heads-table"}, parts, body);
  const element = el("div", {class: "rows", tabindex: "0", role: "region", "aria-label": label}, sheet);
  let count = 0;
  let rows = [];
  let first = -1;
  let printing = false; // paper does not scroll: all rows exist

  function paint() {
    scrolled(element);
    const room = printing ? count : Math.ceil((element.clientHeight || 600) / HEIGHT) + 2 * MORE;
    const wanted = Math.min(count, room);
    const start = Math.max(0, Math.min(Math.floor(element.scrollTop / HEIGHT) - MORE, count - wanted));
    if (start === first && rows.length === wanted) return;
    const moved = start - first;
    if (first < 0 || rows.length !== wanted || Math.abs(moved) >= wanted) fill(start, wanted);
    else if (moved > 0) for (let step = 0; step < moved; step++) carry(rows.shift(), first + wanted + step, true);
    else for (let step = 1; step <= -moved; step++) carry(rows.pop(), first - step, false);
    first = start;
    above.firstChild.style.height = `${start * HEIGHT}px`;
    below.firstChild.style.height = `${(count - start - rows.length) * HEIGHT}px`;
  }

  /** All rows anew. */
  function fill(start, wanted) {
    while (rows.length < wanted) {
      const row = el("tr");
      make(row);
      rows.push(row);
      below.before(row);
    }
    for (const row of rows.splice(wanted)) row.remove();
    rows.forEach((row, place) => write(row, start + place));
  }

  /** One row from one end to the other. */
  function carry(row, place, down) {
    if (down) below.before(row);
    else above.after(row);
    rows[down ? "push" : "unshift"](row);
    write(row, place);
  }

  let asked = 0;
  element.addEventListener("scroll", () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      paint();
    });
  }, {passive: true});
  new ResizeObserver(paint).observe(element);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = now;
      if (element.isConnected) paint();
    });
  }

  return {
    element,
    sheet,
    show(number) {
      count = number;
      first = -1;
      sheet.setAttribute("aria-rowcount", String(number + 1));
      if (element.scrollTop > number * HEIGHT) element.scrollTop = 0;
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
