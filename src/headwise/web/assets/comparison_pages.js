// Two pages about pairs: agreement between studies (`analysis.Agreement`), and this atlas compared with another (`analysis.Comparison`).

import {loadData} from "headwise/data_loader";
import {el, table} from "headwise/dom";
import {saveFile, toCsv} from "headwise/downloads";
import {figureSection} from "headwise/figure_section";
import {formatNumber} from "headwise/numbers";
import {linkHeads, proseSections} from "headwise/prose";
import {link} from "headwise/router";

/**
 * Agreement between studies.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} pageContext
 */
export async function agreementPage(main, {query}, {atlas}) {
  const found = await loadData("agreement");
  const figures = figureSection(found.figures, {
    name: `${atlas.model.short}-agreement`,
    describe: found.short,
    initial: query.get("figure"),
  });
  main.append(
    el(
      "header",
      {class: "study-header"},
      el("p", {class: "label"}, "All studies"),
      el("h1", {}, "Do the studies agree?"),
      el("p", {class: "lede"}, linkHeads(found.short)),
    ),
    figures.element,
    el("div", {class: "reading"}, el("div", {class: "column"}, proseSections(found.words))),
    pairTable(found.pairs, atlas) ?? "",
  );
  await figures.show();
  return {leave: figures.remove};
}

/** @param {any} all @param {AtlasInfo} atlas */
function pairTable(all, atlas) {
  if (!all?.length) return null;
  const titles = [
    "Pair",
    "Overlap",
    "Expected by chance",
    "Odds ratio",
    "q of overlap",
    "Correlation",
    "Expected by layer",
    "Within layers",
    "q of correlation",
  ];
  const rows = [...all]
    .sort((a, b) => smallestQ(a) - smallestQ(b) || Math.abs(b.correlation_within) - Math.abs(a.correlation_within))
    .map((one) => [
      `${one.first} · ${one.second}`,
      `${one.count} of ${one.first_size} and ${one.second_size}`,
      `${formatNumber(one.expected)} (${formatNumber(one.expected_low)} to ${formatNumber(one.expected_high)})`,
      formatNumber(one.odds_ratio),
      boldIfSignificant(one.q),
      formatNumber(one.correlation),
      formatNumber(one.correlation_expected),
      formatNumber(one.correlation_within),
      boldIfSignificant(one.correlation_q),
    ]);
  const names = Object.keys(all[0]);
  const sheet = () =>
    toCsv([names, ...all.map((one) => names.map((name) => (Array.isArray(one[name]) ? one[name].join(" ") : one[name])))]);
  return el(
    "section",
    {class: "table-section"},
    el("h2", {}, "Every pair"),
    el(
      "p",
      {class: "small"},
      "Sorted by the smaller of the two q-values, both from permutation tests within layers. A dash: a set is empty, or no permutation within layers changes the overlap.",
    ),
    el(
      "div",
      {class: "plain-table", tabindex: "0", role: "region", "aria-label": "Every pair"},
      table(null, titles, rows, {class: "values"}),
    ),
    el(
      "div",
      {class: "figure-tools"},
      el("span", {class: "label"}, "Download"),
      el(
        "button",
        {
          type: "button",
          class: "plain",
          "aria-label": "Download as CSV",
          on: {click: () => saveFile(`${atlas.model.short}-agreement.csv`, "text/csv", sheet())},
        },
        "CSV",
      ),
    ),
  );
}

/**
 * The smaller q of the two; 2 where there is none.
 * @param {any} one
 */
function smallestQ(one) {
  return Math.min(one.q ?? 2, one.correlation_q ?? 2);
}

/** @param {number | null} q */
function boldIfSignificant(q) {
  return q !== null && q < 0.05 ? el("strong", {}, formatNumber(q)) : formatNumber(q);
}

/**
 * This atlas compared with the one in the route.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} pageContext
 */
export async function comparePage(main, {rest: [other], query}, {atlas}) {
  const found = await loadData(`compare/${other}`);
  const figures = figureSection(found.figures ?? [], {
    name: `${atlas.name}-against-${other}`,
    describe: found.short ?? "",
    initial: query.get("figure"),
  });
  main.append(
    el(
      "header",
      {class: "study-header"},
      el("p", {class: "label"}, "Comparison"),
      el("h1", {}, `${atlas.name} compared with ${other}`),
      found.short ? el("p", {class: "lede"}, linkHeads(found.short)) : null,
    ),
    figures.element,
    el("div", {class: "reading"}, el("div", {class: "column"}, proseSections(found.words ?? {}))),
    changedHeads(found.table) ?? "",
  );
  await figures.show();
  return {leave: figures.remove};
}

/**
 * The heads that changed most: `{names, columns: [{name, values}]}`.
 * @param {any} sheet
 */
function changedHeads(sheet) {
  if (!sheet?.names?.length) return null;
  const titles = ["Head", ...sheet.columns.map((column) => column.name)];
  const rows = sheet.names.map((name, row) => [
    el("a", {class: "head", href: link(`head/${name}`)}, name),
    ...sheet.columns.map((column) => formatCell(column.values[row])),
  ]);
  return el(
    "section",
    {class: "table-section"},
    el("h2", {}, "Heads that changed most"),
    el(
      "div",
      {class: "plain-table", tabindex: "0", role: "region", "aria-label": "Heads that changed most"},
      table(null, titles, rows, {class: "values"}),
    ),
  );
}

/** @param {any} value */
function formatCell(value) {
  return typeof value === "number" || value === null ? formatNumber(value) : String(value);
}
