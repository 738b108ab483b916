// Keys: everything can be reached with Tab; these are the shorter ways. A page may add its own (j, k, arrows).

import {el} from "headwise/element";
import {go} from "headwise/router";
import {turn} from "headwise/theme";

const LIST = [
  ["/", "filter the table of heads"],
  ["j  k", "next and previous head, or study"],
  ["o", "opening page"],
  ["h", "all heads"],
  ["a", "do the studies agree?"],
  ["t", "light or dark"],
  ["arrows", "in a figure: move from cell to cell; on a head’s page: the head beside, the layer above or below"],
  ["Enter", "in a figure or a row: open the head"],
  ["Esc", "close what is open, leave a figure"],
  ["?", "this list"],
];
let dialog = null;

/** Listen to the keys; `own()` gives those of the page that is shown. */
export function listen(own) {
  const general = {"/": filter, o: () => go(""), h: () => go("heads"), a: () => go("agreement"), t: turn, "?": showKeys};
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (dialog?.open) return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && event.target !== document.body && event.target.id !== "main") return;
    const act = own()[event.key] ?? general[event.key];
    if (!act) return;
    event.preventDefault();
    act(event);
  });
}

/** The list of keys, in a dialog. */
export function showKeys() {
  dialog ??= document.body.appendChild(el("dialog", {class: "keys", "aria-labelledby": "keys-title"},
    el("h2", {id: "keys-title"}, "Keys"),
    el("dl", {}, LIST.map(([key, what]) => el("div", {}, el("dt", {}, key.split("  ").map((one) => el("kbd", {}, one))), el("dd", {}, what)))),
    el("form", {method: "dialog"}, el("button", {}, "Close"))));
  dialog.showModal();
}

function typing(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function filter() {
  const box = document.querySelector("[data-filter]");
  if (box) box.focus();
  else go("heads", {focus: "filter"});
}
