// A figure on a page, with a switch between its variants and downloads as SVG, CSV and JSON.

import {loadData} from "headwise/data_loader";
import {el} from "headwise/dom";
import {figureRows, hasRows, saveFile, toCsv} from "headwise/downloads";
import {drawFigure} from "headwise/figure";
import {navigate} from "headwise/router";
import {toSvg} from "headwise/svg_export";

/**
 * `figures` are [{key, label, payload} or {key, label, path}]. `initial` is the key shown first; `onSwitch(key)` is called on
 * every switch, with an empty key for the first figure. Nothing is drawn before `show()`.
 * @param {VariantEntry[]} figures
 * @param {{name: string, describe?: string, initial?: string | null, onSwitch?: (key: string) => void}} options
 */
export function figureSection(figures, {name, describe = "", initial = "", onSwitch = () => {}}) {
  const container = el("div", {class: "figure-container"});
  const tools = el("div", {class: "figure-tools"});
  const choices = el("div", {class: "switch", role: "group", "aria-label": "Which figure"});
  const element = el("section", {class: "figure-section", "aria-label": "Figure", hidden: !figures.length}, choices, container, tools);
  let chosen = figures.find((figure) => figure.key === initial) ?? figures[0];
  /** @type {FigureHandle | null} */
  let handle = null;

  async function show() {
    if (!chosen) return;
    const figure = chosen;
    updateButtons();
    const payload = figure.payload ?? (await loadData(figure.path ?? ""));
    if (figure !== chosen) return;
    remove();
    container.replaceChildren();
    handle = drawFigure(container, payload, {onhead: (head) => navigate(`head/${head}`), describe});
    tools.replaceChildren(...downloads(payload, `${name}-${figure.key}`));
  }

  function updateButtons() {
    choices.hidden = figures.length < 2;
    choices.replaceChildren(
      ...figures.map((figure) =>
        el("button", {type: "button", "aria-pressed": String(figure === chosen), on: {click: () => choose(figure)}}, figure.label),
      ),
    );
  }

  /** @param {VariantEntry} figure */
  function choose(figure) {
    if (figure === chosen) return;
    chosen = figure;
    onSwitch(figure === figures[0] ? "" : figure.key);
    show();
    /** @type {HTMLElement} */ (choices.querySelector("[aria-pressed=true]"))?.focus();
  }

  function remove() {
    handle?.remove?.();
    handle = null;
  }

  return {element, show, remove};
}

/** @param {Payload} payload @param {string} name */
function downloads(payload, name) {
  const button = (label, act) =>
    el("button", {type: "button", class: "plain", "aria-label": `Download as ${label}`, on: {click: act}}, label);
  return [
    el("span", {class: "label"}, "Download"),
    button("SVG", async () => saveFile(`${name}.svg`, "image/svg+xml", await toSvg(payload))),
    hasRows(payload) ? button("CSV", () => saveFile(`${name}.csv`, "text/csv", toCsv(figureRows(payload)))) : "",
    button("JSON", () => saveFile(`${name}.json`, "application/json", JSON.stringify(payload))),
  ];
}
