// A panel that says what colours and signs mean, in the place of the grid that the figure gave it.

import {ENTRY, paintSign} from "headwise/entries";
import {LINE, SMALL, wrap} from "headwise/lettering";

const SIGN = 20;

export function leastWidth() {
  return 0;
}

export function mostWidth() {
  return 0;
}

export function heightOf(panel, width, _, sans) {
  return linesOf(panel, width, sans).reduce((height, {lines}) => height + room(lines), panel.title ? 20 : 0) + 4;
}

export function leftRoom() {
  return 0;
}

export function footRoom() {
  return 0;
}

export function rightRoom() {
  return 0;
}

export function paint(pen, slot, ink) {
  const {panel, box, sans} = slot;
  let y = box.y;
  if (panel.title) {
    pen.text(box.x, y + 8, panel.title, {size: 12, weight: 600, colour: ink.ink});
    y += 20;
  }
  for (const {entry, lines} of linesOf(panel, box.width, sans)) {
    paintSign(pen, entry, box.x + 7, y + ENTRY / 2, ink);
    lines.forEach((line, index) => {
      pen.text(box.x + SIGN, y + ENTRY / 2 + index * SMALL * LINE, line, {size: SMALL, colour: ink.ink});
    });
    y += room(lines);
  }
}

/** The legend read out. */
export function spoken(panel) {
  return panel.entries.map((entry) => entry.label.replaceAll("\n", " ")).join("; ");
}

function linesOf(panel, width, sans) {
  return panel.entries.map((entry) => ({entry, lines: wrap(entry.label, Math.max(width - SIGN, 60), SMALL, sans)}));
}

function room(lines) {
  return ENTRY + (lines.length - 1) * SMALL * LINE + 4;
}
