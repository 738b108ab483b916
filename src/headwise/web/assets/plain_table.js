// A long table of texts, such as all questions with their answers: a filter box over a window that scrolls.

import {el} from "headwise/element";

const ROW = 200; // rows that are added at a time

/** `{columns: [{title, values}]}` as a table; what is typed into the box must occur in a row. */
export function plainTable({columns}, caption) {
  const rows = columns[0]?.values.map((_, place) => columns.map((column) => column.values[place])) ?? [];
  const body = el("tbody");
  const count = el("p", {class: "count", role: "status"});
  const box = el("input", {type: "search", placeholder: "words to look for", "aria-label": "Filter the rows", "data-filter": true});
  const view = el("div", {class: "plain-table", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {}, el("thead", {}, el("tr", {}, columns.map((column) => el("th", {scope: "col"}, column.title)))), body));
  let shown = rows;
  let until = 0;
  const more = () => {
    body.append(...shown.slice(until, until + ROW).map((row) => el("tr", {}, row.map((cell, place) => el("td", {"data-column": columns[place].title}, cell)))));
    until += ROW;
  };
  const fill = () => {
    const wanted = box.value.trim().toLowerCase();
    shown = wanted ? rows.filter((row) => row.some((cell) => cell.toLowerCase().includes(wanted))) : rows;
    until = 0;
    body.replaceChildren();
    more();
    count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  };
  box.addEventListener("input", fill);
  view.addEventListener("scroll", () => until < shown.length && view.scrollTop + view.clientHeight > view.scrollHeight - 400 && more());
  fill();
  return el("section", {class: "table-section"}, el("div", {class: "table-tools"}, box, count), view);
}
