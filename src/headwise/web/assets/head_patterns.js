// A head's attention maps as a figure: the shown prompt with its tokens and, where the report has them, the mean over prompts.
//
// Maps come as bytes, 0 to 254 for weights 0 to 1 and 255 for what the mask hides; so a weight is read to a 254th.

import {get, unpacked} from "headwise/source";

const HIDDEN = 255;
const LEVELS = 254;

/** A figure payload of the head's maps. */
export async function patternFigure({name, patterns}) {
  const [grid, mean] = await Promise.all([get("figure/patterns/grid"), get("figure/patterns/average").catch(() => null)]);
  const scale = {...grid.scales.weight, low: 0, high: 1, over: false, under: false, ticks: [[0, "0"], [0.5, "0.5"], [1, "1"]]};
  const labels = patterns.starts.map((start) => shown(patterns.tokens[start] ?? ""));
  const panels = await Promise.all(patterns.maps.map((one) => panel(one.key, one.name, one.shown, labels)));
  const means = mean ? await averages(mean, name) : [];
  return {
    format: "headwise.figure/1", type: "Figure", title: "", subtitle: "", panels: [...panels, ...means], columns: panels.length,
    scales: {weight: scale, ...(means.length ? {mean: mean.scales.weight} : {})},
    notes: [`One prompt of ${patterns.tokens.length} tokens${means.length ? `; below, the mean over ${patterns.prompts.length} prompts, stretched to one length` : ""}. Rows are tokens that look, columns tokens that are looked at; weights are read to a 254th of their scale.`],
    alt: `Attention maps of ${name}`, provenance: "",
  };
}

/** The head's tiles in the figure of means, one a model. */
async function averages({panels, scales: {weight}}, name) {
  const found = panels.filter((one) => one.names?.includes(name));
  return Promise.all(found.map(async (one) => {
    const [, rows, columns] = one.levels.shape;
    const start = one.names.indexOf(name) * rows * columns;
    const bytes = (await unpacked(one.levels.deflated)).subarray(start, start + rows * columns);
    const values = grid(bytes, rows, columns, (level) => weight.low + (level / LEVELS) * (weight.high - weight.low));
    return heatmap(`mean ${one.key}`, one.title, "mean over prompts", values, numbers(columns), numbers(rows), "mean");
  }));
}

async function panel(key, title, pixels, labels) {
  const [rows, columns] = pixels.shape;
  const values = grid(await unpacked(pixels.deflated), rows, columns, (level) => level / LEVELS);
  return heatmap(key, title, "one prompt", values, axis("Token looked at", labels), axis("Token that looks", labels), "weight");
}

function heatmap(key, title, subtitle, values, x, y, scale) {
  return {type: "Heatmap", key, title, subtitle, values, x, y, scale, frames: [], marks: [], extras: {}, missing: "hidden by the mask"};
}

function grid(bytes, rows, columns, told) {
  return Array.from({length: rows}, (_, row) => Array.from(bytes.subarray(row * columns, (row + 1) * columns),
    (level) => (level === HIDDEN ? null : told(level))));
}

function numbers(size) {
  return axis("Stretch of the prompt", Array.from({length: size}, (_, place) => String(place)));
}

function axis(name, labels) {
  return {type: "Axis", name, labels, low: null, high: null, log: false};
}

/** A token as it can be read: a space as an open box, a new line as its sign. */
export function shown(token) {
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
