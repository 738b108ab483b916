// The opening page: which model, what was found, one small picture a study, what it was measured on, and what is missing.

import {el, facts} from "headwise/element";
import {miniature} from "headwise/miniature";
import {link} from "headwise/router";
import {get} from "headwise/source";
import {linked} from "headwise/words";

/** The opening page. */
export async function page(main, route, {atlas}) {
  const {model} = atlas;
  const {studies} = await get("findings");
  const size = model.layers ? `${model.layers} layers of ${model.heads} heads` : "";
  main.append(
    el("header", {class: "opening"},
      el("div", {class: "opening-words"},
        el("p", {class: "label"}, "An atlas of attention heads"),
        el("h1", {}, model.short),
        el("p", {class: "lede"}, model.id, size ? `: ${size}. ` : ". ",
          `What each head looks at, what it does, and what it tells about the truth of an answer, in ${counted(atlas.studies.length, "study", "studies")}.`)),
      el("aside", {class: "card", "aria-label": "The model"}, facts(model.facts))),
    el("section", {class: "findings", "aria-labelledby": "found"},
      el("h2", {id: "found", class: "label"}, "What was found"),
      studies.map(finding)),
    missing(atlas.missing),
    el("section", {class: "colophon", "aria-label": "The data and the versions"},
      el("div", {}, el("h2", {class: "label"}, "The data"), data(atlas.data)),
      el("div", {}, el("h2", {class: "label"}, "Computed with"), facts([...atlas.versions, ...hours(atlas.measured)]))));
}

function finding(study) {
  const picture = miniature(study.thumbnail);
  const address = link(`study/${study.key}`);
  return el("article", {class: "finding"},
    el("div", {class: "finding-picture", "aria-hidden": "true"}, picture ? el("a", {href: address, tabindex: "-1"}, picture) : null),
    el("div", {class: "finding-words"},
      el("h3", {}, el("a", {href: address}, study.title)),
      el("p", {}, linked(study.short))));
}

function missing(studies) {
  if (!studies.length) return null;
  return el("details", {class: "missing"},
    el("summary", {}, `Not in this atlas: ${studies.map((one) => one.key.replaceAll("_", " ")).join(", ")}`),
    el("dl", {}, studies.map((one) => el("div", {}, el("dt", {}, one.question), el("dd", {}, el("code", {}, one.command))))));
}

function data(found) {
  return el("dl", {class: "facts"}, found.map((one) => el("div", {},
    el("dt", {}, one.studies.map((study) => study.replaceAll("_", " ")).join(", ")),
    el("dd", {}, `${one.name ?? "unnamed"}${one.size === null || one.size === undefined ? "" : ` (${one.size.toLocaleString("en")} ${one.counted}`.trimEnd() + ")"}`,
      one.digest ? el("code", {}, one.digest) : null))));
}

function hours({first, last}) {
  if (!first) return [];
  const [one, other] = [first, last].map((hour) => hour.replace("T", " ").replace(/:\d\d\+00:00$/, " UTC"));
  return [{label: "Measured", value: one === other ? one : `${one} to ${other}`}];
}

function counted(number, one, several) {
  return `${number} ${number === 1 ? one : several}`;
}
