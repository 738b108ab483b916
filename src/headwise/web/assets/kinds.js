// The kinds of panels, by the type that a payload gives them. Each is a module with the same verbs:
//
//   leastWidth(panel)  mostWidth(panel, tallest, sans)  heightOf(panel, width, tallest, sans)     of the data area
//   leftRoom(panel, labelled, sans)  rightRoom(panel, scale, hasBar, sans)  footRoom(panel, labelled, width, sans)
//   paint(pen, slot, ink)
//   at(slot, x, y)  start(slot)  move(slot, place, across, down)  anchor(slot, place)      what is pointed at; null: nothing
//   hint(slot, x, y)                                     words for a point that is no place; not all have them
//   addressOf(slot, place)  find(slot, address)          the same thing in another panel
//   outline(pen, slot, place, ink, strong)  tell(slot, place)
//
// A slot is a panel with its room: {panel, scale, box, bar, width, height, labelledX, labelledY, sans}.

import * as categories from "headwise/categories";
import * as curves from "headwise/curves";
import * as heatmap from "headwise/heatmap";
import * as intervals from "headwise/intervals";
import * as legend from "headwise/legend";
import * as scatter from "headwise/scatter";
import * as tiles from "headwise/tiles";

const KINDS = {Heatmap: heatmap, CategoryMap: categories, Curves: curves, Scatter: scatter, Intervals: intervals, Tiles: tiles,
  Legend: legend};

/** The kind of a panel. */
export function kindOf(panel) {
  const kind = KINDS[panel.type];
  if (!kind) throw new Error(`There is no way to draw a ${panel.type}; known are ${Object.keys(KINDS).join(", ")}.`);
  return kind;
}
