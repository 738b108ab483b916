// The content of tooltips: the name of a cell, its number, and all extras.
//
// Tooltip content is {name, head, value, caption, rows}: the head's name (or null), the panel's title, and rows of [label, text] or
// [label, text, colour]. The tooltip shows it, a screen reader announces it, an SVG file contains it.
//
// Extras of a map are numbers of the same cells. NAME with NAME_low and NAME_high is written with its confidence interval; low and high
// alone are the interval of the map's own number.

import {formatNumber} from "headwise/numbers";

/**
 * The name L12H3 where a cell is a head, else null.
 * @param {{x: Axis, y: Axis}} panel
 * @param {number} row
 * @param {number} column
 */
export function headName(panel, row, column) {
  if (!isHeadMap(panel)) return null;
  const part = {[panel.y.name]: panel.y.labels[row], [panel.x.name]: panel.x.labels[column]};
  const name = `L${part.Layer}H${part.Head}`;
  return /^L\d+H\d+$/.test(name) ? name : null;
}

/**
 * The name of a cell in words.
 * @param {{x: Axis, y: Axis}} panel
 * @param {Cell} cell
 */
export function cellName(panel, {row, column}) {
  const head = headName(panel, row, column);
  if (head) return head;
  const part = (/** @type {Axis} */ axis, /** @type {number} */ index) => `${axis.name} ${(axis.names ?? axis.labels)[index]}`.trim();
  return `${part(panel.y, row)} · ${part(panel.x, column)}`;
}

/**
 * Texts of the marks and frames at a cell.
 * @param {CellPanel} panel
 * @param {Cell} cell
 */
export function markTexts(panel, {row, column}) {
  const marks = panel.marks.filter((mark) => mark.row === row && mark.column === column && mark.sign !== "text");
  const frames = panel.frames.filter(
    (frame) => frame.first_row <= row && row <= frame.last_row && frame.first_column <= column && column <= frame.last_column,
  );
  return [...marks, ...frames].map((each) => each.text).filter(Boolean);
}

/**
 * The extras of a cell as rows of a tooltip: a number with its interval, or alone.
 * @param {Record<string, Numbers[]>} extras
 * @param {Cell} cell
 * @param {number | null} value
 */
export function extraRows(extras, {row, column}, value) {
  const cell = (name) => extras[name]?.[row]?.[column];
  const rows = [];
  for (const name of Object.keys(extras)) {
    const own = cell(name);
    const [, stem] = /^(.+)_(?:low|high)$/.exec(name) ?? [];
    if (name === "low" && "high" in extras) rows.push(["interval", `${formatNumber(own)} to ${formatNumber(cell("high"))}`]);
    else if ((name === "high" && "low" in extras) || (stem && stem in extras && `${stem}_low` in extras)) continue;
    else if (name === "value" && own === value) continue;
    else rows.push([extraLabel(name), formatNumber(own) + interval(cell(`${name}_low`), cell(`${name}_high`))]);
  }
  return rows;
}

/** @type {Record<string, string>} */
const EXTRA_LABELS = {
  uniform: "uniform attention",
  null: "shuffled",
  null_high: "shuffled, 95 % below",
  p_within: "p, similar questions",
  q_within: "q, similar questions",
  effect_within: "effect, similar questions",
  p_matched: "p, same length",
  q_matched: "q, same length",
  importance: "signed",
  importance_sd: "SD over seeds",
  single_head_auroc: "single-head AUROC",
  single_head_q: "single-head q",
};

/** @param {string} name */
function extraLabel(name) {
  return EXTRA_LABELS[name] ?? name.replaceAll("_", " ");
}

/** @param {number | null | undefined} low @param {number | null | undefined} high */
function interval(low, high) {
  return low === undefined || high === undefined || low === null || high === null ? "" : ` (${formatNumber(low)} to ${formatNumber(high)})`;
}

/** @param {{x: Axis, y: Axis}} panel */
export function isHeadMap(panel) {
  return [panel.x.name, panel.y.name].sort().join(" ") === "Head Layer";
}

/**
 * Tooltip content as one line of text, for screen readers and files.
 * @param {TooltipContent} tooltipContent
 */
export function tooltipLine({name, caption, rows}) {
  return [`${name}, ${caption}`, ...rows.map(([label, value]) => `${label} ${value}`.trim())].join("; ");
}
