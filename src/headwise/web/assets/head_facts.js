// The parts of a head's page, one function a kind of fact, as analysis.HeadReport holds them. Nothing is computed here.

import {el, table} from "headwise/element";
import {told} from "headwise/numbers";
import {shown} from "headwise/head_patterns";
import {link} from "headwise/router";
import {strip} from "headwise/strip";
import {linked} from "headwise/words";

/** Numbers of one study, each on a line among all heads; those that are the same for all are only named. */
export function values(dossier, study, heads) {
  const columns = new Map(heads.columns.map((column) => [column.name, column.values]));
  const alike = dossier.values[study].filter((one) => same(columns.get(one.key)));
  const list = dossier.values[study].filter((one) => !alike.includes(one));
  const tested = list.some((one) => one.p !== null);
  const titles = ["", "Among all heads", "Value", "95 % interval", "Percentile", ...(tested ? ["p", "q"] : [])];
  const rows = list.map((one) => [
    el("span", {title: one.definition}, one.label),
    columns.has(one.key) ? strip(one, columns.get(one.key)) : "",
    told(one.value), one.low === null ? "" : `${told(one.low)} to ${told(one.high)}`,
    one.percentile === null ? "" : percent(one.percentile),
    ...(tested ? [one.p === null ? "" : told(one.p), one.q === null ? "" : significant(one.q)] : []),
  ]);
  const base = list.find((one) => one.baseline_name)?.baseline_name;
  const notes = [base ? `Triangle: ${base}.` : "", alike.length ? `The same for all heads: ${alike.map((one) => `${one.label.toLowerCase()} ${told(one.value)}`).join(", ")}.` : ""];
  return el("section", {class: "fact"},
    el("h2", {}, el("a", {href: link(`study/${study}`)}, dossier.titles[study] ?? study)),
    list.length ? wide(table(null, titles, rows, {class: `values strips${tested ? " tested" : ""}`})) : null,
    notes.some(Boolean) ? el("p", {class: "small"}, notes.filter(Boolean).join(" ")) : null);
}

function same(column) {
  const known = column?.filter((one) => one !== null) ?? [];
  return known.length > 1 && known.every((one) => one === known[0]);
}

/** Whether weights and data agree. */
export function consistency(dossier) {
  if (!dossier.consistency.length) return null;
  return el("section", {class: "fact"}, el("h2", {}, "Weights against data"),
    el("ul", {class: "views"}, dossier.consistency.map((one) => el("li", {class: one.verdict},
      el("span", {class: "label verdict"}, one.verdict), el("span", {}, linked(one.text))))));
}

/** Cognitive functions. */
export function functions(dossier) {
  if (!dossier.functions.length) return null;
  const rows = dossier.functions.map((one) => (one.refused
    ? [one.function, el("td", {class: "refused", colspan: "6"}, `no map: ${one.refused}`)]
    : [el("span", {}, one.function, one.chosen ? el("span", {class: "tag"}, "one of its heads") : null),
      el("span", {title: `95 % of shuffled maps stay below ${told(one.null_high)}`}, told(one.importance)), `${told(one.low)} to ${told(one.high)}`,
      `${one.rank} of ${one.n_heads}`, significant(one.q), told(one.alone), masked(one.masking)]));
  return el("section", {class: "fact"}, el("h2", {}, el("a", {href: link("study/functions")}, dossier.titles.functions ?? "Functions")),
    wide(table(null, ["", "Importance", "95 % interval", "Rank", "q", "AUROC alone", "Lost when masked"], rows, {class: "values"})),
    el("p", {class: "small"}, "Lost when masked: share of answers lost beyond as many random heads, with the smallest masked set that has this head."));
}

function masked(one) {
  if (!one) return "–";
  return el("span", {title: `95 % interval ${told(one.low)} to ${told(one.high)}; ${one.size} heads masked, ${one.asked} steps asked`}, told(one.effect));
}

/** Relations by its weights, with pairs it gets right. */
export function relations(dossier) {
  if (!dossier.relations.length) return null;
  const member = dossier.categories.length ? dossier.categories.join(", ") : "unclassified";
  return el("section", {class: "fact"}, el("h2", {}, el("a", {href: link("study/relations")}, dossier.titles.relations ?? "Relations")),
    el("p", {class: "small"}, `By its weights: ${member}.`),
    el("ul", {class: "relations"}, dossier.relations.map((one) => el("li", {class: one.over ? "over" : ""},
      el("p", {}, el("strong", {}, one.relation.replaceAll("_", " ")), el("span", {class: "tag"}, one.category),
        ` ${one.sign} ${one.right} of ${one.pairs} targets: ${percent(100 * one.score)} (${percent(100 * one.low)} to ${percent(100 * one.high)}); shuffled ${percent(100 * one.null)}`),
      pairs("right", one.examples), pairs("missed", one.missed)))));
}

function pairs(label, list) {
  if (!list.length) return null;
  return el("p", {class: `pairs ${label}`}, el("span", {class: "label"}, label), list.map(([source, target]) => el("code", {}, `${source} → ${target}`)));
}

/** Tokens the head acts on most. */
export function salient(dossier) {
  if (!dossier.salient.length) return null;
  return el("section", {class: "fact"}, el("h2", {}, "Tokens it acts on most, by its weights"),
    table(null, ["Token", "Strength", "It writes"], dossier.salient.map((one) => [
      el("code", {}, shown(one.text)), told(one.strength), one.targets.map((target) => el("code", {class: "chip"}, shown(target)))]), {class: "values salient"}));
}

/** The nearest heads. */
export function neighbours(dossier) {
  if (!dossier.neighbours.length) return null;
  return el("section", {}, el("h2", {class: "label"}, "Similar heads"),
    el("ol", {class: "neighbours"}, dossier.neighbours.map((one) => el("li", {},
      el("a", {class: "head", href: link(`head/${one.name}`)}, one.name), ` ${told(one.distance)}`,
      one.shares.length ? el("span", {class: "small"}, `alike in ${one.shares.map(plain).join(", ")}`) : null,
      one.differs.length ? el("span", {class: "small"}, `unlike in ${one.differs.map(plain).join(", ")}`) : null))),
    el("p", {class: "small"}, dossier.neighbours_note));
}

/** What nobody measured, and how to. */
export function missing(dossier) {
  const entries = Object.entries(dossier.missing);
  if (!entries.length) return null;
  return el("section", {}, el("h2", {class: "label"}, "Not known"),
    el("ul", {class: "small plain-list"}, entries.map(([study, why]) => el("li", {}, `${study.replaceAll("_", " ")}: ${why}`))));
}

function wide(inner) {
  return el("div", {class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Table"}, inner);
}

function plain(column) {
  return column.split(".").slice(1).join(" ").replaceAll("_", " ");
}

function percent(value) {
  return `${value === 0 || value === 100 ? value : value < 10 || value > 99 ? value.toFixed(1) : value.toFixed(0)} %`;
}

function significant(q) {
  if (q === null) return "";
  return q < 0.05 ? el("strong", {}, told(q)) : told(q);
}
