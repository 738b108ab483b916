// Words on a page, as describe gives them: sections of sentences. The names of heads in them become links to their pages.

import {el} from "headwise/element";
import {link} from "headwise/router";

const HEAD = /\b(L\d{1,3}H\d{1,3})\b/;

/** A sentence whose head names are links. */
export function linked(text) {
  return text.split(HEAD).map((part, place) => (place % 2 ? el("a", {class: "head", href: link(`head/${part}`)}, part) : part));
}

/** One section: a paragraph where sentences flow, a list where each stands on its own. */
export function section(heading, entries, {flowing = false, level = "h2"} = {}) {
  if (!entries?.length) return null;
  const body = flowing
    ? el("p", {}, entries.flatMap((entry, place) => [place ? " " : null, ...linked(entry)]))
    : el("ul", {class: "said"}, entries.map((entry) => el("li", {}, linked(entry))));
  return el("section", {class: "words"}, el(level, {}, heading), body);
}

/** All sections in the order of a page: what it is, what was found, how to read it, what to doubt. */
export function prose({Overview: overview, "Axes and scale": axes, Detail: detail, "Key observations": seen, Caveats: doubts}, caveats = doubts) {
  return [
    section("Overview", overview, {flowing: true}), section("Key observations", seen), section("Detail", detail),
    section("How to read it", axes), section("Caveats", caveats),
  ];
}
