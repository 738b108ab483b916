// A figure on a page, with a switch between its variants and what can be taken away: SVG, CSV, JSON.

import {csv, figureRows, hasRows, save} from "headwise/download";
import {el} from "headwise/element";
import {draw} from "headwise/figure";
import {go} from "headwise/router";
import {get} from "headwise/source";
import {toSvg} from "headwise/svg";

/**
 * `figures` are [{key, label, payload} or {key, label, path}]. `wanted` is the key to begin with; `turned(key)` hears of every
 * turn of the switch, the empty key being the first figure. Nothing is drawn before `show()`.
 */
export function figureSection(figures, {name, describe = "", wanted = "", turned = () => {}}) {
  const stage = el("div", {class: "figure-stage"});
  const tools = el("div", {class: "figure-tools"});
  const choices = el("div", {class: "switch", role: "group", "aria-label": "Which figure"});
  const element = el("section", {class: "figure-section", "aria-label": "Figure", hidden: !figures.length}, choices, stage, tools);
  let chosen = figures.find((one) => one.key === wanted) ?? figures[0];
  let handle = null;

  async function show() {
    if (!chosen) return;
    const one = chosen;
    mark();
    const payload = one.payload ?? (await get(one.path));
    if (one !== chosen) return;
    leave();
    stage.replaceChildren();
    handle = draw(stage, payload, {onhead: (head) => go(`head/${head}`), describe});
    tools.replaceChildren(...downloads(payload, `${name}-${one.key}`));
  }

  function mark() {
    choices.hidden = figures.length < 2;
    choices.replaceChildren(...figures.map((one) => el("button",
      {type: "button", "aria-pressed": String(one === chosen), on: {click: () => choose(one)}}, one.label)));
  }

  function choose(one) {
    if (one === chosen) return;
    chosen = one;
    turned(one === figures[0] ? "" : one.key);
    show();
    choices.querySelector("[aria-pressed=true]")?.focus();
  }

  function leave() {
    handle?.remove?.();
    handle = null;
  }

  return {element, show, leave};
}

function downloads(payload, name) {
  const button = (label, act) => el("button", {type: "button", class: "plain", "aria-label": `Save as ${label}`, on: {click: act}}, label);
  return [
    el("span", {class: "label"}, "Take away"),
    button("SVG", async () => save(`${name}.svg`, "image/svg+xml", await toSvg(payload))),
    hasRows(payload) ? button("CSV", () => save(`${name}.csv`, "text/csv", csv(figureRows(payload)))) : "",
    button("JSON", () => save(`${name}.json`, "application/json", JSON.stringify(payload))),
  ];
}
