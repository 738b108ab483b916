// The contents at the left: what there is to read, where one is, and light or dark. On narrow windows it folds into a bar.

import {el} from "headwise/element";
import {showKeys} from "headwise/keys";
import {link} from "headwise/router";
import {served, settings} from "headwise/settings";
import {theme, ontheme, turn} from "headwise/theme";

let links = [];

/** The navigation, for an atlas. */
export function contents(atlas) {
  links = [];
  const list = el("div", {class: "contents-list", id: "contents-list"},
    section("Atlas", [entry("", "Opening page"), entry("heads", "All heads"), entry("agreement", "Do the studies agree?")]),
    section("Studies", atlas.studies.map((study) => entry(`study/${study.key}`, study.title))),
    others(),
    el("p", {class: "contents-tools"}, themeButton(), keysButton(), el("a", {href: link("print")}, "Print")));
  const fold = el("button", {type: "button", class: "fold", "aria-expanded": "false", "aria-controls": "contents-list"}, "Contents");
  const nav = el("nav", {class: "contents", "aria-label": "Contents"},
    el("p", {class: "brand"}, el("a", {href: link("")}, atlas.model.short), el("span", {class: "label"}, "Headwise atlas")), fold, list);
  fold.addEventListener("click", () => folded(nav, fold, nav.dataset.open === undefined));
  list.addEventListener("click", (event) => event.target.closest("a") && folded(nav, fold, false));
  return nav;
}

/** Mark the entry of the page that is shown. */
export function mark({page, rest}) {
  const path = page === "study" ? `study/${rest[0]}` : page === "head" ? "heads" : page === "compare" ? `compare/${rest[0]}` : page;
  for (const one of links) {
    if (one.path === path) one.anchor.setAttribute("aria-current", "page");
    else one.anchor.removeAttribute("aria-current");
  }
}

function section(title, entries) {
  return el("section", {}, el("h2", {class: "label"}, title), el("ul", {}, entries.map((one) => el("li", {}, one))));
}

function entry(path, text) {
  const anchor = el("a", {href: link(path)}, text);
  links.push({path, anchor});
  return anchor;
}

/** What only a server has: the live page and comparisons with its other atlases. */
function others() {
  if (!served) return null;
  const live = [section("Model", [entry("live", settings.live ? "Live: type a prompt" : "Live: how to get it")])];
  const beside = settings.atlases.filter((name) => name !== settings.atlas);
  const against = beside.length ? [section("Against", beside.map((name) => entry(`compare/${name}`, name)))] : [];
  return [...live, ...against, section("Server", [el("a", {href: "/"}, "All atlases")])];
}

function themeButton() {
  const button = el("button", {type: "button", class: "plain"});
  const say = () => {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${theme() === "dark" ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", turn);
  ontheme(say);
  say();
  return button;
}

function keysButton() {
  return el("button", {type: "button", class: "plain", "aria-label": "List the keys", on: {click: showKeys}}, "Keys");
}

function folded(nav, fold, open) {
  if (open) nav.dataset.open = "";
  else delete nav.dataset.open;
  fold.setAttribute("aria-expanded", String(open));
}
