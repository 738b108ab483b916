// Every head at once: its small map in a grid, or one number a head. Picking a cell opens that head large.

import {el} from "headwise/element";
import {draw} from "headwise/figure";

/** {element, show(), point(head), leave()} for the figures of a look. */
export function headGrid(figures, {onhead, wanted = "maps", turned = () => {}}) {
  const stage = el("div", {class: "figure-stage"});
  const choices = el("div", {class: "switch", role: "group", "aria-label": "What is shown of every head"});
  const element = el("section", {class: "figure-section live-grid", "aria-label": "Every head"}, el("h2", {}, "Every head"), choices, stage);
  let chosen = figures.find((one) => one.key === wanted) ?? figures[0];
  let handle = null;
  let pointed = null;

  function show() {
    handle?.remove();
    choices.replaceChildren(...figures.map((one) => el("button",
      {type: "button", "aria-pressed": String(one === chosen), on: {click: () => choose(one)}}, one.label)));
    handle = draw(stage, chosen.payload, {onhead, heading: false});
    if (pointed) handle.point(pointed);
  }

  function choose(one) {
    chosen = one;
    turned(one.key);
    show();
    choices.querySelector("[aria-pressed=true]")?.focus();
  }

  return {element, show, leave: () => handle?.remove(), point(head) {
    pointed = head;
    handle?.point(head);
  }};
}
