// Entries of a legend: a sign and what it means. Under curves and scatters they flow in lines; a Legend panel has one a line.

import {onPaper} from "headwise/ink";
import {paintCross} from "headwise/cells";
import {LINE, SMALL, textWidth} from "headwise/lettering";

const SIGN = 18; // room of a sign, and of the gap to its words
const GAP = 14;
export const ENTRY = SMALL * LINE + 2;

/** Entries in lines of at most `room` pixels, each with its place: [{entry, x, line}]. */
export function flow(entries, room, sans) {
  const placed = [];
  let [x, line] = [0, 0];
  for (const entry of entries) {
    const width = SIGN + textWidth(entry.label.replaceAll("\n", " "), SMALL, sans);
    if (x > 0 && x + width > room) [x, line] = [0, line + 1];
    placed.push({entry, x, line});
    x += width + GAP;
  }
  return placed;
}

/** The height of entries that flow. */
export function flowHeight(entries, room, sans) {
  return entries.length ? (flow(entries, room, sans).at(-1).line + 1) * ENTRY + 4 : 0;
}

export function paintFlow(pen, entries, left, top, room, ink, sans) {
  for (const {entry, x, line} of flow(entries, room, sans)) {
    const y = top + line * ENTRY + ENTRY / 2;
    paintSign(pen, entry, left + x + 6, y, ink);
    pen.text(left + x + SIGN, y, entry.label.replaceAll("\n", " "), {size: SMALL, colour: ink.ink});
  }
}

/** A sign about 12 pixels wide around (x, y). */
export function paintSign(pen, {sign, colour}, x, y, ink) {
  const drawn = onPaper(colour, ink);
  if (sign === "square") pen.rect(x - 6, y - 5, 12, 10, drawn);
  else if (sign === "frame") pen.box(x - 5.5, y - 4.5, 11, 9, {colour: ink.ink, width: 1.4});
  else if (sign === "texture") pen.texture(x - 6, y - 5, 12, 10, ink);
  else if (sign === "line" || sign === "dashed") paintLine(pen, x, y, drawn, sign === "dashed" ? [5, 3] : []);
  else if (sign === "dashed") pen.path([[x - 7, y], [x + 7, y]], {colour: drawn, width: 2, dash: [6, 3]});
  else if (sign === "dot") pen.circle(x, y, 4.5, {fill: drawn});
  else if (sign === "ring") pen.circle(x, y, 4.5, {line: {colour: ink.ink, width: 1.4}});
  else if (sign === "cross") paintCross(pen, x, y, 4, {colour: ink.ink, width: 1.4});
  else if (sign === "pointer") pen.area([[x - 3, y - 4], [x + 4, y], [x - 3, y + 4]], ink.ink);
  else throw new Error(`There is no way to draw the sign ${sign} of a legend.`);
}

function paintLine(pen, x, y, colour, dash) {
  pen.path([[x - 7, y], [x + 7, y]], {colour, width: 2, dash});
}
