// Points with names: one a head, or one an example. The names of the chosen points stand beside them.

import {footRoom as axisFoot, leftRoom as axisLeft, paintAxes, paintGuides, projection, rangeOf, ticksOf} from "headwise/axes";
import {flowHeight, paintFlow} from "headwise/entries";
import {SMALL, textWidth} from "headwise/lettering";
import {inWords} from "headwise/telling";
import {onPaper} from "headwise/ink";
import {told} from "headwise/numbers";

const BLUE = "#31688e";
const NEAR = 24;

export function leastWidth() {
  return 190;
}

export function mostWidth() {
  return 360;
}

export function heightOf(_, width) {
  return Math.round(Math.max(0.9 * width, 100));
}

export function leftRoom(panel, _, sans) {
  const range = rangeOf(panel.y, valuesOf(panel, "y"));
  return axisLeft(panel.y, ticksOf(panel.y, range), sans);
}

export function footRoom(panel, _, width, sans) {
  return axisFoot(panel.x) + flowHeight(entries(panel), width, sans) + 2;
}

export function rightRoom() {
  return 8;
}

export function paint(pen, slot, ink) {
  const {panel, box} = slot;
  const plot = plotOf(slot);
  paintGuides(pen, plot, ink);
  panel.x_values.forEach((_, place) => {
    const point = pointOf(plot, panel, place);
    if (!point) return;
    const fill = onPaper(colourOf(panel, place), ink);
    pen.about(pen.titled ? () => inWords(tell(slot, {place})) : null, () => pen.circle(...point, 3, {fill, alpha: 0.75}));
  });
  paintAxes(pen, plot, ink);
  paintNames(pen, plot, slot, ink);
  paintFlow(pen, entries(panel), box.x, box.y + box.height + axisFoot(panel.x) + 4, box.width, ink, slot.sans);
}

export function at(slot, x, y) {
  const plot = plotOf(slot);
  let [best, near] = [null, NEAR ** 2];
  slot.panel.x_values.forEach((_, place) => {
    const point = pointOf(plot, slot.panel, place);
    const distance = point ? (point[0] - x) ** 2 + (point[1] - y) ** 2 : Infinity;
    if (distance < near) [best, near] = [{place}, distance];
  });
  return best;
}

export function start(slot) {
  const place = slot.panel.shown[0] ?? order(slot)[0];
  return place === undefined ? null : {place};
}

/** The next point to the right or left; up and down go along the other axis. */
export function move(slot, {place}, across, down) {
  const points = order(slot, down ? "y_values" : "x_values");
  const step = across || -down;
  return {place: points[Math.min(Math.max(points.indexOf(place) + step, 0), points.length - 1)]};
}

export function anchor(slot, {place}) {
  const [x, y] = pointOf(plotOf(slot), slot.panel, place) ?? [slot.box.x, slot.box.y];
  return {x: x + 5, y: y + 5};
}

export function addressOf(slot, {place}) {
  return headAt(slot.panel, place);
}

export function find(slot, address) {
  const place = slot.panel.names.indexOf(address);
  return place >= 0 && pointOf(plotOf(slot), slot.panel, place) ? {place} : null;
}

export function outline(pen, slot, {place}, ink, strong) {
  const point = pointOf(plotOf(slot), slot.panel, place);
  if (!point) return;
  pen.circle(...point, strong ? 6 : 5, {fill: onPaper(colourOf(slot.panel, place), ink), line: {colour: ink.ink, width: 2}});
}

export function tell({panel}, {place}) {
  const group = panel.groups.length ? panel.categories[panel.groups[place]]?.label : "";
  return {
    name: panel.names[place] ?? `${place + 1}`,
    head: headAt(panel, place),
    value: panel.y_values[place],
    caption: panel.title,
    rows: [
      [panel.y.name || "y", told(panel.y_values[place])],
      [panel.x.name || "x", told(panel.x_values[place])],
      ...(group ? [["", group, colourOf(panel, place)]] : []),
    ],
  };
}

function headAt(panel, place) {
  const name = panel.names[place] ?? "";
  return /^L\d+H\d+$/.test(name) ? name : null;
}

function order({panel}, side = "x_values") {
  const measured = (place) => panel.x_values[place] !== null && panel.y_values[place] !== null;
  const known = panel.x_values.map((_, place) => place).filter(measured);
  return known.sort((a, b) => panel[side][a] - panel[side][b] || a - b);
}

function colourOf(panel, place) {
  return panel.categories[panel.groups.length ? panel.groups[place] : 0]?.colour ?? BLUE;
}

function entries({categories}) {
  return categories.length < 2 ? [] : categories.filter((each) => each.label).map((each) => ({...each, sign: "dot"}));
}

function valuesOf(panel, side) {
  return [...panel[`${side}_values`], ...panel.guides.filter((guide) => guide.axis === side).map((guide) => guide.at)];
}

function pointOf(plot, panel, place) {
  const [x, y] = [panel.x_values[place], panel.y_values[place]];
  return x === null || y === null ? null : [plot.x(x), plot.y(y)];
}

function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box, sans} = slot;
    const [xRange, yRange] = ["x", "y"].map((side) => rangeOf(panel[side], valuesOf(panel, side)));
    slot.plot = {
      panel, box, sans, xRange, yRange,
      x: projection(xRange, panel.x.log, box.x, box.width),
      y: projection(yRange, panel.y.log, box.y + box.height, -box.height),
      xTicks: ticksOf(panel.x, xRange, {doubling: true}),
      yTicks: ticksOf(panel.y, yRange),
    };
  }
  return slot.plot;
}

/** Names towards the middle, from the highest point down, each at least a line below the one before. */
function paintNames(pen, plot, {panel, box, sans}, ink) {
  const shown = panel.shown.map((place) => [place, pointOf(plot, panel, place)]).filter(([, point]) => point);
  shown.sort((a, b) => a[1][1] - b[1][1]);
  let free = box.y;
  for (const [place, [x, y]] of shown) {
    const name = panel.names[place] ?? "";
    const right = x + 8 + textWidth(name, SMALL - 1, sans) > box.x + box.width || x > box.x + box.width / 2;
    free = Math.max(y, free);
    const style = {size: SMALL - 1, align: right ? "right" : "left", colour: ink.ink, plate: `${ink.paper}cc`};
    pen.text(x + (right ? -6 : 6), free, name, style);
    free += SMALL;
  }
}
