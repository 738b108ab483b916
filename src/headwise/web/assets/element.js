// Elements of a page, made so that text stays text: what is given as a child is written with textContent, never as HTML.
//
//     el("p", {class: "lede"}, "Heads that look at ", el("code", {}, token))

/** An element with attributes (on: {event: listener} for listeners) and children: elements, text, or nothing. */
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

/** A table with a header row; cells are text, elements, or whole cells (td), which may be wide. */
export function table(caption, titles, rows, attributes = {}) {
  return el("table", attributes,
    caption ? el("caption", {}, caption) : null,
    el("thead", {}, el("tr", {}, titles.map((title) => el("th", {scope: "col"}, title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) => cell instanceof HTMLTableCellElement ? cell : el(place ? "td" : "th", place ? {} : {scope: "row"}, cell))))));
}

/** Facts as a list of labels and values. */
export function facts(entries) {
  return el("dl", {class: "facts"}, entries.map(({label, value}) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
}
