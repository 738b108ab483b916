// A table of results as a picture: one row a name, a dot at the value and a line from its low to its high end.

import {footRoom as axisFoot, leftRoom as axisLeft, paintAxes, paintGuides, projection, rangeOf, ticksOf} from "headwise/axes";
import {flowHeight, paintFlow} from "headwise/entries";
import {LINE, SMALL} from "headwise/lettering";
import {inWords} from "headwise/telling";
import {onPaper} from "headwise/ink";
import {told} from "headwise/numbers";

const BLUE = "#31688e";
const ROW = SMALL * LINE + 5;

export function leastWidth() {
  return 170;
}

export function mostWidth() {
  return 380;
}

export function heightOf(panel) {
  return Math.round(Math.max(panel.y.labels.length * ROW + 8, 60));
}

export function leftRoom(panel, _, sans) {
  return axisLeft(panel.y, ticksOf(panel.y, [0, 1]), sans);
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
  panel.values.forEach((value, place) => {
    const colour = onPaper(colourOf(panel, place), ink);
    const y = plot.y(place);
    pen.about(pen.titled ? () => inWords(tell(slot, {place})) : null, () => {
      if (panel.low[place] !== null && panel.high[place] !== null) {
        pen.path([[plot.x(panel.low[place]), y], [plot.x(panel.high[place]), y]], {colour, width: 2, alpha: 0.6});
      }
      if (value !== null) pen.circle(plot.x(value), y, 4, {fill: colour});
    });
  });
  paintAxes(pen, plot, ink);
  paintFlow(pen, entries(panel), box.x, box.y + box.height + axisFoot(panel.x) + 4, box.width, ink, slot.sans);
}

export function at({panel, box}, x, y) {
  const place = Math.floor(((y - box.y) / box.height) * panel.values.length);
  return x >= 0 && x <= box.x + box.width && place >= 0 && place < panel.values.length ? {place} : null;
}

export function start() {
  return {place: 0};
}

export function move({panel}, {place}, across, down) {
  return {place: Math.min(Math.max(place + (down || across), 0), panel.values.length - 1)};
}

export function anchor(slot, {place}) {
  const plot = plotOf(slot);
  return {x: plot.x(slot.panel.values[place] ?? plot.xRange[0]) + 6, y: plot.y(place) + 6};
}

export function addressOf({panel}, {place}) {
  return headAt(panel, place) ?? `row ${panel.y.labels[place]}`;
}

export function find({panel}, address) {
  const place = panel.y.labels.indexOf(address.replace(/^row /, ""));
  return place >= 0 ? {place} : null;
}

export function outline(pen, slot, {place}, ink, strong) {
  const plot = plotOf(slot);
  const {panel, box} = slot;
  const half = box.height / panel.values.length / 2;
  pen.box(box.x + 1, plot.y(place) - half + 1, box.width - 2, 2 * half - 2, {colour: ink.trace});
  if (panel.values[place] !== null) {
    const fill = onPaper(colourOf(panel, place), ink);
    pen.circle(plot.x(panel.values[place]), plot.y(place), strong ? 6 : 5, {fill, line: {colour: ink.ink, width: 2}});
  }
}

export function tell({panel}, {place}) {
  const group = panel.groups.length ? panel.categories[panel.groups[place]]?.label : "";
  const [low, high] = [panel.low[place], panel.high[place]];
  return {
    name: panel.y.labels[place],
    head: headAt(panel, place),
    value: panel.values[place],
    caption: panel.title,
    rows: [
      [panel.x.name || "value", told(panel.values[place])],
      ...(low === null || high === null ? [] : [["interval", `${told(low)} to ${told(high)}`]]),
      ...(group ? [["", group, colourOf(panel, place)]] : []),
    ],
  };
}

function headAt(panel, place) {
  return /^L\d+H\d+$/.test(panel.y.labels[place]) ? panel.y.labels[place] : null;
}

function colourOf(panel, place) {
  return panel.categories[panel.groups.length ? panel.groups[place] : 0]?.colour ?? BLUE;
}

function entries({categories}) {
  return categories.length < 2 ? [] : categories.filter((each) => each.label).map((each) => ({...each, sign: "square"}));
}

function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box, sans} = slot;
    const guides = panel.guides.filter((guide) => guide.axis === "x").map((guide) => guide.at);
    const xRange = rangeOf(panel.x, [...panel.values, ...panel.low, ...panel.high, ...guides]);
    const step = box.height / panel.values.length;
    const yRange = [panel.values.length - 0.5, -0.5];
    slot.plot = {
      panel, box, sans, xRange, yRange, bare: true,
      x: projection(xRange, panel.x.log, box.x, box.width),
      y: (place) => box.y + (place + 0.5) * step,
      xTicks: ticksOf(panel.x, xRange, {doubling: true}),
      yTicks: ticksOf(panel.y, yRange),
    };
  }
  return slot.plot;
}
