// A map of categories by colour: one square or dot per cell. -1 is a missing cell: hatched.

import * as cells from "headwise/cell_grid";
import {adaptColour} from "headwise/colours";
import {paintCells} from "headwise/heatmap";
import {cellName, extraRows, headName, markTexts, tooltipLine} from "headwise/tooltip_text";

export * from "headwise/cell_grid"; // a name that is exported below takes its place

const MIN_DOT_CELL = 7; // pixels; smaller cells are squares

export function rightMargin() {
  return 5;
}

/** @param {Pen} pen @param {Slot<CategoryMapPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel} = slot;
  const inks = panel.categories.map((category) => adaptColour(category.colour, theme));
  const colours = panel.values.map((line) => line.map((value) => (value < 0 ? null : inks[value])));
  const {width, height} = cells.cellBox(slot, 0, 0);
  if (panel.shape === "dot" && Math.min(width, height) >= MIN_DOT_CELL) paintDots(pen, slot, colours, theme);
  else paintCells(pen, {...slot, tooltipContent}, colours, theme);
  cells.paintOver(pen, slot, theme, (row, column) => colours[row][column]);
}

/** @param {Slot<CategoryMapPanel>} slot @param {Cell} item */
export function tooltipContent(slot, item) {
  const {panel} = slot;
  const value = panel.values[item.row][item.column];
  return {
    name: cellName(panel, item),
    head: headName(panel, item.row, item.column),
    value,
    caption: panel.title,
    rows: [
      ["", value < 0 ? panel.missing : panel.categories[value].label.replaceAll("\n", " ")],
      ...extraRows(panel.extras, item, null),
      ...markTexts(panel, item).map((text) => ["", text]),
    ],
  };
}

/** @param {Pen} pen @param {Slot<CategoryMapPanel>} slot @param {(string | null)[][]} colours @param {Theme} theme */
function paintDots(pen, slot, colours, theme) {
  colours.forEach((line, row) =>
    line.forEach((colour, column) => {
      const {x, y, width, height} = cells.cellBox(slot, row, column);
      pen.withTitle(pen.hasTitles ? () => tooltipLine(tooltipContent(slot, {row, column})) : null, () => {
        if (colour === null) pen.texture(x, y, width, height, theme);
        else pen.circle(x + width / 2, y + height / 2, Math.max(0.4 * Math.min(width, height), 0.8), {fill: colour});
      });
    }),
  );
}
