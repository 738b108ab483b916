// The layout of a figure's panels, in pixels. Arithmetic only, for the page and for files.
//
// Panels of a grid have equal widths and their own heights. The grid has the figure's columns, or fewer in a narrow window. A panel
// writes its axis labels only where its neighbour does not show the same ones. A scale has one colour bar: next to the last panel that
// uses it, or, when all maps share one scale, once for the whole grid.

import {isLarge, isNamed} from "headwise/cell_grid";
import {barBox, barMargin} from "headwise/colour_bar";
import {panelTypeOf} from "headwise/panel_types";

export const PANEL_GAP = 20;
export const TOP_MARGIN = 8; // above the data area, for half a label or ring
const MAX_HEIGHT = {rows: 420, row: 540, large: 680};
const MAX_WIDTH = 460;
const MAX_NAME_SHARE = 0.4; // of the window, for the names of rows

/**
 * {columns, widths, slots, shared}: one slot per panel, and the shared colour bar (or null). `whole`: no scrolling, for files.
 * @param {Payload} payload
 * @param {number} width
 * @param {string} font
 * @param {{whole?: boolean}} [options]
 */
export function layoutFigure(payload, width, font, {whole = false} = {}) {
  let columns = Math.min(payload.columns, payload.panels.length);
  let plan = planColumns(payload, columns, width, font);
  while (columns > 1 && plan.panelWidth < plan.minWidth) {
    columns = evenColumns(columns - 1, payload.panels.length);
    plan = planColumns(payload, columns, width, font);
  }
  return {
    columns,
    widths: plan.widths,
    slots: payload.panels.map((_, index) => slotOf(payload, plan, index, font, whole)),
    shared: plan.shared,
    panelWidth: plan.panelWidth,
  };
}

/**
 * A figure whose row names would take much of a narrow window, with numbers in their place, and the names in order; else as it is.
 * @param {Payload} payload
 * @param {number} width
 * @param {string} font
 * @returns {{payload: Payload, names: string[]}}
 */
export function numberNames(payload, width, font) {
  const maps = payload.panels.filter((panel) => isCellMap(panel) && isNamed(panel.y));
  const names = maps[0]?.y.labels ?? [];
  const same = (axis) => JSON.stringify(axis.labels) === JSON.stringify(names);
  const wide = maps.some((panel) => panelTypeOf(panel).leftMargin(panel, true, font) > MAX_NAME_SHARE * width);
  if (!wide || !maps.every((panel) => same(panel.y))) return {payload, names: []};
  const numbered = (axis) => (same(axis) ? {...axis, labels: names.map((_, index) => `${index + 1}`), names} : axis);
  const panels = payload.panels.map((panel) => (maps.includes(panel) ? {...panel, x: numbered(panel.x), y: numbered(panel.y)} : panel));
  return {payload: {...payload, panels}, names};
}

/**
 * At most this many columns, with evenly filled rows.
 * @param {number} columns
 * @param {number} panels
 */
function evenColumns(columns, panels) {
  return Math.ceil(panels / Math.ceil(panels / columns));
}

/** @param {Payload} payload @param {number} columns @param {number} width @param {string} font */
function planColumns(payload, columns, width, font) {
  const {panels, scales} = payload;
  const rows = Math.ceil(panels.length / columns);
  const large = panels.some((panel) => panel.type === "Tiles" || (panel.type === "Heatmap" && isLarge(panel)));
  const tallest = large ? MAX_HEIGHT.large : rows > 1 ? MAX_HEIGHT.rows : MAX_HEIGHT.row;
  const {bars, shared} = barPlan(payload, font);
  const plan = {columns, large, tallest, bars, shared};
  plan.flags = panels.map((_, index) => labelFlags(panels, index, columns));
  const columnMaximum = (measure) =>
    Array.from({length: columns}, (_, column) =>
      panels.reduce((widest, panel, index) => (index % columns === column ? Math.max(widest, measure(panel, index)) : widest), 0),
    );
  plan.lefts = columnMaximum((panel, index) => Math.ceil(panelTypeOf(panel).leftMargin(panel, plan.flags[index].labelledY, font)));
  plan.rights = columnMaximum((panel, index) =>
    Math.ceil(panelTypeOf(panel).rightMargin(panel, scales[panel.scale], bars.has(index), font)),
  );
  const fixed = sum(plan.lefts) + sum(plan.rights) + PANEL_GAP * (columns - 1) + (shared ? PANEL_GAP + shared.width : 0);
  const widest = Math.max(60, ...panels.map((panel) => panelTypeOf(panel).maxWidth(panel, tallest, font)));
  const needed = Math.max(60, ...panels.map((panel) => panelTypeOf(panel).labelledWidth?.(panel) ?? 0));
  plan.panelWidth = Math.max(
    columns > 1 ? 60 : needed,
    Math.floor(Math.min((width - fixed) / columns, large ? widest : Math.min(widest, MAX_WIDTH))),
  );
  plan.minWidth = Math.max(...panels.map((panel) => panelTypeOf(panel).minWidth(panel)));
  plan.widths = plan.lefts.map((left, column) => left + plan.panelWidth + plan.rights[column]);
  return plan;
}

/**
 * Room left of curves or points that the long row names of another panel of the same column need, but these do not.
 * @param {any} plan @param {Panel} panel @param {{labelledY: boolean}} flags @param {string} font
 */
function unusedLeft(plan, panel, flags, font) {
  if (panel.type !== "Curves" && panel.type !== "Scatter") return 0;
  return plan.lefts[0] - Math.ceil(panelTypeOf(panel).leftMargin(panel, flags.labelledY, font));
}

/** @param {Payload} payload @param {any} plan @param {number} index @param {string} font @param {boolean} whole */
function slotOf(payload, plan, index, font, whole) {
  const panel = payload.panels[index];
  const type = panelTypeOf(panel);
  const column = index % plan.columns;
  const flags = plan.flags[index];
  const last = index === payload.panels.length - 1;
  const beyond = last && panel.type === "Legend" ? sum(plan.widths.slice(column + 1)) : 0; // no panel to its right
  const free = plan.columns === 1 ? unusedLeft(plan, panel, flags, font) : 0;
  const room = panel.type === "Legend" ? plan.panelWidth + plan.rights[column] + beyond : plan.panelWidth + free;
  const width = type.snappedWidth ? type.snappedWidth(panel, room) : room;
  const tallest = whole && panel.type === "Tiles" ? Infinity : plan.tallest;
  const box = {x: plan.lefts[column] - free, y: TOP_MARGIN, width, height: type.heightOf(panel, width, tallest, font)};
  return {
    panel,
    scale: payload.scales[panel.scale],
    box,
    font,
    ...flags,
    bar: plan.bars.has(index) ? barBox(box) : null,
    width: plan.widths[column] + beyond,
    height: Math.ceil(box.y + box.height + type.bottomMargin(panel, flags.labelledX, width, font) + 2),
  };
}

/** @param {any[]} panels @param {number} index @param {number} columns */
function labelFlags(panels, index, columns) {
  const [x, y] = ["x", "y"].map((side) => axisKey(panels[index], side));
  return {
    labelledX: x === null || axisKey(panels[index + columns], "x") !== x,
    labelledY: index % columns === 0 || y === null || axisKey(panels[index - 1], "y") !== y,
  };
}

/** @param {any} panel */
function isCellMap(panel) {
  return panel?.type === "Heatmap" || panel?.type === "CategoryMap";
}

/**
 * A key to compare the axes of neighbouring maps.
 * @param {any} panel
 * @param {string} side
 */
function axisKey(panel, side) {
  if (!isCellMap(panel)) return null;
  return JSON.stringify([panel[side].name, panel[side].labels]);
}

/** @param {Payload} payload @param {string} font */
function barPlan({panels, scales}, font) {
  const last = new Map();
  panels.forEach((panel, index) => (panel.scale ? last.set(panel.scale, index) : null));
  const maps = panels.filter((panel) => panel.scale).length;
  if (last.size !== 1 || maps < 2) return {bars: new Set(last.values()), shared: null};
  const scale = scales[last.keys().next().value];
  return {bars: new Set(), shared: {scale, width: Math.ceil(barMargin(scale, scale.label, font))}};
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
