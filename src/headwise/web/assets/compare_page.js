// This atlas against another of the server: what analysis.comparison found, in figures, words and a table.

import {el, table} from "headwise/element";
import {figureSection} from "headwise/figure_section";
import {told} from "headwise/numbers";
import {link} from "headwise/router";
import {get} from "headwise/source";
import {linked, prose} from "headwise/words";

/** The page of the other atlas that the route names. */
export async function page(main, {rest: [other], query}, {atlas}) {
  const found = await get(`compare/${other}`);
  const figures = figureSection(found.figures ?? [], {name: `${atlas.name}-against-${other}`, describe: found.short ?? "", wanted: query.get("figure")});
  main.append(
    el("header", {class: "study-header"}, el("p", {class: "label"}, "Comparison"), el("h1", {}, `${atlas.name} against ${other}`),
      found.short ? el("p", {class: "lede"}, linked(found.short)) : null),
    figures.element,
    el("div", {class: "reading"}, el("div", {class: "column"}, prose(found.words ?? {}))),
    changed(found.table));
  await figures.show();
  return {leave: figures.leave};
}

/** The heads that changed most: `{names, columns: [{name, values}]}`. */
function changed(sheet) {
  if (!sheet?.names?.length) return null;
  const titles = ["Head", ...sheet.columns.map((column) => column.name)];
  const rows = sheet.names.map((name, row) => [el("a", {class: "head", href: link(`head/${name}`)}, name),
    ...sheet.columns.map((column) => cell(column.values[row]))]);
  return el("section", {class: "table-section"}, el("h2", {}, "Heads that changed most"),
    el("div", {class: "plain-table", tabindex: "0", role: "region", "aria-label": "Heads that changed most"}, table(null, titles, rows, {class: "values"})));
}

function cell(value) {
  return typeof value === "number" || value === null ? told(value) : String(value);
}
