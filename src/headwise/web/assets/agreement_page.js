// Do the studies agree about heads? The figures and words of analysis.agreement, and its pairs as a table.

import {csv, save} from "headwise/download";
import {el, table} from "headwise/element";
import {figureSection} from "headwise/figure_section";
import {told} from "headwise/numbers";
import {get} from "headwise/source";
import {linked, prose} from "headwise/words";

/** The page. */
export async function page(main, {query}, {atlas}) {
  const found = await get("agreement");
  const figures = figureSection(found.figures, {name: `${atlas.model.short}-agreement`, describe: found.short, wanted: query.get("figure")});
  main.append(
    el("header", {class: "study-header"}, el("p", {class: "label"}, "All studies joined"), el("h1", {}, "Do the studies agree?"),
      el("p", {class: "lede"}, linked(found.short))),
    figures.element,
    el("div", {class: "reading"}, el("div", {class: "column"}, prose(found.words))),
    pairs(found.pairs, atlas));
  await figures.show();
  return {leave: figures.leave};
}

function pairs(all, atlas) {
  if (!all?.length) return null;
  const titles = ["Pair", "In both", "By chance", "Odds ratio", "q of overlap", "Correlation", "By depth alone", "Within layers", "q of correlation"];
  const rows = [...all].sort((a, b) => surprise(a) - surprise(b) || Math.abs(b.correlation_within) - Math.abs(a.correlation_within)).map((one) => [
    `${one.first} · ${one.second}`, `${one.count} of ${one.first_size} and ${one.second_size}`,
    `${told(one.expected)} (${told(one.expected_low)} to ${told(one.expected_high)})`, told(one.odds_ratio), strong(one.q),
    told(one.correlation), told(one.correlation_expected), told(one.correlation_within), strong(one.correlation_q)]);
  const names = Object.keys(all[0]);
  const sheet = () => csv([names, ...all.map((one) => names.map((name) => (Array.isArray(one[name]) ? one[name].join(" ") : one[name])))]);
  return el("section", {class: "table-section"}, el("h2", {}, "Every pair"),
    el("p", {class: "small"}, "The smaller of the two q-values first. Both come from heads permuted within layers. A dash: a set is empty, or no permutation within layers changes the overlap."),
    el("div", {class: "plain-table", tabindex: "0", role: "region", "aria-label": "Every pair"}, table(null, titles, rows, {class: "values"})),
    el("div", {class: "figure-tools"}, el("span", {class: "label"}, "Take away"), el("button", {type: "button", class: "plain", "aria-label": "Save as CSV",
      on: {click: () => save(`${atlas.model.short}-agreement.csv`, "text/csv", sheet())}}, "CSV")));
}

/** The smaller q of the two; 2 where there is none. */
function surprise(one) {
  return Math.min(one.q ?? 2, one.correlation_q ?? 2);
}

function strong(q) {
  return q !== null && q < 0.05 ? el("strong", {}, told(q)) : told(q);
}
