// The navigation on the left (it folds into a bar on narrow windows) and the keyboard shortcuts.
//
// Everything can be reached with Tab; a page may add shortcuts of its own (j, k, arrow keys).

import {el} from "headwise/dom";
import {link, navigate} from "headwise/router";
import {served, settings} from "headwise/settings";
import {currentTheme, onThemeChange, toggleTheme} from "headwise/theme";

/** @type {{path: string, anchor: HTMLAnchorElement}[]} */
let entries = [];

/**
 * The navigation, for an atlas.
 * @param {AtlasInfo} atlas
 */
export function navigation(atlas) {
  entries = [];
  const list = el(
    "div",
    {class: "contents-list", id: "contents-list"},
    section("Atlas", [entry("", "Home"), entry("heads", "All heads"), entry("agreement", "Do the studies agree?")]),
    section(
      "Studies",
      atlas.studies.map((study) => entry(`study/${study.key}`, study.title)),
    ),
    serverSections(),
    el("p", {class: "contents-tools"}, themeButton(), keysButton(), el("a", {href: link("print")}, "Print")),
  );
  const toggle = el("button", {type: "button", class: "fold", "aria-expanded": "false", "aria-controls": "contents-list"}, "Contents");
  const nav = el(
    "nav",
    {class: "contents", "aria-label": "Contents"},
    el(
      "p",
      {class: "brand"},
      el("a", {href: link("")}, atlas.model.short),
      el("span", {class: atlas.quick ? "label quick" : "label"}, atlas.quick ? "Quick build" : "Headwise atlas"),
    ),
    toggle,
    list,
  );
  toggle.addEventListener("click", () => setOpen(nav, toggle, nav.dataset.open === undefined));
  list.addEventListener("click", (event) => /** @type {HTMLElement} */ (event.target).closest("a") && setOpen(nav, toggle, false));
  return nav;
}

/**
 * Mark the entry of the current page.
 * @param {Route} route
 */
export function markCurrent({page, rest}) {
  const path = page === "study" ? `study/${rest[0]}` : page === "head" ? "heads" : page === "compare" ? `compare/${rest[0]}` : page;
  for (const one of entries) {
    if (one.path === path) one.anchor.setAttribute("aria-current", "page");
    else one.anchor.removeAttribute("aria-current");
  }
}

/** @param {string} title @param {HTMLElement[]} entries */
function section(title, entries) {
  return el(
    "section",
    {},
    el("h2", {class: "label"}, title),
    el(
      "ul",
      {},
      entries.map((one) => el("li", {}, one)),
    ),
  );
}

/** @param {string} path @param {string} text */
function entry(path, text) {
  const anchor = el("a", {href: link(path)}, text);
  entries.push({path, anchor});
  return anchor;
}

/** Sections of a served page: the live page and comparisons with other atlases. */
function serverSections() {
  if (!served) return null;
  const live = [section("Model", [entry("live", settings.live ? "Live: type a prompt" : "Live: how to enable it")])];
  const otherAtlases = settings.atlases.filter((name) => name !== settings.atlas);
  const against = otherAtlases.length
    ? [
        section(
          "Compare with",
          otherAtlases.map((name) => entry(`compare/${name}`, name)),
        ),
      ]
    : [];
  return [...live, ...against, section("Server", [el("a", {href: "/"}, "All atlases")])];
}

function themeButton() {
  const button = el("button", {type: "button", class: "plain"});
  const update = () => {
    button.textContent = currentTheme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${currentTheme() === "dark" ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", toggleTheme);
  onThemeChange(update);
  update();
  return button;
}

function keysButton() {
  return el("button", {type: "button", class: "plain", "aria-label": "List the keyboard shortcuts", on: {click: showShortcuts}}, "Keys");
}

/** @param {HTMLElement} nav @param {HTMLElement} toggle @param {boolean} open */
function setOpen(nav, toggle, open) {
  if (open) nav.dataset.open = "";
  else delete nav.dataset.open;
  toggle.setAttribute("aria-expanded", String(open));
}

const SHORTCUTS = [
  ["/", "filter the table of heads"],
  ["j  k", "next and previous head, or study"],
  ["o", "home"],
  ["h", "all heads"],
  ["a", "do the studies agree?"],
  ["t", "light or dark theme"],
  ["arrows", "in a figure: move from cell to cell; on a head’s page: the adjacent head or layer"],
  ["Enter", "in a figure or a row: open the head"],
  ["Esc", "close a dialog, leave a figure"],
  ["?", "this list"],
];
/** @type {HTMLDialogElement | null} */
let dialog = null;

/**
 * Handle keyboard shortcuts; `pageKeys()` returns those of the current page.
 * @param {() => Record<string, (event: KeyboardEvent) => void>} pageKeys
 */
export function listenForKeys(pageKeys) {
  const general = {
    "/": filter,
    o: () => navigate(""),
    h: () => navigate("heads"),
    a: () => navigate("agreement"),
    t: toggleTheme,
    "?": showShortcuts,
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(/** @type {HTMLElement} */ (event.target)))
      return;
    if (dialog?.open) return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && event.target !== document.body && /** @type {HTMLElement} */ (event.target).id !== "main") return;
    const action = pageKeys()[event.key] ?? general[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}

/** The list of shortcuts, in a dialog. */
function showShortcuts() {
  dialog ??= document.body.appendChild(
    el(
      "dialog",
      {class: "keys", "aria-labelledby": "keys-title"},
      el("h2", {id: "keys-title"}, "Keyboard shortcuts"),
      el(
        "dl",
        {},
        SHORTCUTS.map(([key, what]) =>
          el(
            "div",
            {},
            el(
              "dt",
              {},
              key.split("  ").map((one) => el("kbd", {}, one)),
            ),
            el("dd", {}, what),
          ),
        ),
      ),
      el("form", {method: "dialog"}, el("button", {}, "Close")),
    ),
  );
  dialog.showModal();
}

/** @param {HTMLElement} target */
function typing(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function filter() {
  const box = /** @type {HTMLElement} */ (document.querySelector("[data-filter]"));
  if (box) box.focus();
  else navigate("heads", {focus: "filter"});
}
