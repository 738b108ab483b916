// The panel types by the name in a payload. Each is a module with the same functions:
//
//   minWidth(panel)  maxWidth(panel, tallest, font)  heightOf(panel, width, tallest, font)     of the data area
//   leftMargin(panel, labelled, font)  rightMargin(panel, scale, hasBar, font)  bottomMargin(panel, labelled, width, font)
//   paint(pen, slot, theme)
//   itemAt(slot, x, y)  firstItem(slot)  moveItem(slot, item, across, down)  tooltipAnchor(slot, item)    items; null: none
//   hint(slot, x, y)                                     text for a point outside all items; optional
//   itemKey(slot, item)  findItem(slot, key)             the same item in another panel
//   outline(pen, slot, item, theme, strong)  tooltipContent(slot, item)
//
// A slot is a panel with its layout: {panel, scale, box, bar, width, height, labelledX, labelledY, font}.

import * as categories from "headwise/category_map";
import * as curves from "headwise/curves";
import * as heatmap from "headwise/heatmap";
import * as intervals from "headwise/intervals";
import * as legend from "headwise/legend";
import * as scatter from "headwise/scatter";
import * as tiles from "headwise/tile_grid";

/** @type {Record<string, PanelType>} */
const PANEL_TYPES = {
  Heatmap: heatmap,
  CategoryMap: categories,
  Curves: curves,
  Scatter: scatter,
  Intervals: intervals,
  Tiles: tiles,
  Legend: /** @type {any} */ (legend), // has no items
};

/**
 * The type of a panel.
 * @param {{type: string}} panel
 */
export function panelTypeOf(panel) {
  const type = PANEL_TYPES[panel.type];
  if (!type) throw new Error(`A panel of type ${panel.type} cannot be drawn; known are ${Object.keys(PANEL_TYPES).join(", ")}.`);
  return type;
}
