// A map of numbers by colour, with its colour bar. Labels, marks and picking are in `cell_grid`.
//
// Runs of cells with the same colour are one rectangle, so that a map of 5,120 cells takes a few thousand draw calls.

import * as cells from "headwise/cell_grid";
import {barLabel, barMargin, markValueOnBar, paintBar} from "headwise/colour_bar";
import {colourFunction, textureTheme} from "headwise/colours";
import {formatNumber} from "headwise/numbers";
import {SMALL_FONT, wrap} from "headwise/text_metrics";
import {cellName, extraRows, headName, markTexts, tooltipLine} from "headwise/tooltip_text";

export {barHint as hint} from "headwise/colour_bar";
export * from "headwise/cell_grid"; // a name that is exported below takes its place

/** @param {HeatmapPanel} panel @param {Scale} scale @param {boolean} hasBar @param {string} font */
export function rightMargin(panel, scale, hasBar, font) {
  return hasBar ? barMargin(scale, barLabel(panel, scale), font) : 5;
}

/** @param {Pen} pen @param {Slot<HeatmapPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel, scale, box} = slot;
  const colour = colourFunction(scale);
  const colours = panel.values.map((line) => line.map((value) => (value === null ? null : colour(value))));
  const measured = colours.some((line) => line.some(Boolean));
  if (measured) paintCells(pen, slot, colours, textureTheme(scale, theme));
  else pen.texture(box.x, box.y, box.width, box.height, theme);
  cells.paintOver(pen, slot, theme, (row, column) => colours[row][column]);
  if (!measured) writeAcross(pen, slot, panel.missing, theme);
  if (slot.bar) paintBar(pen, slot.bar, scale, barLabel(panel, scale), theme, slot.font);
}

/**
 * Every cell in its colour (null: hatched). In a file with titles, each cell is a separate shape.
 * @param {Pen} pen
 * @param {Slot} slot
 * @param {(string | null)[][]} colours
 * @param {Theme} theme
 */
export function paintCells(pen, slot, colours, theme) {
  const {xs, ys} = cells.edges(slot);
  colours.forEach((line, row) => {
    for (let column = 0; column < line.length;) {
      const colour = line[column];
      let end = column + 1;
      while (!pen.hasTitles && end < line.length && line[end] === colour) end += 1;
      const [x, y, width, height] = [xs[column], ys[row], xs[end] - xs[column], ys[row + 1] - ys[row]];
      const cell = () => (colour === null ? pen.texture(x, y, width, height, theme) : pen.rect(x, y, width, height, colour));
      if (pen.hasTitles) pen.withTitle(tooltipLine((slot.tooltipContent ?? tooltipContent)(slot, {row, column})), cell);
      else cell();
      column = end;
    }
  });
}

/** @param {Pen} pen @param {Slot<HeatmapPanel>} slot @param {Cell} item @param {Theme} theme @param {boolean} strong */
export function outline(pen, slot, item, theme, strong) {
  cells.outline(pen, slot, item, theme, strong);
  const value = slot.panel.values[item.row][item.column];
  if (slot.bar && value !== null) markValueOnBar(pen, slot.bar, slot.scale, value, theme);
}

/** @param {Slot<HeatmapPanel>} slot @param {Cell} item */
export function tooltipContent(slot, item) {
  const {panel, scale} = slot;
  const value = panel.values[item.row][item.column];
  return {
    name: cellName(panel, item),
    head: headName(panel, item.row, item.column),
    value,
    caption: panel.title,
    rows: [
      [scale.label || "value", value === null ? panel.missing : formatNumber(value)],
      ...extraRows(panel.extras, item, value),
      ...markTexts(panel, item).map((text) => ["", text]),
    ],
  };
}

/** @param {Pen} pen @param {Slot} slot @param {string} text @param {Theme} theme */
function writeAcross(pen, {box, font}, text, theme) {
  const lines = wrap(text, 0.9 * box.width, SMALL_FONT, font);
  const top = box.y + box.height / 2 - ((lines.length - 1) * SMALL_FONT * 1.35) / 2;
  const middle = box.x + box.width / 2;
  lines.forEach((line, index) => {
    pen.text(middle, top + index * SMALL_FONT * 1.35, line, {
      size: SMALL_FONT,
      align: "center",
      colour: theme.ink,
      background: theme.paper,
    });
  });
}
