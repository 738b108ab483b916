// Legend entries: a sign and its meaning. Below curves and scatter plots they flow in lines; a Legend panel has one per line.

import {paintCross} from "headwise/cell_grid";
import {adaptColour} from "headwise/colours";
import {LINE_HEIGHT, SMALL_FONT, textWidth, wrap} from "headwise/text_metrics";

const SIGN_WIDTH = 18; // pixels, with the gap to the text
const ENTRY_GAP = 14;
export const ENTRY_HEIGHT = SMALL_FONT * LINE_HEIGHT + 2;

/**
 * Entries in lines of at most `room` pixels, with positions: [{entry, x, line}].
 * @param {Category[]} entries
 * @param {number} room
 * @param {string} font
 */
export function flowEntries(entries, room, font) {
  const placed = [];
  let [x, line] = [0, 0];
  for (const entry of entries) {
    const width = SIGN_WIDTH + textWidth(entry.label.replaceAll("\n", " "), SMALL_FONT, font);
    if (x > 0 && x + width > room) [x, line] = [0, line + 1];
    placed.push({entry, x, line});
    x += width + ENTRY_GAP;
  }
  return placed;
}

/**
 * The height of entries that flow.
 * @param {Category[]} entries
 * @param {number} room
 * @param {string} font
 */
export function entriesHeight(entries, room, font) {
  return entries.length ? (flowEntries(entries, room, font).at(-1).line + 1) * ENTRY_HEIGHT + 4 : 0;
}

/**
 * @param {Pen} pen
 * @param {Category[]} entries
 * @param {number} left
 * @param {number} top
 * @param {number} room
 * @param {Theme} theme
 * @param {string} font
 */
export function paintEntries(pen, entries, left, top, room, theme, font) {
  for (const {entry, x, line} of flowEntries(entries, room, font)) {
    const y = top + line * ENTRY_HEIGHT + ENTRY_HEIGHT / 2;
    paintSign(pen, entry, left + x + 6, y, theme);
    pen.text(left + x + SIGN_WIDTH, y, entry.label.replaceAll("\n", " "), {size: SMALL_FONT, colour: theme.ink});
  }
}

/**
 * A sign about 12 pixels wide around (x, y).
 * @param {Pen} pen
 * @param {Category} category
 * @param {number} x
 * @param {number} y
 * @param {Theme} theme
 */
export function paintSign(pen, {sign, colour}, x, y, theme) {
  const drawn = adaptColour(colour, theme);
  if (sign === "square") pen.rect(x - 6, y - 5, 12, 10, drawn);
  else if (sign === "frame") pen.box(x - 5.5, y - 4.5, 11, 9, {colour: theme.ink, width: 1.4});
  else if (sign === "texture") pen.texture(x - 6, y - 5, 12, 10, theme);
  else if (sign === "line" || sign === "dashed") paintLine(pen, x, y, drawn, sign === "dashed" ? [5, 3] : []);
  else if (sign === "dot") pen.circle(x, y, 4.5, {fill: drawn});
  else if (sign === "ring") pen.circle(x, y, 4.5, {line: {colour: theme.ink, width: 1.4}});
  else if (sign === "cross") paintCross(pen, x, y, 4, {colour: theme.ink, width: 1.4});
  else if (sign === "pointer")
    pen.area(
      [
        [x - 3, y - 4],
        [x + 4, y],
        [x - 3, y + 4],
      ],
      theme.ink,
    );
  else throw new Error(`The legend sign ${sign} cannot be drawn.`);
}

/** @param {Pen} pen @param {number} x @param {number} y @param {string} colour @param {number[]} dash */
function paintLine(pen, x, y, colour, dash) {
  pen.path(
    [
      [x - 7, y],
      [x + 7, y],
    ],
    {colour, width: 2, dash},
  );
}

const PANEL_SIGN_WIDTH = 20;

export function minWidth() {
  return 0;
}

export function maxWidth() {
  return 0;
}

/** @param {LegendPanel} panel @param {number} width @param {number} _ @param {string} font */
export function heightOf(panel, width, _, font) {
  return wrapEntries(panel, width, font).reduce((height, {lines}) => height + wrappedHeight(lines), panel.title ? 20 : 0) + 4;
}

export function leftMargin() {
  return 0;
}

export function bottomMargin() {
  return 0;
}

export function rightMargin() {
  return 0;
}

/** @param {Pen} pen @param {Slot<LegendPanel>} slot @param {Theme} theme */
export function paint(pen, slot, theme) {
  const {panel, box, font} = slot;
  let y = box.y;
  if (panel.title) {
    pen.text(box.x, y + 8, panel.title, {size: 12, weight: 600, colour: theme.ink});
    y += 20;
  }
  for (const {entry, lines} of wrapEntries(panel, box.width, font)) {
    paintSign(pen, entry, box.x + 7, y + ENTRY_HEIGHT / 2, theme);
    lines.forEach((line, index) => {
      pen.text(box.x + PANEL_SIGN_WIDTH, y + ENTRY_HEIGHT / 2 + index * SMALL_FONT * LINE_HEIGHT, line, {
        size: SMALL_FONT,
        colour: theme.ink,
      });
    });
    y += wrappedHeight(lines);
  }
}

/**
 * The legend in words.
 * @param {LegendPanel} panel
 */
export function describeLegend(panel) {
  return panel.entries.map((entry) => entry.label.replaceAll("\n", " ")).join("; ");
}

/** @param {LegendPanel} panel @param {number} width @param {string} font */
function wrapEntries(panel, width, font) {
  return panel.entries.map((entry) => ({entry, lines: wrap(entry.label, Math.max(width - PANEL_SIGN_WIDTH, 60), SMALL_FONT, font)}));
}

/** @param {string[]} lines */
function wrappedHeight(lines) {
  return ENTRY_HEIGHT + (lines.length - 1) * SMALL_FONT * LINE_HEIGHT + 4;
}
