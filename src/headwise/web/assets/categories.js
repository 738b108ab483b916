// A map of categories by colour: a square or a dot a cell. -1 is a cell that was not measured: a texture.

import * as cells from "headwise/cells";
import {paintCells} from "headwise/heatmap";
import {onPaper} from "headwise/ink";
import {extraRows, headOf, inWords, nameOf, remarks} from "headwise/telling";

export const {leastWidth, neededWidth, mostWidth, heightOf, leftRoom, footRoom, settledWidth} = cells;
export const {at, start, move, anchor, addressOf, find, outline} = cells;

const ROUND = 7; // pixels of a cell in which a dot is seen as one; smaller ones are squares

export function rightRoom() {
  return 5;
}

export function paint(pen, slot, ink) {
  const {panel} = slot;
  const inks = panel.categories.map((category) => onPaper(category.colour, ink));
  const colours = panel.values.map((line) => line.map((value) => (value < 0 ? null : inks[value])));
  const {width, height} = cells.cellBox(slot, 0, 0);
  if (panel.shape === "dot" && Math.min(width, height) >= ROUND) paintDots(pen, slot, colours, ink);
  else paintCells(pen, {...slot, tell}, colours, ink);
  cells.paintOver(pen, slot, ink, (row, column) => colours[row][column]);
}

export function tell(slot, place) {
  const {panel} = slot;
  const value = panel.values[place.row][place.column];
  return {
    name: nameOf(panel, place),
    head: headOf(panel, place.row, place.column),
    value,
    caption: panel.title,
    rows: [
      ["", value < 0 ? panel.missing : panel.categories[value].label.replaceAll("\n", " ")],
      ...extraRows(panel.extras, place, null),
      ...remarks(panel, place).map((text) => ["", text]),
    ],
  };
}

function paintDots(pen, slot, colours, ink) {
  colours.forEach((line, row) => line.forEach((colour, column) => {
    const {x, y, width, height} = cells.cellBox(slot, row, column);
    pen.about(pen.titled ? () => inWords(tell(slot, {row, column})) : null, () => {
      if (colour === null) pen.texture(x, y, width, height, ink);
      else pen.circle(x + width / 2, y + height / 2, Math.max(0.4 * Math.min(width, height), 0.8), {fill: colour});
    });
  }));
}
