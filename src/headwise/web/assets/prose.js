// Descriptions of a study as sections of sentences. Head names in them become links to the heads' pages.

import {el} from "headwise/dom";
import {link} from "headwise/router";

const HEAD = /\b(L\d{1,3}H\d{1,3})\b/;

/**
 * A sentence whose head names are links.
 * @param {string} text
 */
export function linkHeads(text) {
  return text.split(HEAD).map((part, index) => (index % 2 ? el("a", {class: "head", href: link(`head/${part}`)}, part) : part));
}

/**
 * One section: a paragraph where sentences flow, else a list.
 * @param {string} heading
 * @param {string[] | undefined} entries
 * @param {{flowing?: boolean, level?: string}} [options]
 */
export function section(heading, entries, {flowing = false, level = "h2"} = {}) {
  if (!entries?.length) return null;
  const body = flowing
    ? el(
        "p",
        {},
        entries.flatMap((entry, index) => [index ? " " : null, ...linkHeads(entry)]),
      )
    : el(
        "ul",
        {class: "statements"},
        entries.map((entry) => el("li", {}, linkHeads(entry))),
      );
  return el("section", {class: "words"}, el(/** @type {"h2"} */ (level), {}, heading), body);
}

/**
 * All sections in the order of a page: overview, interpretation, observations, anomalies, detail, how to read it, caveats.
 * @param {Record<string, string[]>} record
 * @param {string[]} [caveats]
 */
export function proseSections(
  {
    Overview: overview,
    "Axes and scale": axes,
    Detail: detail,
    "Key observations": observations,
    Anomalies: anomalies,
    Interpretation: interpretation,
    Caveats: ownCaveats,
  },
  caveats = ownCaveats,
) {
  return [
    section("Overview", overview, {flowing: true}),
    section("Interpretation", interpretation, {flowing: true}),
    section("Key observations", observations),
    section("Anomalies", anomalies),
    section("Detail", detail),
    section("How to read it", axes),
    section("Caveats", caveats),
  ];
}
