// A figure as a file: a stand-alone SVG, drawn by the same code as the page, with a pen that writes instead of painting.
//
// Texts stay texts, maps stay vectors (one shape a cell, with what is known of it as its <title>; where there are more than
// MOST_TOLD cells, runs of one colour are one shape and the titles are left out, so that the file stays small). Tiles are
// one embedded picture each. The file says its title and its description, and names where its numbers come from.

import {BAR, paintBar} from "headwise/bar";
import {GAP, TOP, layOut} from "headwise/layout";
import {kindOf} from "headwise/kinds";
import {LINE, wrap} from "headwise/lettering";
import {paperInk} from "headwise/ink";

const MARGIN = 18;
const MOST_TOLD = 20000;
const SANS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const [TITLE, PANEL, SMALL] = [17, 13, 11.5];

/** The figure as the text of an SVG file, on white paper. */
export async function toSvg(payload, {width = 1080} = {}) {
  await Promise.all(payload.panels.map((panel) => kindOf(panel).prepare?.(panel)));
  const ink = paperInk(SANS);
  const cells = payload.panels.reduce((sum, panel) => sum + (panel.values?.[0]?.length ?? 0) * (panel.values?.length ?? 0), 0);
  const pen = new SvgPen(SANS, cells <= MOST_TOLD);
  const page = layOut(payload, width - 2 * MARGIN, SANS, {whole: true});
  const used = page.widths.reduce((sum, each) => sum + each + GAP, -GAP) + (page.shared ? GAP + page.shared.width : 0);
  const room = Math.max(used, 420);
  let top = MARGIN + write(pen, payload.title, MARGIN, MARGIN, room, {size: TITLE, weight: 600, colour: ink.ink});
  top += write(pen, payload.subtitle, MARGIN, top, room, {size: PANEL, colour: ink.inkSoft}) + 10;
  top = paintRows(pen, page, top, ink);
  for (const note of [...payload.notes, payload.provenance]) {
    top += write(pen, note, MARGIN, top, room, {size: SMALL, colour: ink.inkSoft}) + 2;
  }
  return pen.file(room + 2 * MARGIN, top + MARGIN - 4, payload, ink);
}

function paintRows(pen, {columns, widths, slots, shared}, from, ink) {
  let top = from;
  for (let first = 0; first < slots.length; first += columns) {
    const row = slots.slice(first, first + columns);
    const heads = row.map(({panel, width, box}) => (panel.type === "Legend" ? [] : headOf(panel, width - box.x)));
    const headroom = Math.max(...heads.map((lines) => lines.reduce((sum, line) => sum + line.size * LINE, 0)));
    let left = MARGIN;
    row.forEach((slot, column) => {
      let y = top;
      for (const {text, size, weight, colour} of heads[column]) {
        pen.text(left + slot.box.x, y + size, text, {size, weight, colour: ink[colour], baseline: "alphabetic"});
        y += size * LINE;
      }
      pen.at(left, top + headroom, () => kindOf(slot.panel).paint(pen, slot, ink));
      left += widths[column] + GAP;
    });
    if (first === 0 && shared) paintShared(pen, shared, left, top + headroom, slots[0].box.height, ink);
    top += headroom + Math.max(...row.map((slot) => slot.height)) + 16;
  }
  return top;
}

function paintShared(pen, {scale}, left, top, high, ink) {
  const bar = {x: 8, y: TOP, width: BAR, height: Math.min(Math.max(high, 120), 320)};
  pen.at(left, top, () => paintBar(pen, bar, scale, scale.label, ink, SANS));
}

function headOf(panel, room) {
  return [
    ...wrap(panel.title, room, PANEL, SANS, 600).map((text) => ({text, size: PANEL, weight: 600, colour: "ink"})),
    ...wrap(panel.subtitle, room, SMALL, SANS).map((text) => ({text, size: SMALL, weight: 400, colour: "inkSoft"})),
  ];
}

function write(pen, text, x, top, room, style) {
  const lines = wrap(text, room, style.size, SANS, style.weight);
  lines.forEach((line, index) => pen.text(x, top + style.size * (1 + index * LINE), line, {...style, baseline: "alphabetic"}));
  return lines.length * style.size * LINE;
}

/** The verbs of `pen.js`, written down. */
class SvgPen {
  constructor(sans, titled) {
    Object.assign(this, {sans, titled, parts: [], defs: new Map()});
  }

  file(width, height, {title, alt}, ink) {
    const size = `width="${round(width)}" height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}"`;
    return `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" ` +
      `aria-labelledby="title desc" font-family="${escape(this.sans)}">\n<title id="title">${escape(title)}</title>\n` +
      `<desc id="desc">${escape(alt || title)}</desc>\n<defs>${[...this.defs.values()].join("")}</defs>\n` +
      `<rect width="100%" height="100%" fill="${ink.paper}"/>\n${this.parts.join("\n")}\n</svg>\n`;
  }

  at(x, y, draw) {
    this.parts.push(`<g transform="translate(${round(x)} ${round(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  rect(x, y, width, height, fill) {
    this.#put("rect", {x, y, width, height, fill, "shape-rendering": "crispEdges"});
  }

  ramp(x, y, width, height, colours) {
    const key = `ramp ${colours.join("")}`;
    const id = this.defs.has(key) ? /id="(\w+)"/.exec(this.defs.get(key))[1] : `ramp${this.defs.size}`;
    const stops = colours.map((colour, index) => `<stop offset="${round(index / (colours.length - 1), 4)}" stop-color="${colour}"/>`);
    this.defs.set(key, `<linearGradient id="${id}" x1="0" y1="1" x2="0" y2="0">${stops.join("")}</linearGradient>`);
    this.#put("rect", {x, y, width, height, fill: `url(#${id})`});
  }

  texture(x, y, width, height, ink) {
    const id = `texture${ink.panel.slice(1)}`;
    this.defs.set(id, `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse">` +
      `<rect width="6" height="6" fill="${ink.panel}"/><path d="M0 6L6 0" stroke="${ink.trace}" stroke-width=".7"/></pattern>`);
    this.#put("rect", {x, y, width, height, fill: `url(#${id})`});
  }

  box(x, y, width, height, line) {
    this.#put("rect", {x, y, width, height, fill: "none", ...stroke(line)});
  }

  path(points, line) {
    this.#put("path", {d: trace(points), fill: "none", "stroke-linejoin": "round", ...stroke(line)});
  }

  area(points, fill, alpha = 1) {
    this.#put("path", {d: `${trace(points)}Z`, fill, ...(alpha < 1 ? {"fill-opacity": alpha} : {})});
  }

  circle(x, y, r, {fill = "none", line, alpha = 1}) {
    this.#put("circle", {cx: x, cy: y, r, fill, ...(alpha < 1 ? {"fill-opacity": alpha} : {}), ...(line ? stroke(line) : {})});
  }

  text(x, y, words, {size, weight = 400, colour, align = "left", baseline = "middle", turn = 0, plate}) {
    const drop = {top: 0.8, middle: 0.36, bottom: -0.22, alphabetic: 0}[baseline] * size;
    const around = turn ? ` rotate(${turn})` : "";
    const anchor = {left: {}, center: {"text-anchor": "middle"}, right: {"text-anchor": "end"}}[align];
    const halo = plate ? {stroke: plate.slice(0, 7), "stroke-width": 3, "stroke-linejoin": "round", "paint-order": "stroke"} : {};
    this.#put("text", {transform: `translate(${round(x)} ${round(y)})${around}`, y: drop, "font-size": size, fill: colour,
      ...(weight === 400 ? {} : {"font-weight": weight}), ...anchor, ...halo}, words);
  }

  picture(x, y, width, height, make) {
    const source = make(2).toDataURL("image/png");
    this.#put("image", {x, y, width, height, href: source, style: "image-rendering:pixelated"});
  }

  inside(box, draw) {
    const id = `clip${this.defs.size}`;
    const {x, y, width, height} = box;
    this.defs.set(id, `<clipPath id="${id}"><rect ${attributes({x, y, width, height})}/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  about(words, draw) {
    const told = this.titled || typeof words === "string" ? words : null;
    const first = this.parts.length;
    draw();
    if (!told || this.parts.length === first) return;
    const title = `<title>${escape(typeof told === "function" ? told() : told)}</title>`;
    if (this.parts.length === first + 1 && this.parts[first].endsWith("/>")) {
      const tag = /^<(\w+)/.exec(this.parts[first])[1];
      this.parts[first] = `${this.parts[first].slice(0, -2)}>${title}</${tag}>`;
    } else {
      this.parts.splice(first, 0, `<g>${title}`);
      this.parts.push("</g>");
    }
  }

  #put(tag, properties, words = null) {
    const start = `<${tag} ${attributes(properties)}`;
    this.parts.push(words === null ? `${start}/>` : `${start}>${escape(words)}</${tag}>`);
  }
}

function stroke({colour, width = 1, dash = [], alpha = 1}) {
  return {stroke: colour, ...(width === 1 ? {} : {"stroke-width": width}), ...(dash.length ? {"stroke-dasharray": dash.join(" ")} : {}),
    ...(alpha < 1 ? {"stroke-opacity": alpha} : {})};
}

function trace(points) {
  let down = false;
  return points.map((point) => {
    const letter = down ? "L" : "M";
    down = point !== null;
    return point === null ? "" : `${letter}${round(point[0])} ${round(point[1])}`;
  }).join("");
}

function attributes(properties) {
  const written = (value) => (typeof value === "number" ? round(value) : escape(value));
  return Object.entries(properties).map(([name, value]) => `${name}="${written(value)}"`).join(" ");
}

function round(value, digits = 2) {
  return String(Number(value.toFixed(digits)));
}

/** Text of the data as XML: markup stays text, and what XML has no place for is left out. */
function escape(text) {
  return String(text).replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\u{fffd}")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
