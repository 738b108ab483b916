// A head's page: all studies' results for one head, compared with all other heads (`analysis.HeadReport`).

import {loadData} from "headwise/data_loader";
import {context2d, el, table} from "headwise/dom";
import {drawFigure} from "headwise/figure";
import {attentionFigure, visibleToken} from "headwise/head_attention";
import {formatNumber} from "headwise/numbers";
import {linkHeads} from "headwise/prose";
import {link, navigate} from "headwise/router";
import {rugPlot} from "headwise/rug_plot";
import {cssColour, paintOnThemeChange} from "headwise/theme";

/**
 * The page of the head in the route.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} pageContext
 */
export async function headPage(main, {rest: [name = ""]}, {atlas}) {
  const [report, table] = await Promise.all([loadData(`head/${name.toUpperCase()}`), loadData("heads")]);
  const adjacent = adjacentHeads(report);
  const container = el("div", {class: "figure-container"});
  const figure = report.patterns ? await attentionFigure(report) : null;
  main.append(
    el(
      "header",
      {class: "study-header"},
      el("p", {class: "label"}, `Layer ${report.layer} of ${report.layers} · head ${report.head} of ${report.heads}, counted from 0`),
      el("h1", {}, report.name),
      el("p", {class: "lede"}, linkHeads(report.summary)),
      headPager(adjacent),
    ),
    el(
      "div",
      {class: "head-report"},
      el(
        "div",
        {class: "column wide"},
        consistencyList(report),
        figure ? el("section", {class: "figure-section", "aria-label": "Attention maps"}, el("h2", {}, "Attention maps"), container) : null,
        studyOrder(report.values, atlas).map((study) => valueTable(report, study, table)),
        functionTable(report),
        relationList(report),
        salientTokens(report),
      ),
      el(
        "aside",
        {class: "margin"},
        el(
          "section",
          {},
          el("h2", {class: "label"}, "Location in the model"),
          locator(report, (other) => navigate(`head/${other}`)),
        ),
        similarHeads(report),
        missingStudies(report),
      ),
    ),
  );
  const open = (other) => other && navigate(`head/${other}`);
  /** @type {FigureHandle | null} */
  let handle = null;
  return {
    keys: {
      j: () => open(adjacent.next),
      k: () => open(adjacent.previous),
      ArrowRight: () => open(adjacent.right),
      ArrowLeft: () => open(adjacent.left),
      ArrowDown: () => open(adjacent.below),
      ArrowUp: () => open(adjacent.above),
    },
    shown() {
      if (figure) handle = drawFigure(container, figure, {describe: `Attention of ${report.name}`});
    },
    leave: () => handle?.remove?.(),
  };
}

/**
 * Studies in the order of the navigation.
 * @param {Record<string, HeadValue[]>} values
 * @param {AtlasInfo} atlas
 */
function studyOrder(values, atlas) {
  const known = atlas.studies.map((study) => study.key);
  return Object.keys(values).sort((a, b) => known.indexOf(a) - known.indexOf(b));
}

/**
 * The adjacent heads: in reading order, and in the grid.
 * @param {HeadReport} headReport
 */
function adjacentHeads({layer, head, layers, heads}) {
  const at = (row, column) => (row >= 0 && row < layers && column >= 0 && column < heads ? `L${row}H${column}` : null);
  const index = layer * heads + head;
  const headAt = (one) => (one >= 0 && one < layers * heads ? at(Math.floor(one / heads), one % heads) : null);
  return {
    previous: headAt(index - 1),
    next: headAt(index + 1),
    left: at(layer, head - 1),
    right: at(layer, head + 1),
    above: at(layer - 1, head),
    below: at(layer + 1, head),
  };
}

/** @param {{previous: string | null, next: string | null}} options */
function headPager({previous, next}) {
  const one = (name, text, rel) => (name ? el("a", {href: link(`head/${name}`), rel, class: "head"}, text) : null);
  return el(
    "nav",
    {class: "head-pager", "aria-label": "Other heads"},
    one(previous, `← ${previous}`, "prev"),
    one(next, `${next} →`, "next"),
    el("a", {href: link("heads")}, "All heads"),
  );
}

/**
 * One study's numbers with rug plots; numbers that are equal for all heads are only listed.
 * @param {HeadReport} report
 * @param {string} study
 * @param {HeadTableData} heads
 */
function valueTable(report, study, heads) {
  const columns = new Map(heads.columns.map((column) => [column.name, column.values]));
  const constant = report.values[study].filter((one) => allEqual(columns.get(one.key)));
  const list = report.values[study].filter((one) => !constant.includes(one));
  const tested = list.some((one) => one.p !== null);
  const titles = ["", "Among all heads", "Value", "95 % CI", "Percentile", ...(tested ? ["p", "q"] : [])];
  const rows = list.map((one) => [
    el("span", {title: one.definition}, one.label),
    columns.has(one.key) ? rugPlot(one, columns.get(one.key) ?? []) : "",
    formatNumber(one.value),
    one.low === null ? "" : `${formatNumber(one.low)} to ${formatNumber(one.high)}`,
    one.percentile === null ? "" : percent(one.percentile),
    ...(tested ? [one.p === null ? "" : formatNumber(one.p), one.q === null ? "" : significant(one.q)] : []),
  ]);
  const base = list.find((one) => one.baseline_name)?.baseline_name;
  const notes = [
    base ? `Triangle: ${base}.` : "",
    constant.length
      ? `Equal for all heads: ${constant.map((one) => `${one.label.toLowerCase()} ${formatNumber(one.value)}`).join(", ")}.`
      : "",
  ];
  return el(
    "section",
    {class: "fact"},
    el("h2", {}, el("a", {href: link(`study/${study}`)}, report.titles[study] ?? study)),
    list.length ? scrollable(table(null, titles, rows, {class: `values rug-plots${tested ? " tested" : ""}`})) : null,
    notes.some(Boolean) ? el("p", {class: "small"}, notes.filter(Boolean).join(" ")) : null,
  );
}

/** @param {any[] | undefined} column */
function allEqual(column) {
  const known = column?.filter((one) => one !== null) ?? [];
  return known.length > 1 && known.every((one) => one === known[0]);
}

/**
 * Agreement between weight-based and data-based results.
 * @param {HeadReport} report
 */
function consistencyList(report) {
  if (!report.consistency.length) return null;
  return el(
    "section",
    {class: "fact"},
    el("h2", {}, "Weights vs. data"),
    el(
      "ul",
      {class: "views"},
      report.consistency.map((one) =>
        el("li", {class: one.verdict}, el("span", {class: "label verdict"}, one.verdict), el("span", {}, linkHeads(one.text))),
      ),
    ),
  );
}

/**
 * Cognitive functions.
 * @param {HeadReport} report
 */
function functionTable(report) {
  if (!report.functions.length) return null;
  const rows = report.functions.map((one) =>
    one.refused
      ? [one.function, el("td", {class: "refused", colspan: "6"}, `no map: ${one.refused}`)]
      : [
          el("span", {}, one.function, one.chosen ? el("span", {class: "tag"}, "in its head set") : null),
          el("span", {title: `95th percentile of shuffled maps: ${formatNumber(one.null_high)}`}, formatNumber(one.importance)),
          `${formatNumber(one.low)} to ${formatNumber(one.high)}`,
          `${one.rank} of ${one.n_heads}`,
          significant(one.q),
          formatNumber(one.alone),
          maskingEffect(one.masking),
        ],
  );
  return el(
    "section",
    {class: "fact"},
    el("h2", {}, el("a", {href: link("study/functions")}, report.titles.functions ?? "Functions")),
    scrollable(table(null, ["", "Importance", "95 % CI", "Rank", "q", "Single-head AUROC", "Effect of masking"], rows, {class: "values"})),
    el(
      "p",
      {class: "small"},
      "Effect of masking: share of answers lost beyond that of as many random heads, for the smallest masked set with this head.",
    ),
  );
}

/** @param {any} one */
function maskingEffect(one) {
  if (!one) return "–";
  return el(
    "span",
    {title: `95 % CI ${formatNumber(one.low)} to ${formatNumber(one.high)}; ${one.size} heads masked, ${one.asked} steps`},
    formatNumber(one.effect),
  );
}

/**
 * Relations by its weights, with example pairs.
 * @param {HeadReport} report
 */
function relationList(report) {
  if (!report.relations.length) return null;
  const member = report.categories.length ? report.categories.join(", ") : "none";
  return el(
    "section",
    {class: "fact"},
    el("h2", {}, el("a", {href: link("study/relations")}, report.titles.relations ?? "Relations")),
    el("p", {class: "small"}, `Categories by its weights: ${member}.`),
    el(
      "ul",
      {class: "relations"},
      report.relations.map((one) =>
        el(
          "li",
          {class: one.over ? "over" : ""},
          el(
            "p",
            {},
            el("strong", {}, one.relation.replaceAll("_", " ")),
            el("span", {class: "tag"}, one.category),
            ` ${one.sign} ${one.right} of ${one.pairs} targets: ${percent(100 * one.score)} (${percent(100 * one.low)} to ${percent(100 * one.high)}); shuffled ${percent(100 * one.null)}`,
          ),
          pairList("right", one.examples),
          pairList("missed", one.missed),
        ),
      ),
    ),
  );
}

/** @param {string} label @param {any[]} list */
function pairList(label, list) {
  if (!list.length) return null;
  return el(
    "p",
    {class: `pairs ${label}`},
    el("span", {class: "label"}, label),
    list.map(([source, target]) => el("code", {}, `${source} → ${target}`)),
  );
}

/**
 * Most salient tokens.
 * @param {HeadReport} report
 */
function salientTokens(report) {
  if (!report.salient.length) return null;
  return el(
    "section",
    {class: "fact"},
    el("h2", {}, "Most salient tokens, by its weights"),
    table(
      null,
      ["Token", "Strength", "Writes"],
      report.salient.map((one) => [
        el("code", {}, visibleToken(one.text)),
        formatNumber(one.strength),
        one.targets.map((target) => el("code", {class: "chip"}, visibleToken(target))),
      ]),
      {class: "values salient"},
    ),
  );
}

/**
 * Similar heads.
 * @param {HeadReport} report
 */
function similarHeads(report) {
  if (!report.neighbours.length) return null;
  return el(
    "section",
    {},
    el("h2", {class: "label"}, "Similar heads"),
    el(
      "ol",
      {class: "neighbours"},
      report.neighbours.map((one) =>
        el(
          "li",
          {},
          el("a", {class: "head", href: link(`head/${one.name}`)}, one.name),
          ` ${formatNumber(one.distance)}`,
          one.shares.length ? el("span", {class: "small"}, `similar in ${one.shares.map(plain).join(", ")}`) : null,
          one.differs.length ? el("span", {class: "small"}, `different in ${one.differs.map(plain).join(", ")}`) : null,
        ),
      ),
    ),
    el("p", {class: "small"}, report.neighbours_note),
  );
}

/**
 * Missing studies, and how to add them.
 * @param {HeadReport} report
 */
function missingStudies(report) {
  const entries = Object.entries(report.missing);
  if (!entries.length) return null;
  return el(
    "section",
    {},
    el("h2", {class: "label"}, "Missing"),
    el(
      "ul",
      {class: "small plain-list"},
      entries.map(([study, why]) => el("li", {}, `${study.replaceAll("_", " ")}: ${why}`)),
    ),
  );
}

/** @param {HTMLElement} inner */
function scrollable(inner) {
  return el("div", {class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Table"}, inner);
}

/** @param {string} column */
function plain(column) {
  return column.split(".").slice(1).join(" ").replaceAll("_", " ");
}

/** @param {number} value */
function percent(value) {
  return `${value === 0 || value === 100 ? value : value < 10 || value > 99 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** @param {number | null} q */
function significant(q) {
  if (q === null) return "";
  return q < 0.05 ? el("strong", {}, formatNumber(q)) : formatNumber(q);
}

const MAX_LOCATOR_WIDTH = 200; // pixels
const MAX_LOCATOR_HEIGHT = 260;

/**
 * All heads as a small grid, this one marked; `onOpen(name)` is called on a click. Keyboards use the links to adjacent heads.
 * @param {HeadReport} headReport
 * @param {(name: string) => void} onOpen
 */
export function locator({layer, head, layers, heads}, onOpen) {
  const step = Math.max(2, Math.min(Math.floor(MAX_LOCATOR_WIDTH / heads), Math.floor(MAX_LOCATOR_HEIGHT / layers), 12));
  const gap = step > 4 ? 1 : 0.5;
  const canvas = el("canvas", {width: 2 * step * heads, height: 2 * step * layers, class: "locator", "aria-hidden": "true"});
  canvas.style.width = `${step * heads}px`;
  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (offset, size, count) => Math.min(count - 1, Math.max(0, Math.floor((offset / size) * count)));
    return `L${at(event.clientY - box.top, box.height, layers)}H${at(event.clientX - box.left, box.width, heads)}`;
  };
  canvas.addEventListener("click", (event) => onOpen(cell(event)));
  canvas.addEventListener("mousemove", (event) => {
    canvas.title = cell(event);
  });
  return paintOnThemeChange(canvas, () => {
    const context = context2d(canvas);
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, step * heads, step * layers);
    context.fillStyle = cssColour("line");
    for (let row = 0; row < layers; row++) {
      for (let column = 0; column < heads; column++) context.fillRect(column * step, row * step, step - gap, step - gap);
    }
    context.fillStyle = cssColour("accent");
    context.fillRect(head * step - 1, layer * step - 1, step + 2 - gap, step + 2 - gap);
  });
}
