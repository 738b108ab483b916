// Elements created so that text stays text: children are written with textContent, never as HTML.
//
//     el("p", {class: "lede"}, "Heads that attend to ", el("code", {}, token))

import {duration} from "headwise/numbers";

/**
 * An element with attributes (on: {event: listener} for listeners) and children: elements, text, or nothing.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} name @param {Record<string, any>} [attributes] @param {...any} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/**
 * Tell how long something takes, every second from the second one on ("3 s"); returns a function that ends it.
 * @param {(time: string) => void} tell
 */
export function countSeconds(tell) {
  const start = performance.now();
  const timer = setInterval(() => performance.now() - start >= FIRST_TOLD && tell(duration(performance.now() - start)), INTERVAL);
  return () => clearInterval(timer);
}

const INTERVAL = 500; // milliseconds
const FIRST_TOLD = 2000;

/**
 * A table with a header row; cells are text, elements, or whole td elements, which may span columns.
 * @param {string | null} caption
 * @param {any[]} titles
 * @param {any[][]} rows
 * @param {Record<string, any>} [attributes]
 */
export function table(caption, titles, rows, attributes = {}) {
  return el(
    "table",
    attributes,
    caption ? el("caption", {}, caption) : null,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        titles.map((title) => el("th", {scope: "col"}, title)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) =>
        el(
          "tr",
          {},
          row.map((cell, index) =>
            cell instanceof HTMLTableCellElement ? cell : el(index ? "td" : "th", index ? {} : {scope: "row"}, cell),
          ),
        ),
      ),
    ),
  );
}

/**
 * Facts as a list of labels and values.
 * @param {Fact[]} entries
 */
export function factList(entries) {
  return el(
    "dl",
    {class: "facts"},
    entries.map(({label, value}) => el("div", {}, el("dt", {}, label), el("dd", {}, value))),
  );
}

/**
 * The 2D context of a canvas.
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
export function context2d(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}
