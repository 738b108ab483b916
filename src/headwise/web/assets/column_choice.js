// Which columns of the table of heads are shown: ticked by study, or a whole study at once.

import {el} from "headwise/element";

/** The columns shown at first (the data say which: the server). */
export function usual(columns) {
  return columns.filter((column) => column.default).map((column) => column.name);
}

/** The list to tick; `changed(names)` hears of every change. */
export function chooser(columns, chosen, changed) {
  const ticked = new Set(chosen);
  const studies = [...new Set(columns.map((column) => column.study))];
  const say = () => changed(columns.map((column) => column.name).filter((name) => ticked.has(name)));
  const summary = el("summary", {}, "Columns");
  return el("details", {class: "chooser"}, summary, el("div", {class: "chooser-studies"}, studies.map((study) => {
    const own = columns.filter((column) => column.study === study);
    const boxes = own.map((column) => el("input", {type: "checkbox", checked: ticked.has(column.name), on: {change(event) {
      ticked[event.target.checked ? "add" : "delete"](column.name);
      say();
    }}}));
    const all = (on) => {
      boxes.forEach((box, place) => {
        box.checked = on;
        ticked[on ? "add" : "delete"](own[place].name);
      });
      say();
    };
    return el("fieldset", {}, el("legend", {class: "label"}, study.replaceAll("_", " ")),
      el("p", {}, el("button", {type: "button", class: "plain", on: {click: () => all(true)}}, "all"), " ",
        el("button", {type: "button", class: "plain", on: {click: () => all(false)}}, "none")),
      own.map((column, place) => el("label", {}, boxes[place], ` ${column.title}`)));
  })));
}
