// The home page: the model card, each study's summary with a thumbnail, missing studies, data and versions.
//
// Thumbnails are decoration: the summary says what they show.

import {colourAt, parseHex} from "headwise/colours";
import {loadData} from "headwise/data_loader";
import {context2d, el, factList} from "headwise/dom";
import {linkHeads} from "headwise/prose";
import {link} from "headwise/router";
import {cssColour, paintOnThemeChange} from "headwise/theme";

/**
 * The home page.
 * @param {HTMLElement} main
 * @param {Route} route
 * @param {PageContext} pageContext
 */
export async function overviewPage(main, route, {atlas}) {
  const {model} = atlas;
  const {studies, certain, not_shown: notShown, rule} = await loadData("findings");
  const size = model.layers ? `${model.layers} layers of ${model.heads} heads` : "";
  main.append(
    el(
      "header",
      {class: "opening"},
      el(
        "div",
        {class: "opening-words"},
        el("p", {class: "label"}, "An atlas of attention heads"),
        el("h1", {}, model.short),
        el(
          "p",
          {class: "lede"},
          model.id,
          size ? `: ${size}. ` : ". ",
          `What each head attends to, what it computes, and what it reveals about wrong answers, in ${countOf(atlas.studies.length, "study", "studies")}.`,
        ),
      ),
      el("aside", {class: "card", "aria-label": "The model"}, factList(model.facts)),
    ),
    atlas.quick ? quickNote() : "",
    certainty(certain, notShown, rule) ?? "",
    el(
      "section",
      {class: "findings", "aria-labelledby": "found"},
      el("h2", {id: "found", class: "label"}, "Findings"),
      studies.map(findingEntry),
    ),
    missingStudies(atlas.missing) ?? "",
    el(
      "section",
      {class: "colophon", "aria-label": "Data and versions"},
      el("div", {}, el("h2", {class: "label"}, "Data"), dataList(atlas.data)),
      el("div", {}, el("h2", {class: "label"}, "Versions"), factList([...atlas.versions, ...measuredFacts(atlas.measured)])),
    ),
  );
}

/** What a quick build cannot say. */
function quickNote() {
  return el(
    "p",
    {class: "quick-note", role: "note"},
    el("strong", {}, "Quick build. "),
    "Measured on fewer texts and questions and with fewer shuffles than by default, for a first look: intervals are wide, and small effects are missed. For results to report, build without ",
    el("code", {}, "--quick"),
    ".",
  );
}

/**
 * The most certain findings, and what is not shown; null where the atlas has neither.
 * @param {{key: string, title: string, text: string}[]} certain
 * @param {string[]} notShown
 * @param {string} rule
 */
function certainty(certain, notShown, rule) {
  if (!certain.length && !notShown.length) return null;
  return el(
    "section",
    {class: "certainty", "aria-labelledby": "certain"},
    el("h2", {id: "certain", class: "label"}, "Most certain"),
    el(
      "ol",
      {},
      certain.map((one) => el("li", {}, linkHeads(one.text), " ", el("a", {class: "source", href: link(`study/${one.key}`)}, one.title))),
    ),
    notShown.length ? el("p", {class: "not-shown"}, el("strong", {}, "Not shown: "), linkHeads(`${notShown.join("; ")}.`)) : "",
    el("details", {}, el("summary", {}, "How these were chosen"), el("p", {}, rule)),
  );
}

/** @param {any} study */
function findingEntry(study) {
  const picture = thumbnail(study.thumbnail);
  const address = link(`study/${study.key}`);
  return el(
    "article",
    {class: "finding"},
    el("div", {class: "finding-picture", "aria-hidden": "true"}, picture ? el("a", {href: address, tabindex: "-1"}, picture) : null),
    el("div", {class: "finding-words"}, el("h3", {}, el("a", {href: address}, study.title)), el("p", {}, linkHeads(study.short))),
  );
}

/** @param {AtlasInfo["missing"]} studies */
function missingStudies(studies) {
  if (!studies.length) return null;
  return el(
    "details",
    {class: "missing"},
    el("summary", {}, `Not shown: ${studies.map((one) => one.key.replaceAll("_", " ")).join(", ")}`),
    el(
      "dl",
      {},
      studies.map((one) => el("div", {}, el("dt", {}, one.question), el("dd", {}, el("code", {}, one.command)))),
    ),
  );
}

/** @param {AtlasInfo["data"]} found */
function dataList(found) {
  return el(
    "dl",
    {class: "facts"},
    found.map((one) =>
      el(
        "div",
        {},
        el("dt", {}, one.studies.map((study) => study.replaceAll("_", " ")).join(", ")),
        el(
          "dd",
          {},
          `${one.name ?? "unnamed"}${one.size === null || one.size === undefined ? "" : ` (${one.size.toLocaleString("en")} ${one.counted}`.trimEnd() + ")"}`,
          one.digest ? el("code", {}, one.digest) : null,
        ),
      ),
    ),
  );
}

/** @param {AtlasInfo["measured"]} atlasInfo */
function measuredFacts({first, last}) {
  if (!first) return [];
  const [one, other] = [first, last].map((hour) => hour.replace("T", " ").replace(/:\d\d\+00:00$/, " UTC"));
  return [{label: "Measured", value: one === other ? one : `${one} to ${other}`}];
}

/** @param {number} number @param {string} one @param {string} several */
function countOf(number, one, several) {
  return `${number} ${number === 1 ? one : several}`;
}

const HIDDEN = 255;

/**
 * A thumbnail; null where there is none.
 * @param {any} data
 */
export function thumbnail(data) {
  if (!data) return null;
  const drawer = {maps: mapRow, categories: categoryMap, tiles: tileGrid, intervals: plot, curves: plot, points: plot}[data.kind];
  return drawer ? drawer(data) : null;
}

/** @param {any} data */
function mapRow(data) {
  return el(
    "span",
    {class: "miniatures"},
    data.maps.map(({levels, scale}) => cellCanvas(levels[0].length, levels.length, (x, y) => levelColour(levels[y][x], scale))),
  );
}

/** @param {any} data */
function categoryMap(data) {
  const rows = data.indices;
  return cellCanvas(rows[0].length, rows.length, (x, y) => (rows[y][x] < 0 ? null : parseHex(data.colours[rows[y][x]])));
}

/** @param {any} data */
function tileGrid(data) {
  const side = data.levels[0].length;
  const columns = Math.ceil(Math.sqrt(data.levels.length * 1.5));
  const rows = Math.ceil(data.levels.length / columns);
  const step = side + Math.max(1, Math.round(side / 8));
  return cellCanvas(columns * step, rows * step, (x, y) => {
    const tile = data.levels[Math.floor(y / step) * columns + Math.floor(x / step)];
    const level = tile?.[y % step]?.[x % step];
    return level === undefined || level === HIDDEN ? null : levelColour(level, data.scale);
  });
}

/** @param {number} width @param {number} height @param {(x: number, y: number) => number[] | null} colourOf */
function cellCanvas(width, height, colourOf) {
  const canvas = el("canvas", {width, height, class: "miniature"});
  const context = context2d(canvas);
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const found = colourOf(x, y);
      if (found) image.data.set([...found, 255], 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** @param {number} level @param {Scale} scale */
function levelColour(level, scale) {
  return level === HIDDEN ? null : parseHex(colourAt(scale, level / 254));
}

const WIDTH = 160;
const HEIGHT = 120;

/**
 * Curves, intervals and points as thin lines without axes.
 * @param {any} data
 */
function plot(data) {
  const canvas = el("canvas", {width: 2 * WIDTH, height: 2 * HEIGHT, class: "miniature miniature-lines"});
  return paintOnThemeChange(canvas, () => {
    const context = context2d(canvas);
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    ({intervals: plotIntervals, curves: plotCurves, points: plotPoints})[data.kind](context, data, cssColour("ink-soft"));
  });
}

/** @param {CanvasRenderingContext2D} context @param {any} options @param {string} defaultColour */
function plotIntervals(context, {rows, colours}, defaultColour) {
  const known = rows.flat().filter((one) => one !== null);
  const at = linearScale(known, 6, WIDTH - 6);
  rows.forEach(([value, low, high], index) => {
    if (value === null) return;
    const y = ((index + 0.5) / rows.length) * HEIGHT;
    context.strokeStyle = context.fillStyle = colours[index] ?? defaultColour;
    context.lineWidth = 1.5;
    stroke(context, [
      [at(low ?? value), y],
      [at(high ?? value), y],
    ]);
    context.beginPath();
    context.arc(at(value), y, 2.2, 0, 7);
    context.fill();
  });
}

/** @param {CanvasRenderingContext2D} context @param {any} options @param {string} defaultColour */
function plotCurves(context, {curves: all, log}, defaultColour) {
  const shown = all.map((one) => ({...one, x: one.x.map((x) => (log && x !== null ? Math.log(Math.max(x, 1e-12)) : x))}));
  const x = linearScale(
    shown.flatMap((one) => one.x),
    4,
    WIDTH - 4,
  );
  const y = linearScale(
    shown.flatMap((one) => one.y),
    HEIGHT - 6,
    6,
  );
  for (const one of shown) {
    context.strokeStyle = one.colour ?? defaultColour;
    context.lineWidth = 1.6;
    context.setLineDash(one.dashed ? [4, 3] : []);
    stroke(
      context,
      one.x
        .map((value, index) => [value, one.y[index]])
        .filter(([a, b]) => a !== null && b !== null)
        .map(([a, b]) => [x(a), y(b)]),
    );
  }
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {any} data @param {string} defaultColour */
function plotPoints(context, data, defaultColour) {
  const x = linearScale(data.x, 4, WIDTH - 4);
  const y = linearScale(data.y, HEIGHT - 4, 4);
  context.fillStyle = defaultColour;
  data.x.forEach((value, index) => value !== null && data.y[index] !== null && context.fillRect(x(value) - 1, y(data.y[index]) - 1, 2, 2));
}

/** @param {Numbers} values @param {number} from @param {number} to */
function linearScale(values, from, to) {
  const known = /** @type {number[]} */ (values.filter((one) => one !== null && Number.isFinite(one)));
  const low = known.length ? known.reduce((a, b) => Math.min(a, b)) : 0;
  const high = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

/** @param {CanvasRenderingContext2D} context @param {number[][]} path */
function stroke(context, path) {
  context.beginPath();
  path.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
