// A head's attention maps as a figure: one prompt with its tokens and, where available, the mean over prompts.
//
// Maps are bytes: 0 to 254 for weights from 0 to 1, 255 for masked; so a weight is exact to 1/254.

import {loadData} from "headwise/data_loader";
import {inflate} from "headwise/pixels";

const HIDDEN = 255;
const LEVELS = 254;

/**
 * A figure payload of the head's maps.
 * @param {HeadReport} headReport
 */
export async function attentionFigure({name, patterns}) {
  const loading = loadData("figure/patterns/average").catch(() => null);
  const prompt = await loadData("figure/patterns/grid");
  const mean = await loading;
  const scale = {
    ...prompt.scales.weight,
    low: 0,
    high: 1,
    over: false,
    under: false,
    ticks: [
      [0, "0"],
      [0.5, "0.5"],
      [1, "1"],
    ],
  };
  const labels = patterns.starts.map((start) => visibleToken(patterns.tokens[start] ?? ""));
  const panels = await Promise.all(patterns.maps.map((one) => promptPanel(one.key, one.name, one.shown, labels)));
  const means = mean ? await meanPanels(mean, name) : [];
  return {
    format: "headwise.figure/1",
    type: "Figure",
    title: "",
    subtitle: "",
    panels: [...panels, ...means],
    columns: panels.length,
    scales: {weight: scale, ...(means.length ? {mean: mean.scales.weight} : {})},
    notes: [
      `One prompt of ${patterns.tokens.length} tokens${means.length ? `; below, the mean over ${patterns.prompts.length} prompts, rescaled to one length` : ""}. Rows are queries, columns are keys; weights are exact to 1/254 of their scale.`,
    ],
    alt: `Attention maps of ${name}`,
    provenance: "",
  };
}

/**
 * The head's tiles in the figure of means, one per model.
 * @param {Payload} payload
 * @param {string} name
 */
async function meanPanels({panels, scales: {weight}}, name) {
  const found = panels.filter((one) => one.names?.includes(name));
  return Promise.all(
    found.map(async (one) => {
      const [, rows, columns] = one.levels.shape;
      const start = one.names.indexOf(name) * rows * columns;
      const bytes = (await inflate(one.levels.deflated)).subarray(start, start + rows * columns);
      const values = decodeGrid(bytes, rows, columns, (level) => weight.low + (level / LEVELS) * (weight.high - weight.low));
      return heatmapPanel(`mean ${one.key}`, one.title, "mean over prompts", values, positionAxis(columns), positionAxis(rows), "mean");
    }),
  );
}

/** @param {string} key @param {string} title @param {PackedBytes} pixels @param {string[]} labels */
async function promptPanel(key, title, pixels, labels) {
  const [rows, columns] = pixels.shape;
  const values = decodeGrid(await inflate(pixels.deflated), rows, columns, (level) => level / LEVELS);
  return heatmapPanel(key, title, "one prompt", values, axis("Key token", labels), axis("Query token", labels), "weight");
}

/**
 * @param {string} key
 * @param {string} title
 * @param {string} subtitle
 * @param {Numbers[]} values
 * @param {Axis} x
 * @param {Axis} y
 * @param {string} scale
 */
function heatmapPanel(key, title, subtitle, values, x, y, scale) {
  return {type: "Heatmap", key, title, subtitle, values, x, y, scale, frames: [], marks: [], extras: {}, missing: "masked"};
}

/** @param {Uint8Array} bytes @param {number} rows @param {number} columns @param {(level: number) => number} decode */
function decodeGrid(bytes, rows, columns, decode) {
  return Array.from({length: rows}, (_, row) =>
    Array.from(bytes.subarray(row * columns, (row + 1) * columns), (level) => (level === HIDDEN ? null : decode(level))),
  );
}

/** @param {number} size */
function positionAxis(size) {
  return axis(
    "Position (rescaled)",
    Array.from({length: size}, (_, index) => String(index)),
  );
}

/** @param {string} name @param {string[]} labels */
function axis(name, labels) {
  return {type: "Axis", name, labels, low: null, high: null, log: false};
}

/**
 * A token with visible whitespace.
 * @param {string} token
 */
export function visibleToken(token) {
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
