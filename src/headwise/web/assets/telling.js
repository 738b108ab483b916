// What a cell is and what is known of it, in words: the name of a head, its number, and every extra that came with it.
//
// A telling is {name, head, value, caption, rows}: what it is called, the head it is (or null), the panel it stands in,
// and rows of [label, text] or [label, text, colour]. The tooltip shows it, a screen reader speaks it, a file carries it.
//
// Extras of a map are numbers of the same cells. NAME with NAME_low and NAME_high is written with its interval; low and
// high alone are the interval of the map's own number.

import {told} from "headwise/numbers";

/** L12H3 where a cell is a head, else null. */
export function headOf(panel, row, column) {
  if (!isHeads(panel)) return null;
  const part = {[panel.y.name]: panel.y.labels[row], [panel.x.name]: panel.x.labels[column]};
  const name = `L${part.Layer}H${part.Head}`;
  return /^L\d+H\d+$/.test(name) ? name : null;
}

/** The name of a cell in words. */
export function nameOf(panel, {row, column}) {
  const head = headOf(panel, row, column);
  if (head) return head;
  return [[panel.y, row], [panel.x, column]].map(([axis, place]) => `${axis.name} ${axis.labels[place]}`.trim()).join(" · ");
}

/** What is written at a cell: texts of marks and of frames around it. */
export function remarks(panel, {row, column}) {
  const marks = panel.marks.filter((mark) => mark.row === row && mark.column === column && mark.sign !== "text");
  const frames = panel.frames.filter((frame) => frame.first_row <= row && row <= frame.last_row &&
    frame.first_column <= column && column <= frame.last_column);
  return [...marks, ...frames].map((each) => each.text).filter(Boolean);
}

/** The extras of a cell as rows of a tooltip: a number with its interval, or alone. */
export function extraRows(extras, {row, column}, value) {
  const cell = (name) => extras[name]?.[row]?.[column];
  const rows = [];
  for (const name of Object.keys(extras)) {
    const own = cell(name);
    const [, stem] = /^(.+)_(?:low|high)$/.exec(name) ?? [];
    if (name === "low" && "high" in extras) rows.push(["interval", `${told(own)} to ${told(cell("high"))}`]);
    else if ((name === "high" && "low" in extras) || (stem && stem in extras && `${stem}_low` in extras)) continue;
    else if (name === "value" && own === value) continue;
    else rows.push([wordOf(name), told(own) + interval(cell(`${name}_low`), cell(`${name}_high`))]);
  }
  return rows;
}

const WORDS = {
  uniform: "uniform head", null: "shuffled", null_high: "shuffled, 95 % below",
  p_matched: "p, matched", q_matched: "q, matched", importance: "with its sign", importance_sd: "spread over seeds",
  alone: "AUROC of this head alone", alone_q: "q of this head alone",
};

function wordOf(name) {
  return WORDS[name] ?? name.replaceAll("_", " ");
}

function interval(low, high) {
  return low === undefined || high === undefined || low === null || high === null ? "" : ` (${told(low)} to ${told(high)})`;
}

export function isHeads(panel) {
  return [panel.x.name, panel.y.name].sort().join(" ") === "Head Layer";
}

/** A telling as one line of text, for screen readers and for files. */
export function inWords({name, caption, rows}) {
  return [`${name}, ${caption}`, ...rows.map(([label, value]) => `${label} ${value}`.trim())].join("; ");
}
