// Lines over a numeric axis, with bands; they are named below the axis, where no line can cross the names.
//
// Where curves have the same places along x, the pointer picks a place and all of them are told at it, with those that are
// level; else (curves such as ROC have places of their own) it picks the nearest point of one curve.

import {footRoom as axisFoot, leftRoom as axisLeft, paintAxes, paintGuides, projection, rangeOf, ticksOf} from "headwise/axes";
import {flowHeight, paintFlow} from "headwise/entries";
import {LINE, SMALL} from "headwise/lettering";
import {onPaper} from "headwise/ink";
import {told} from "headwise/numbers";

const FEW = 6; // places of a logarithmic axis that each get a tick
const NEAR = 60; // pixels from which a point can be picked

export function leastWidth() {
  return 190;
}

export function mostWidth() {
  return 340;
}

export function heightOf(panel, width) {
  return Math.round(Math.max(0.72 * width, 100, panel.y.labels.length * SMALL * LINE));
}

export function leftRoom(panel, _, sans) {
  return axisLeft(panel.y, yTicks(panel, yRange(panel)), sans);
}

export function footRoom(panel, _, width, sans) {
  return axisFoot(panel.x) + flowHeight(entries(panel), width, sans) + 2;
}

export function rightRoom() {
  return 8;
}

export function paint(pen, slot, ink) {
  const plot = plotOf(slot);
  paintGuides(pen, plot, ink);
  pen.inside({x: slot.box.x, y: slot.box.y - 2, width: slot.box.width + 3, height: slot.box.height + 4}, () => {
    for (const curve of slot.panel.curves) paintBand(pen, plot, curve, ink);
    for (const curve of slot.panel.curves) paintCurve(pen, plot, curve, ink);
  });
  paintAxes(pen, plot, ink);
  const top = slot.box.y + slot.box.height + axisFoot(slot.panel.x) + 4;
  paintFlow(pen, entries(slot.panel), slot.box.x, top, slot.box.width, ink, slot.sans);
}

export function at(slot, x, y) {
  const {box, panel} = slot;
  if (x < box.x - 8 || x > box.x + box.width + 8 || y < box.y - 8 || y > box.y + box.height + 8) return null;
  const plot = plotOf(slot);
  const common = sharedPlaces(panel);
  let [best, near] = [null, common ? Infinity : NEAR ** 2];
  panel.curves.slice(0, common ? 1 : undefined).forEach((curve, index) => curve.x.forEach((value, place) => {
    if (value === null || curve.y[place] === null) return;
    const distance = (plot.x(value) - x) ** 2 + (common ? 0 : (plot.y(curve.y[place]) - y) ** 2);
    if (distance < near) [best, near] = [{curve: index, place}, distance];
  }));
  return best;
}

export function start({panel}) {
  const curve = panel.curves.findIndex((each) => each.x.length);
  return curve < 0 ? null : {curve, place: 0};
}

export function move(slot, {curve, place}, across, down) {
  const {curves} = slot.panel;
  const other = Math.min(Math.max(curve + (sharedPlaces(slot.panel) ? 0 : down), 0), curves.length - 1);
  return {curve: other, place: Math.min(Math.max(place + across, 0), curves[other].x.length - 1)};
}

export function anchor(slot, {curve, place}) {
  const plot = plotOf(slot);
  const one = slot.panel.curves[curve];
  return {x: plot.x(one.x[place]) + 6, y: plot.y(one.y[place] ?? plot.yRange[0])};
}

export function addressOf() {
  return null;
}

export function find() {
  return null;
}

export function outline(pen, slot, {curve, place}, ink) {
  const plot = plotOf(slot);
  const common = sharedPlaces(slot.panel);
  const value = slot.panel.curves[curve].x[place];
  if (common) pen.path([[plot.x(value), slot.box.y], [plot.x(value), slot.box.y + slot.box.height]], {colour: ink.inkSoft});
  slot.panel.curves.forEach((each, index) => {
    const height = common ? heightAt(each, value) : index === curve ? each.y[place] : null;
    if (height === null) return;
    pen.circle(plot.x(value), plot.y(height), 5, {fill: onPaper(each.colour, ink), line: {colour: ink.paper, width: 2}});
  });
}

export function tell(slot, {curve, place}) {
  const {panel} = slot;
  const own = panel.curves[curve];
  const at = own.x[place];
  const seen = sharedPlaces(panel) ? panel.curves.filter((each) => heightAt(each, at) !== null) : [own];
  const label = panel.y.labels[Math.round(own.y[place])];
  return {
    name: label ?? `${panel.x.name || "x"} ${told(at)}`,
    head: null,
    value: own.y[place],
    caption: panel.title,
    rows: label === undefined
      ? seen.map((each) => [each.label || panel.y.name, numberOf(each, each === own ? place : placeOf(each, at)), each.colour])
      : [[panel.x.name, told(at)]],
  };
}

function numberOf(curve, place) {
  const [low, high] = [curve.low?.[place] ?? null, curve.high?.[place] ?? null];
  return told(curve.y[place]) + (low === null || high === null ? "" : ` (${told(low)} to ${told(high)})`);
}

/** Where along a curve a value of x stands; any place of a curve that is level; -1: nowhere. */
function placeOf({x, y}, value) {
  const place = x.indexOf(value);
  return place < 0 && y.every((height) => height === y[0]) ? 0 : place;
}

function heightAt(curve, value) {
  return curve.y[placeOf(curve, value)] ?? null;
}

/** Whether all curves that are not level stand at the places of the first. */
function sharedPlaces({curves}) {
  const [first, ...rest] = curves;
  return rest.every((curve) => curve.x.length === first.x.length && curve.x.every((value, place) => value === first.x[place])
    || curve.y.every((height) => height === curve.y[0]));
}

/** Curves that are named: none where a legend of the figure does so. */
function entries({curves}) {
  if (curves.length < 2) return [];
  return curves.filter((curve) => curve.label).map((curve) => ({
    label: curve.label, colour: curve.colour, sign: {points: "dot", dashed: "dashed"}[curve.style] ?? "line",
  }));
}

function plotOf(slot) {
  if (!slot.plot) {
    const {panel, box} = slot;
    const [xRange, yRange_] = [rangeOf(panel.x, xValues(panel)), yRange(panel)];
    const places = [...new Set(panel.curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    const few = panel.x.log && places.length > 0 && places.length <= FEW;
    slot.plot = {
      panel, box, xRange, yRange: yRange_, sans: slot.sans,
      x: projection(xRange, panel.x.log, box.x, box.width),
      y: projection(yRange_, panel.y.log, box.y + box.height, -box.height),
      xTicks: ticksOf(panel.x, xRange, {doubling: true, places: few ? places : null}),
      yTicks: yTicks(panel, yRange_),
    };
  }
  return slot.plot;
}

function xValues(panel) {
  const guides = panel.guides.filter((guide) => guide.axis === "x").map((guide) => guide.at);
  return [...panel.curves.flatMap((curve) => stretched(curve, panel.x.log).x), ...guides];
}

function yRange(panel) {
  const guides = panel.guides.filter((guide) => guide.axis === "y").map((guide) => guide.at);
  return rangeOf(panel.y, [...panel.curves.flatMap((curve) => [...curve.y, ...(curve.low ?? []), ...(curve.high ?? [])]), ...guides]);
}

function yTicks(panel, range) {
  const counts = panel.curves.every((curve) => curve.y.every((value) => Number.isInteger(value)));
  return ticksOf(panel.y, range, {counts});
}

/** Steps go on for half a step at both ends, so that the first and the last are as wide as the others. */
function stretched(curve, log) {
  if (curve.style !== "step" || log || curve.x.length < 2) return curve;
  const {x} = curve;
  const ends = (side) => side && [side[0], ...side, side.at(-1)];
  return {...curve, x: [1.5 * x[0] - 0.5 * x[1], ...x, 1.5 * x.at(-1) - 0.5 * x.at(-2)], y: ends(curve.y), low: ends(curve.low),
    high: ends(curve.high)};
}

/** Points of a side of a curve in pixels; steps change half way between two places; what is not known is a gap. */
function points(plot, curve, side) {
  const found = [];
  curve.x.forEach((value, place) => {
    const height = side[place];
    if (height === null || value === null) return found.push(null);
    const [x, y] = [plot.x(value), plot.y(height)];
    if (curve.style !== "step") return found.push([x, y]);
    const [before, after] = [curve.x[place - 1], curve.x[place + 1]];
    found.push([before === undefined ? x : plot.x((before + value) / 2), y]);
    return found.push([after === undefined ? x : plot.x((after + value) / 2), y]);
  });
  return found;
}

function paintBand(pen, plot, curve, ink) {
  if (!curve.low || !curve.high) return;
  const long = stretched(curve, plot.panel.x.log);
  const [low, high] = [points(plot, long, long.low), points(plot, long, long.high)];
  const known = low.map((point, index) => point !== null && high[index] !== null);
  for (let first = 0; first < known.length; first += 1) {
    if (!known[first]) continue;
    let end = first;
    while (end < known.length && known[end]) end += 1;
    pen.area([...high.slice(first, end), ...low.slice(first, end).reverse()], onPaper(curve.colour, ink), 0.2);
    first = end;
  }
}

function paintCurve(pen, plot, curve, ink) {
  const long = stretched(curve, plot.panel.x.log);
  const colour = onPaper(curve.colour, ink);
  const line = points(plot, long, long.y);
  if (curve.style === "points") {
    for (const point of line) if (point) pen.circle(point[0], point[1], 2.5, {fill: colour});
    return;
  }
  pen.about(curve.label, () => pen.path(line, {colour, width: 1.8, dash: curve.style === "dashed" ? [6, 4] : []}));
}
