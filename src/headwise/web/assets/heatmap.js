// A map of numbers by colour, with its colour bar. The rest (labels, marks, picking) is `cells.js`.
//
// Runs of cells with one colour are one rectangle, so that a map of 5,120 cells is a few thousand strokes of the pen.

import * as cells from "headwise/cells";
import {barLabel, barRoom, paintBar, pointAt} from "headwise/bar";
import {colouring} from "headwise/scale";
import {extraRows, headOf, inWords, nameOf, remarks} from "headwise/telling";
import {textureInk} from "headwise/ink";
import {told} from "headwise/numbers";
import {SMALL, wrap} from "headwise/lettering";

export const {leastWidth, neededWidth, mostWidth, heightOf, leftRoom, footRoom, settledWidth} = cells;
export {barHint as hint} from "headwise/bar";
export const {at, start, move, anchor, addressOf, find} = cells;

export function rightRoom(panel, scale, hasBar, sans) {
  return hasBar ? barRoom(scale, barLabel(panel, scale), sans) : 5;
}

export function paint(pen, slot, ink) {
  const {panel, scale, box} = slot;
  const colour = colouring(scale);
  const colours = panel.values.map((line) => line.map((value) => (value === null ? null : colour(value))));
  const measured = colours.some((line) => line.some(Boolean));
  if (measured) paintCells(pen, slot, colours, textureInk(scale, ink));
  else pen.texture(box.x, box.y, box.width, box.height, ink);
  cells.paintOver(pen, slot, ink, (row, column) => colours[row][column]);
  if (!measured) writeAcross(pen, slot, panel.missing, ink);
  if (slot.bar) paintBar(pen, slot.bar, scale, barLabel(panel, scale), ink, slot.sans);
}

/** Every cell in its colour (null: texture). In a file that tells its cells, each is a shape of its own. */
export function paintCells(pen, slot, colours, ink) {
  const {xs, ys} = cells.edges(slot);
  colours.forEach((line, row) => {
    for (let column = 0, end = 1; column < line.length; column = end) {
      const colour = line[column];
      for (end = column + 1; !pen.titled && end < line.length && line[end] === colour; end += 1);
      const run = [xs[column], ys[row], xs[end] - xs[column], ys[row + 1] - ys[row]];
      const cell = () => (colour === null ? pen.texture(...run, ink) : pen.rect(...run, colour));
      if (pen.titled) pen.about(inWords((slot.tell ?? tell)(slot, {row, column})), cell);
      else cell();
    }
  });
}

export function outline(pen, slot, place, ink, strong) {
  cells.outline(pen, slot, place, ink, strong);
  const value = slot.panel.values[place.row][place.column];
  if (slot.bar && value !== null) pointAt(pen, slot.bar, slot.scale, value, ink);
}

export function tell(slot, place) {
  const {panel, scale} = slot;
  const value = panel.values[place.row][place.column];
  return {
    name: nameOf(panel, place),
    head: headOf(panel, place.row, place.column),
    value,
    caption: panel.title,
    rows: [
      [scale.label || "value", value === null ? panel.missing : told(value)],
      ...extraRows(panel.extras, place, value),
      ...remarks(panel, place).map((text) => ["", text]),
    ],
  };
}

function writeAcross(pen, {box, sans}, text, ink) {
  const lines = wrap(text, 0.9 * box.width, SMALL, sans);
  const top = box.y + box.height / 2 - ((lines.length - 1) * SMALL * 1.35) / 2;
  const middle = box.x + box.width / 2;
  lines.forEach((line, index) => {
    pen.text(middle, top + index * SMALL * 1.35, line, {size: SMALL, align: "center", colour: ink.ink, plate: ink.paper});
  });
}
