// Numeric axes of curves, scatters and intervals: how far they reach, where a number stands, ticks, names and guides.
//
// An axis that says no range is as wide as its data and a twentieth more at both ends. A logarithmic axis spaces factors
// evenly. The y axis of curves may have labels instead of ticks: they name the places 0, 1, 2, ...

import {logTicks, roundTicks, tickText} from "headwise/numbers";
import {LINE, NAME, SMALL, cut, textWidth, widest} from "headwise/lettering";

const TICK = 4;
const MARGIN = 0.05;

/** [low, high] of an axis over these numbers; null is no number. */
export function rangeOf(axis, values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value) && (!axis.log || value > 0));
  let low = known.length ? known.reduce((a, b) => Math.min(a, b)) : axis.log ? 0.1 : 0;
  let high = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
  if (low === high) [low, high] = axis.log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  if (axis.log) {
    const reach = (high / low) ** MARGIN;
    return [axis.low ?? low / reach, axis.high ?? high * reach];
  }
  const reach = (high - low) * MARGIN;
  return [axis.low ?? low - reach, axis.high ?? high + reach];
}

/** From numbers to pixels of a stretch. */
export function projection([low, high], log, start, length) {
  const of = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  return (value) => start + of(value) * length;
}

/** The ticks of an axis as [value, text]; `counts` asks for whole numbers only. */
export function ticksOf(axis, [low, high], {counts = false, doubling = false, places = null} = {}) {
  if (axis.labels.length) return axis.labels.map((label, place) => [place, cut(label)]);
  if (places) return places.map((place) => [place, tickText(place)]);
  const [least, most] = [Math.min(low, high), Math.max(low, high)];
  const found = axis.log ? logTicks(least, most, doubling && least >= 0.5) : roundTicks(least, most);
  return found.filter((place) => !counts || Number.isInteger(place)).map((place) => [place, tickText(place)]);
}

export function leftRoom(axis, ticks, sans) {
  return (axis.name ? NAME * LINE + 4 : 0) + widest(ticks.map(([, text]) => text), SMALL, sans) + TICK + 4;
}

export function footRoom(axis) {
  return TICK + 2 + SMALL * LINE + (axis.name ? NAME * LINE + 2 : 0);
}

/** Two thin lines at the left and below, ticks, and the names of the axes. `plot` is {panel, box, x, y, xTicks, yTicks}. */
export function paintAxes(pen, {panel, box, x, y, xTicks, yTicks, sans, bare = false}, ink) {
  const bottom = box.y + box.height;
  pen.path([[box.x - 0.5, box.y], [box.x - 0.5, bottom + 0.5], [box.x + box.width, bottom + 0.5]], {colour: ink.inkSoft});
  for (const [value, text] of fitting(xTicks, x, sans)) {
    pen.path([[x(value), bottom + 1], [x(value), bottom + TICK]], {colour: ink.inkSoft});
    pen.text(x(value), bottom + TICK + 2, text, {size: SMALL, align: "center", baseline: "top", colour: ink.ink});
  }
  for (const [value, text] of yTicks) {
    if (!bare) pen.path([[box.x - TICK, y(value)], [box.x - 1, y(value)]], {colour: ink.inkSoft});
    pen.text(box.x - TICK - 2, y(value), text, {size: SMALL, align: "right", colour: ink.ink});
  }
  if (panel.x.name) {
    const place = [box.x + box.width / 2, bottom + TICK + 3 + SMALL * LINE];
    pen.text(...place, panel.x.name, {size: NAME, align: "center", baseline: "top", colour: ink.inkSoft});
  }
  if (panel.y.name) {
    const left = box.x - leftRoom(panel.y, yTicks, sans) + (NAME * LINE) / 2;
    pen.text(left, box.y + box.height / 2, panel.y.name, {size: NAME, align: "center", turn: -90, colour: ink.inkSoft});
  }
}

/** Thin dashed lines behind the data: chance, an elbow, x = y. */
export function paintGuides(pen, {panel, box, x, y, xRange, yRange}, ink) {
  const line = {colour: ink.trace, width: 1.2, dash: [4, 3]};
  const [right, bottom] = [box.x + box.width, box.y + box.height];
  for (const guide of panel.guides) {
    if (guide.axis === "x") {
      pen.path([[x(guide.at), box.y], [x(guide.at), bottom]], line);
      if (guide.text) pen.text(x(guide.at) + 4, box.y + 1, guide.text, {size: SMALL, baseline: "top", colour: ink.inkSoft});
    } else if (guide.axis === "y") {
      pen.path([[box.x, y(guide.at)], [right, y(guide.at)]], line);
      if (guide.text) pen.text(right, y(guide.at) - 3, guide.text, {size: SMALL, align: "right", baseline: "bottom", colour: ink.inkSoft});
    } else {
      const ends = [Math.max(Math.min(...xRange), Math.min(...yRange)), Math.min(Math.max(...xRange), Math.max(...yRange))];
      if (ends[0] < ends[1]) pen.path(ends.map((end) => [x(end), y(end)]), line);
    }
  }
}

/** Ticks whose numbers do not stand on each other: all, or every second, third, ... */
function fitting(ticks, x, sans) {
  for (let step = 1; step < ticks.length; step += 1) {
    const chosen = ticks.filter((_, index) => index % step === 0);
    const ends = chosen.map(([value, text]) => [x(value), textWidth(text, SMALL, sans) / 2 + 3]);
    if (ends.every(([place, half], index) => !index || ends[index - 1][0] + ends[index - 1][1] <= place - half)) return chosen;
  }
  return ticks.slice(0, 1);
}
