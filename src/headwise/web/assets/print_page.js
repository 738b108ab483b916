// Everything on one page, one study after another, for paper: figures as vectors on white, words, methods.
//
// Each study shows its first figure. The page is drawn whole before it says that it is ready, so that a printer (or a
// program that prints) finds nothing missing.

import {el, facts} from "headwise/element";
import {page as overview} from "headwise/overview";
import {get} from "headwise/source";
import {toSvg} from "headwise/svg";
import {prose, section} from "headwise/words";

/** The whole report, in print. */
export async function page(main, route, context) {
  main.append(el("p", {class: "print-tools"},
    el("button", {type: "button", on: {click: () => print()}}, "Print, or save as PDF"),
    "All studies, one after another, each with its first figure."));
  const first = el("div", {class: "page-overview"});
  await overview(first, route, context);
  main.append(first);
  for (const {key} of context.atlas.studies) main.append(await chapter(key));
}

async function chapter(key) {
  const study = await get(`study/${key}`);
  return el("article", {class: "chapter"},
    el("h1", {}, study.question || study.title),
    el("p", {class: "lede"}, study.short),
    study.figures.length ? await picture(study) : null,
    el("div", {class: "chapter-words"},
      prose(study.words, study.caveats),
      study.method ? section("Method", [study.method.text, study.method.source ? `After ${study.method.source} (${study.method.link}).` : ""].filter(Boolean), {flowing: true}) : null),
    el("section", {class: "chapter-origin"}, facts(study.provenance)));
}

async function picture(study) {
  const svg = await toSvg(await get(study.figures[0].path));
  const image = el("img", {alt: study.short, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`});
  await image.decode().catch(() => {});
  return el("figure", {}, image);
}
