// A head's page: everything known of it, all studies joined, against all other heads.

import {draw} from "headwise/figure";
import {el} from "headwise/element";
import {consistency, functions, missing, neighbours, relations, salient, values} from "headwise/head_facts";
import {patternFigure} from "headwise/head_patterns";
import {locator} from "headwise/locator";
import {go, link} from "headwise/router";
import {get} from "headwise/source";
import {linked} from "headwise/words";

/** The page of the head that the route names. */
export async function page(main, {rest: [name = ""]}, {atlas}) {
  const [dossier, table] = await Promise.all([get(`head/${name.toUpperCase()}`), get("heads")]);
  const near = beside(dossier);
  const stage = el("div", {class: "figure-stage"});
  const figure = dossier.patterns ? await patternFigure(dossier) : null;
  main.append(
    el("header", {class: "study-header"},
      el("p", {class: "label"}, `Layer ${dossier.layer} of ${dossier.layers} · head ${dossier.head} of ${dossier.heads}, counted from 0`),
      el("h1", {}, dossier.name),
      el("p", {class: "lede"}, linked(dossier.summary)),
      turning(near)),
    el("div", {class: "dossier"},
      el("div", {class: "column wide"},
        consistency(dossier),
        figure ? el("section", {class: "figure-section", "aria-label": "Attention maps"}, el("h2", {}, "What its attention looks like"), stage) : null,
        order(dossier.values, atlas).map((study) => values(dossier, study, table)),
        functions(dossier), relations(dossier), salient(dossier)),
      el("aside", {class: "margin"},
        el("section", {}, el("h2", {class: "label"}, "Where it stands"), locator(dossier, (other) => go(`head/${other}`))),
        neighbours(dossier), missing(dossier))));
  const open = (other) => other && go(`head/${other}`);
  let handle = null;
  return {
    keys: {
      j: () => open(near.next), k: () => open(near.previous), ArrowRight: () => open(near.right), ArrowLeft: () => open(near.left),
      ArrowDown: () => open(near.below), ArrowUp: () => open(near.above),
    },
    shown() {
      if (figure) handle = draw(stage, figure, {describe: `Attention of ${dossier.name}`});
    },
    leave: () => handle?.remove?.(),
  };
}

/** The studies in the order of the contents. */
function order(values, atlas) {
  const known = atlas.studies.map((study) => study.key);
  return Object.keys(values).sort((a, b) => known.indexOf(a) - known.indexOf(b));
}

/** The heads around: in reading order, and in the grid. */
function beside({layer, head, layers, heads}) {
  const at = (row, column) => (row >= 0 && row < layers && column >= 0 && column < heads ? `L${row}H${column}` : null);
  const place = layer * heads + head;
  const nth = (one) => (one >= 0 && one < layers * heads ? at(Math.floor(one / heads), one % heads) : null);
  return {previous: nth(place - 1), next: nth(place + 1), left: at(layer, head - 1), right: at(layer, head + 1),
    above: at(layer - 1, head), below: at(layer + 1, head)};
}

function turning({previous, next}) {
  const one = (name, text, rel) => (name ? el("a", {href: link(`head/${name}`), rel, class: "head"}, text) : null);
  return el("nav", {class: "heads-turning", "aria-label": "Other heads"},
    one(previous, `← ${previous}`, "prev"), one(next, `${next} →`, "next"), el("a", {href: link("heads")}, "All heads"));
}
