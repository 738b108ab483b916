// A study's page: its question, its figure with a switch between variants, what it shows in words, how it was measured.

import {el, facts} from "headwise/element";
import {figureSection} from "headwise/figure_section";
import {plainTable} from "headwise/plain_table";
import {go, link, note} from "headwise/router";
import {get} from "headwise/source";
import {linked, prose} from "headwise/words";

/** The page of the study that the route names. */
export async function page(main, {rest: [key], query}, context) {
  const study = await get(`study/${key}`);
  const order = context.atlas.studies.map((one) => one.key);
  const place = order.indexOf(key);
  const figures = figureSection(study.figures, {
    name: `${context.atlas.model.short}-${key}`,
    describe: study.short,
    wanted: query.get("figure"),
    turned: (figure) => note(`study/${key}`, {figure}),
  });
  main.append(
    el("header", {class: "study-header"},
      el("p", {class: "label"}, `Study ${place + 1} of ${order.length} · ${key.replaceAll("_", " ")}`),
      el("h1", {}, study.question || study.title),
      el("p", {class: "lede"}, linked(study.short))),
    figures.element,
    study.table ? plainTable(study.table, `${study.title}, every one`) : "",
    el("div", {class: "reading"}, el("div", {class: "column"}, prose(study.words, study.caveats)), el("aside", {class: "margin"}, method(study), origin(study))),
    turning(order, place, context.atlas.studies));
  await figures.show();
  const open = (step) => order[place + step] && go(`study/${order[place + step]}`);
  return {keys: {j: () => open(1), k: () => open(-1)}, leave: figures.leave};
}

function method({method: told}) {
  if (!told) return null;
  const source = told.source && el("p", {class: "source"}, "After ", told.link ? el("a", {href: told.link, target: "_blank", rel: "noreferrer"}, told.source) : told.source, ".");
  return el("section", {}, el("h2", {class: "label"}, "Method"), el("p", {}, told.text), source);
}

function origin(study) {
  return el("section", {}, el("h2", {class: "label"}, "Where the numbers come from"), facts(study.provenance));
}

function turning(order, place, studies) {
  const one = (step, label) => {
    const other = studies[place + step];
    return other ? el("a", {href: link(`study/${other.key}`), class: step < 0 ? "back" : "on"}, el("span", {class: "label"}, label), other.title) : el("span", {});
  };
  return el("nav", {class: "turning", "aria-label": "Other studies"}, one(-1, "Before"), one(1, "Next"));
}
