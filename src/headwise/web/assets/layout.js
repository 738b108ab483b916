// Where the panels of a figure stand, in pixels. Arithmetic only, for the page and for files.
//
// Panels of a grid are equally wide and as high as they want to be. The grid has the figure's columns, and fewer where
// the window is too narrow for them. A panel writes its labels only where its neighbour does not already say the same,
// and a scale has one colour bar: beside the last panel that uses it, or, when all maps share one scale, once for the
// whole grid.

import {barBeside, barRoom} from "headwise/bar";
import {isLarge} from "headwise/cells";
import {kindOf} from "headwise/kinds";

export const GAP = 20;
export const TOP = 8; // over the data area: half a label, half a ring
const TALLEST = {rows: 420, row: 540, large: 680};
const WIDEST = 460;

/** {columns, widths, slots, shared}: a slot a panel, and the bar of the whole grid (or null). A file cannot scroll: `whole`. */
export function layOut(payload, width, sans, {whole = false} = {}) {
  let columns = Math.min(payload.columns, payload.panels.length);
  let plan = planFor(payload, columns, width, sans);
  while (columns > 1 && plan.panelWidth < plan.least) {
    columns = evened(columns - 1, payload.panels.length);
    plan = planFor(payload, columns, width, sans);
  }
  return {columns, widths: plan.widths, slots: payload.panels.map((_, index) => slotOf(payload, plan, index, sans, whole)),
    shared: plan.shared, panelWidth: plan.panelWidth};
}

/** So many columns that the rows are evenly filled. */
function evened(columns, panels) {
  return Math.ceil(panels / Math.ceil(panels / columns));
}

function planFor(payload, columns, width, sans) {
  const {panels, scales} = payload;
  const rows = Math.ceil(panels.length / columns);
  const large = panels.some((panel) => panel.type === "Tiles" || (panel.type === "Heatmap" && isLarge(panel)));
  const tallest = large ? TALLEST.large : rows > 1 ? TALLEST.rows : TALLEST.row;
  const {bars, shared} = barsOf(payload, sans);
  const plan = {columns, large, tallest, bars, shared};
  plan.flags = panels.map((_, index) => flagsOf(panels, index, columns));
  const most = (measure) => Array.from({length: columns}, (_, column) => panels.reduce(
    (widest, panel, index) => (index % columns === column ? Math.max(widest, measure(panel, index)) : widest), 0));
  plan.lefts = most((panel, index) => Math.ceil(kindOf(panel).leftRoom(panel, plan.flags[index].labelledY, sans)));
  plan.rights = most((panel, index) => Math.ceil(kindOf(panel).rightRoom(panel, scales[panel.scale], bars.has(index), sans)));
  const fixed = sum(plan.lefts) + sum(plan.rights) + GAP * (columns - 1) + (shared ? GAP + shared.width : 0);
  const widest = Math.max(60, ...panels.map((panel) => kindOf(panel).mostWidth(panel, tallest, sans)));
  const needed = Math.max(60, ...panels.map((panel) => kindOf(panel).neededWidth?.(panel) ?? 0));
  plan.panelWidth = Math.max(columns > 1 ? 60 : needed, Math.floor(Math.min((width - fixed) / columns, large ? widest : Math.min(widest, WIDEST))));
  plan.least = Math.max(...panels.map((panel) => kindOf(panel).leastWidth(panel)));
  plan.widths = plan.lefts.map((left, column) => left + plan.panelWidth + plan.rights[column]);
  return plan;
}

function slotOf(payload, plan, index, sans, whole) {
  const panel = payload.panels[index];
  const kind = kindOf(panel);
  const column = index % plan.columns;
  const flags = plan.flags[index];
  const last = index === payload.panels.length - 1;
  const beyond = last && panel.type === "Legend" ? sum(plan.widths.slice(column + 1)) : 0; // nothing stands to its right
  const room = panel.type === "Legend" ? plan.panelWidth + plan.rights[column] + beyond : plan.panelWidth;
  const width = kind.settledWidth ? kind.settledWidth(panel, room) : room;
  const tallest = whole && panel.type === "Tiles" ? Infinity : plan.tallest;
  const box = {x: plan.lefts[column], y: TOP, width, height: kind.heightOf(panel, width, tallest, sans)};
  return {
    panel, scale: payload.scales[panel.scale], box, sans, ...flags,
    bar: plan.bars.has(index) ? barBeside(box) : null,
    width: plan.widths[column] + beyond,
    height: Math.ceil(box.y + box.height + kind.footRoom(panel, flags.labelledX, width, sans) + 2),
  };
}

function flagsOf(panels, index, columns) {
  const [x, y] = ["x", "y"].map((side) => axisKey(panels[index], side));
  return {
    labelledX: x === null || axisKey(panels[index + columns], "x") !== x,
    labelledY: index % columns === 0 || y === null || axisKey(panels[index - 1], "y") !== y,
  };
}

/** The axis that a neighbour can rely on: that of a map. */
function axisKey(panel, side) {
  if (panel?.type !== "Heatmap" && panel?.type !== "CategoryMap") return null;
  return JSON.stringify([panel[side].name, panel[side].labels]);
}

function barsOf({panels, scales}, sans) {
  const last = new Map();
  panels.forEach((panel, index) => (panel.scale ? last.set(panel.scale, index) : null));
  const maps = panels.filter((panel) => panel.scale).length;
  if (last.size !== 1 || maps < 2) return {bars: new Set(last.values()), shared: null};
  const scale = scales[last.keys().next().value];
  return {bars: new Set(), shared: {scale, width: Math.ceil(barRoom(scale, scale.label, sans))}};
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
