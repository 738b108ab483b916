// A colour bar: the colours of a scale, its ticks (with a plus where it was clipped), pointers at its marks, its label.

import {shareOf} from "headwise/scale";
import {told} from "headwise/numbers";
import {LINE, SMALL, textWidth, widest} from "headwise/lettering";

export const BAR = 10;
const GAP = 8;

/** What a bar takes at the right of a map, label included. */
export function barRoom(scale, label, sans) {
  return GAP + BAR + 5 + widest(scale.ticks.map(([, text]) => text), SMALL, sans) + (label ? SMALL * LINE + 3 : 0) + 2;
}

/** Where the bar of a map stands. */
export function barBeside(box) {
  return {x: box.x + box.width + GAP, y: box.y, width: BAR, height: box.height};
}

/** What is written along a panel's bar: the scale's label, unless the panel says it already. */
export function barLabel(panel, scale) {
  return `${panel.title} ${panel.subtitle}`.toLowerCase().includes(scale.label.toLowerCase()) ? "" : scale.label;
}

export function paintBar(pen, bar, scale, label, ink, sans) {
  const place = (value) => bar.y + (1 - shareOf(scale, value)) * bar.height;
  const right = bar.x + bar.width;
  pen.ramp(bar.x, bar.y, bar.width, bar.height, scale.stops);
  pen.box(bar.x - 0.5, bar.y - 0.5, bar.width + 1, bar.height + 1, {colour: ink.inkSoft, alpha: 0.6});
  for (const [value, text] of scale.ticks) {
    pen.path([[right + 1, place(value)], [right + 4, place(value)]], {colour: ink.inkSoft});
    pen.text(right + 6, place(value), text, {size: SMALL, colour: ink.ink});
  }
  for (const mark of scale.marks) {
    if (mark.value >= scale.low && mark.value <= scale.high) paintPointer(pen, bar, place(mark.value), mark, ink);
  }
  if (label) {
    const x = right + 6 + widest(scale.ticks.map(([, text]) => text), SMALL, sans) + (SMALL * LINE) / 2 + 2;
    const size = Math.min(SMALL, (SMALL * (bar.height + 24)) / Math.max(textWidth(label, SMALL, sans), 1));
    pen.text(x, bar.y + bar.height / 2, label, {size, align: "center", turn: -90, colour: ink.inkSoft});
  }
}

/** A line across the bar at a value: where the cell lies that is looked at. */
export function pointAt(pen, bar, scale, value, ink) {
  const y = bar.y + (1 - Math.min(Math.max(shareOf(scale, value), 0), 1)) * bar.height;
  pen.path([[bar.x - 3, y], [bar.x + bar.width + 3, y]], {colour: ink.paper, width: 4});
  pen.path([[bar.x - 4, y], [bar.x + bar.width + 4, y]], {colour: ink.ink, width: 2});
}

/** What the pointers of a scale mean, with their values. */
export function marksOf(scale) {
  return scale.marks.map(({label, value}) => `${label}: ${told(value)}`).join("; ");
}

/** What a point beside a map says: the pointers, where it is on the bar; else nothing. */
export function barHint(slot, x, y) {
  const {bar, scale} = slot;
  const on = bar && x >= bar.x - 8 && x <= bar.x + bar.width + 4 && y >= bar.y - 6 && y <= bar.y + bar.height + 6;
  return on ? marksOf(scale) : "";
}

/** A scale read out. */
export function scaleInWords(scale) {
  const [first, last] = [scale.ticks[0][1], scale.ticks.at(-1)[1]];
  return [`${scale.label || "Colours"} from ${first} to ${last}`, marksOf(scale)].filter(Boolean).join("; ");
}

function paintPointer(pen, bar, y, mark, ink) {
  pen.about(mark.label, () => {
    pen.path([[bar.x, y], [bar.x + bar.width, y]], {colour: "#ffffff", width: 1.4});
    pen.area([[bar.x - 6, y - 3.5], [bar.x - 0.5, y], [bar.x - 6, y + 3.5]], ink.ink);
  });
}
