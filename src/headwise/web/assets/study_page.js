// A study's page: question, figure with a switch between variants, words, method; and the print page with all studies.
//
// The answers study has a long table of questions with a filter box. The print page shows each study's first figure as vectors on
// white, and is complete before it reports that it is ready, so that a printing program misses nothing.

import {loadData} from "headwise/data_loader";
import {el, factList} from "headwise/dom";
import {figureSection} from "headwise/figure_section";
import {overviewPage as overview} from "headwise/overview_page";
import {linkHeads, proseSections, section} from "headwise/prose";
import {link, navigate, replaceUrl} from "headwise/router";
import {toSvg} from "headwise/svg_export";

/**
 * The page of the study in the route.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} context
 */
export async function studyPage(main, {rest: [key], query}, context) {
  const study = await loadData(`study/${key}`);
  const order = context.atlas.studies.map((one) => one.key);
  const index = order.indexOf(key);
  const figures = figureSection(study.figures, {
    name: `${context.atlas.model.short}-${key}`,
    describe: study.short,
    initial: query.get("figure"),
    onSwitch: (figure) => replaceUrl(`study/${key}`, {figure}),
  });
  main.append(
    el(
      "header",
      {class: "study-header"},
      el("p", {class: "label"}, `Study ${index + 1} of ${order.length} · ${key.replaceAll("_", " ")}`),
      el("h1", {}, study.question || study.title),
      el("p", {class: "lede"}, linkHeads(study.short)),
    ),
    figures.element,
    study.table ? textTable(study.table, `${study.title}, all rows`) : "",
    el(
      "div",
      {class: "reading"},
      el("div", {class: "column"}, proseSections(study.words, study.caveats)),
      el("aside", {class: "margin"}, methodSection(study), provenanceSection(study)),
    ),
    studyPager(order, index, context.atlas.studies),
  );
  await figures.show();
  const open = (step) => order[index + step] && navigate(`study/${order[index + step]}`);
  return {keys: {j: () => open(1), k: () => open(-1)}, leave: figures.remove};
}

/** @param {any} options */
function methodSection({method}) {
  if (!method) return null;
  const source =
    method.source &&
    el(
      "p",
      {class: "source"},
      "After ",
      method.link ? el("a", {href: method.link, target: "_blank", rel: "noreferrer"}, method.source) : method.source,
      ".",
    );
  return el("section", {}, el("h2", {class: "label"}, "Method"), el("p", {}, method.text), source);
}

/** @param {any} study */
function provenanceSection(study) {
  return el("section", {}, el("h2", {class: "label"}, "Provenance"), factList(study.provenance));
}

/** @param {string[]} order @param {number} index @param {StudyEntry[]} studies */
function studyPager(order, index, studies) {
  const one = (step, label) => {
    const other = studies[index + step];
    return other
      ? el("a", {href: link(`study/${other.key}`), class: step < 0 ? "back" : "on"}, el("span", {class: "label"}, label), other.title)
      : el("span", {});
  };
  return el("nav", {class: "study-pager", "aria-label": "Other studies"}, one(-1, "Previous"), one(1, "Next"));
}

const ROWS_PER_BATCH = 200; // rows

/**
 * `{columns: [{title, values}]}` as a table, filtered by the text in a box.
 * @param {{columns: {title: string, values: string[]}[]}} options
 * @param {string} caption
 */
function textTable({columns}, caption) {
  const rows = columns[0]?.values.map((_, index) => columns.map((column) => column.values[index])) ?? [];
  const body = el("tbody");
  const count = el("p", {class: "count", role: "status"});
  const box = el("input", {type: "search", placeholder: "filter by text", "aria-label": "Filter the rows", "data-filter": true});
  const view = el(
    "div",
    {class: "plain-table", tabindex: "0", role: "region", "aria-label": caption},
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map((column) => el("th", {scope: "col"}, column.title)),
        ),
      ),
      body,
    ),
  );
  let shown = rows;
  let until = 0;
  const appendRows = () => {
    body.append(
      ...shown.slice(until, until + ROWS_PER_BATCH).map((row) =>
        el(
          "tr",
          {},
          row.map((cell, index) => el("td", {"data-column": columns[index].title}, cell)),
        ),
      ),
    );
    until += ROWS_PER_BATCH;
  };
  const update = () => {
    const wanted = box.value.trim().toLowerCase();
    shown = wanted ? rows.filter((row) => row.some((cell) => cell.toLowerCase().includes(wanted))) : rows;
    until = 0;
    body.replaceChildren();
    appendRows();
    count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  };
  box.addEventListener("input", update);
  view.addEventListener(
    "scroll",
    () => until < shown.length && view.scrollTop + view.clientHeight > view.scrollHeight - 400 && appendRows(),
  );
  update();
  return el("section", {class: "table-section"}, el("div", {class: "table-tools"}, box, count), view);
}

/**
 * All studies on one page, for print.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} context
 */
export async function printPage(main, route, context) {
  main.append(
    el(
      "p",
      {class: "print-tools"},
      el("button", {type: "button", on: {click: () => print()}}, "Print, or save as PDF"),
      "All studies, on one page, each with its first figure.",
    ),
  );
  const first = el("div", {class: "page-overview"});
  await overview(first, route, context);
  main.append(first);
  for (const {key} of context.atlas.studies) main.append(await printedStudy(key));
}

/** @param {string} key */
async function printedStudy(key) {
  const study = await loadData(`study/${key}`);
  return el(
    "article",
    {class: "chapter"},
    el("h1", {}, study.question || study.title),
    el("p", {class: "lede"}, study.short),
    study.figures.length ? await printedFigure(study) : null,
    el(
      "div",
      {class: "chapter-words"},
      proseSections(study.words, study.caveats),
      study.method
        ? section(
            "Method",
            [study.method.text, study.method.source ? `After ${study.method.source} (${study.method.link}).` : ""].filter(Boolean),
            {flowing: true},
          )
        : null,
    ),
    el("section", {class: "chapter-origin"}, factList(study.provenance)),
  );
}

/** @param {any} study */
async function printedFigure(study) {
  const svg = await toSvg(await loadData(study.figures[0].path));
  const image = el("img", {alt: study.short, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`});
  await image.decode().catch(() => {});
  return el("figure", {}, image);
}
