// A figure as a stand-alone SVG file, drawn by the same code as the page, with a pen that writes markup.
//
// Text stays text, maps stay vectors (one shape per cell, with its tooltip as <title>; above MAX_TITLED_CELLS cells, runs of one colour
// are one shape without titles, so that the file stays small). Tiles are one embedded image each. The file contains its title,
// description and provenance.

import {BAR_WIDTH, paintBar} from "headwise/colour_bar";
import {printTheme} from "headwise/colours";
import {PANEL_GAP, TOP_MARGIN, layoutFigure} from "headwise/layout";
import {panelTypeOf} from "headwise/panel_types";
import {LINE_HEIGHT, wrap} from "headwise/text_metrics";

const MARGIN = 18;
const MAX_TITLED_CELLS = 20000;
const SANS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const [TITLE, PANEL, SMALL] = [17, 13, 11.5];

/**
 * The figure as SVG text, on white.
 * @param {Payload} payload
 * @param {{width?: number}} [options]
 */
export async function toSvg(payload, {width = 1080} = {}) {
  await Promise.all(payload.panels.map((panel) => panelTypeOf(panel).prepare?.(panel)));
  const theme = printTheme(SANS);
  const cells = payload.panels.reduce((sum, panel) => sum + (panel.values?.[0]?.length ?? 0) * (panel.values?.length ?? 0), 0);
  const pen = new SvgPen(SANS, cells <= MAX_TITLED_CELLS);
  const page = layoutFigure(payload, width - 2 * MARGIN, SANS, {whole: true});
  const used = page.widths.reduce((sum, each) => sum + each + PANEL_GAP, -PANEL_GAP) + (page.shared ? PANEL_GAP + page.shared.width : 0);
  const room = Math.max(used, 420);
  let top = MARGIN + write(pen, payload.title, MARGIN, MARGIN, room, {size: TITLE, weight: 600, colour: theme.ink});
  top += write(pen, payload.subtitle, MARGIN, top, room, {size: PANEL, colour: theme.inkSoft}) + 10;
  top = paintRows(pen, page, top, theme);
  for (const note of [...payload.notes, payload.provenance]) {
    top += write(pen, note, MARGIN, top, room, {size: SMALL, colour: theme.inkSoft}) + 2;
  }
  return pen.file(room + 2 * MARGIN, top + MARGIN - 4, payload, theme);
}

/** @param {SvgPen} pen @param {any} options @param {number} from @param {Theme} theme */
function paintRows(pen, {columns, widths, slots, shared}, from, theme) {
  let top = from;
  for (let first = 0; first < slots.length; first += columns) {
    const row = slots.slice(first, first + columns);
    const heads = row.map(({panel, width, box}) => (panel.type === "Legend" ? [] : panelHeading(panel, width - box.x)));
    const headroom = Math.max(...heads.map((lines) => lines.reduce((sum, line) => sum + line.size * LINE_HEIGHT, 0)));
    let left = MARGIN;
    row.forEach((slot, column) => {
      let y = top;
      for (const {text, size, weight, colour} of heads[column]) {
        pen.text(left + slot.box.x, y + size, text, {size, weight, colour: theme[colour], baseline: "alphabetic"});
        y += size * LINE_HEIGHT;
      }
      pen.at(left, top + headroom, () => panelTypeOf(slot.panel).paint(pen, slot, theme));
      left += widths[column] + PANEL_GAP;
    });
    if (first === 0 && shared) paintShared(pen, shared, left, top + headroom, slots[0].box.height, theme);
    top += headroom + Math.max(...row.map((slot) => slot.height)) + 16;
  }
  return top;
}

/**
 * @param {SvgPen} pen
 * @param {{scale: Scale}} options
 * @param {number} left
 * @param {number} top
 * @param {number} high
 * @param {Theme} theme
 */
function paintShared(pen, {scale}, left, top, high, theme) {
  const bar = {x: 8, y: TOP_MARGIN, width: BAR_WIDTH, height: Math.min(Math.max(high, 120), 320)};
  pen.at(left, top, () => paintBar(pen, bar, scale, scale.label, theme, SANS));
}

/** @param {PanelBase} panel @param {number} room */
function panelHeading(panel, room) {
  return [
    ...wrap(panel.title, room, PANEL, SANS, 600).map((text) => ({text, size: PANEL, weight: 600, colour: "ink"})),
    ...wrap(panel.subtitle, room, SMALL, SANS).map((text) => ({text, size: SMALL, weight: 400, colour: "inkSoft"})),
  ];
}

/** @param {SvgPen} pen @param {string} text @param {number} x @param {number} top @param {number} room @param {any} style */
function write(pen, text, x, top, room, style) {
  const lines = wrap(text, room, style.size, SANS, style.weight);
  lines.forEach((line, index) => pen.text(x, top + style.size * (1 + index * LINE_HEIGHT), line, {...style, baseline: "alphabetic"}));
  return lines.length * style.size * LINE_HEIGHT;
}

/** The methods of `CanvasPen`, as SVG markup. */
class SvgPen {
  /** @param {string} font @param {boolean} hasTitles */
  constructor(font, hasTitles) {
    this.font = font;
    this.hasTitles = hasTitles;
    /** @type {string[]} */
    this.parts = [];
    /** @type {Map<string, string>} */
    this.defs = new Map();
  }

  /** @param {number} width @param {number} height @param {Payload} payload @param {Theme} theme */
  file(width, height, {title, alt}, theme) {
    const size = `width="${round(width)}" height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}"`;
    return (
      `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" ` +
      `aria-labelledby="title desc" font-family="${escape(this.font)}">\n<title id="title">${escape(title)}</title>\n` +
      `<desc id="desc">${escape(alt || title)}</desc>\n<defs>${[...this.defs.values()].join("")}</defs>\n` +
      `<rect width="100%" height="100%" fill="${theme.paper}"/>\n${this.parts.join("\n")}\n</svg>\n`
    );
  }

  /** @param {number} x @param {number} y @param {() => void} draw */
  at(x, y, draw) {
    this.parts.push(`<g transform="translate(${round(x)} ${round(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} fill */
  rect(x, y, width, height, fill) {
    this.#put("rect", {x, y, width, height, fill, "shape-rendering": "crispEdges"});
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {string[]} colours */
  gradient(x, y, width, height, colours) {
    const key = `gradient ${colours.join("")}`;
    const id = this.defs.has(key) ? /id="(\w+)"/.exec(this.defs.get(key) ?? "")?.[1] : `gradient${this.defs.size}`;
    const stops = colours.map((colour, index) => `<stop offset="${round(index / (colours.length - 1), 4)}" stop-color="${colour}"/>`);
    this.defs.set(key, `<linearGradient id="${id}" x1="0" y1="1" x2="0" y2="0">${stops.join("")}</linearGradient>`);
    this.#put("rect", {x, y, width, height, fill: `url(#${id})`});
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Theme} theme */
  texture(x, y, width, height, theme) {
    const id = `texture${theme.panel.slice(1)}`;
    this.defs.set(
      id,
      `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse">` +
        `<rect width="6" height="6" fill="${theme.panel}"/><path d="M0 6L6 0" stroke="${theme.trace}" stroke-width=".7"/></pattern>`,
    );
    this.#put("rect", {x, y, width, height, fill: `url(#${id})`});
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {LineStyle} line */
  box(x, y, width, height, line) {
    this.#put("rect", {x, y, width, height, fill: "none", ...stroke(line)});
  }

  /** @param {PathPoint[]} points @param {LineStyle} line */
  path(points, line) {
    this.#put("path", {d: trace(points), fill: "none", "stroke-linejoin": "round", ...stroke(line)});
  }

  /** @param {PathPoint[]} points @param {string} fill @param {number} [alpha] */
  area(points, fill, alpha = 1) {
    this.#put("path", {d: `${trace(points)}Z`, fill, ...(alpha < 1 ? {"fill-opacity": alpha} : {})});
  }

  /** @param {number} x @param {number} y @param {number} r @param {{fill?: string, line?: LineStyle, alpha?: number}} options */
  circle(x, y, r, {fill = "none", line, alpha = 1}) {
    this.#put("circle", {cx: x, cy: y, r, fill, ...(alpha < 1 ? {"fill-opacity": alpha} : {}), ...(line ? stroke(line) : {})});
  }

  /** @param {number} x @param {number} y @param {string} words @param {TextStyle} textStyle */
  text(x, y, words, {size, weight = 400, colour, align = "left", baseline = "middle", rotate = 0, background}) {
    const drop = {top: 0.8, middle: 0.36, bottom: -0.22, alphabetic: 0}[baseline] * size;
    const around = rotate ? ` rotate(${rotate})` : "";
    const anchor = {left: {}, center: {"text-anchor": "middle"}, right: {"text-anchor": "end"}}[align];
    const halo = background ? {stroke: background.slice(0, 7), "stroke-width": 3, "stroke-linejoin": "round", "paint-order": "stroke"} : {};
    this.#put(
      "text",
      {
        transform: `translate(${round(x)} ${round(y)})${around}`,
        y: drop,
        "font-size": size,
        fill: colour,
        ...(weight === 400 ? {} : {"font-weight": weight}),
        ...anchor,
        ...halo,
      },
      words,
    );
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {(ratio: number) => HTMLCanvasElement} make */
  image(x, y, width, height, make) {
    const source = make(2).toDataURL("image/png");
    this.#put("image", {x, y, width, height, href: source, style: "image-rendering:pixelated"});
  }

  /** @param {Box} box @param {() => void} draw */
  clip(box, draw) {
    const id = `clip${this.defs.size}`;
    const {x, y, width, height} = box;
    this.defs.set(id, `<clipPath id="${id}"><rect ${attributes({x, y, width, height})}/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }

  /** @param {string | (() => string) | null} words @param {() => void} draw */
  withTitle(words, draw) {
    const given = this.hasTitles || typeof words === "string" ? words : null;
    const first = this.parts.length;
    draw();
    if (!given || this.parts.length === first) return;
    const title = `<title>${escape(typeof given === "function" ? given() : given)}</title>`;
    if (this.parts.length === first + 1 && this.parts[first].endsWith("/>")) {
      const tag = /^<(\w+)/.exec(this.parts[first])?.[1];
      this.parts[first] = `${this.parts[first].slice(0, -2)}>${title}</${tag}>`;
    } else {
      this.parts.splice(first, 0, `<g>${title}`);
      this.parts.push("</g>");
    }
  }

  /** @param {string} tag @param {Record<string, any>} properties @param {string | null} [words] */
  #put(tag, properties, words = null) {
    const start = `<${tag} ${attributes(properties)}`;
    this.parts.push(words === null ? `${start}/>` : `${start}>${escape(words)}</${tag}>`);
  }
}

/** @param {LineStyle} lineStyle */
function stroke({colour, width = 1, dash = [], alpha = 1}) {
  return {
    stroke: colour,
    ...(width === 1 ? {} : {"stroke-width": width}),
    ...(dash.length ? {"stroke-dasharray": dash.join(" ")} : {}),
    ...(alpha < 1 ? {"stroke-opacity": alpha} : {}),
  };
}

/** @param {PathPoint[]} points */
function trace(points) {
  let down = false;
  return points
    .map((point) => {
      const letter = down ? "L" : "M";
      down = point !== null;
      return point === null ? "" : `${letter}${round(point[0])} ${round(point[1])}`;
    })
    .join("");
}

/** @param {Record<string, any>} properties */
function attributes(properties) {
  const written = (value) => (typeof value === "number" ? round(value) : escape(value));
  return Object.entries(properties)
    .map(([name, value]) => `${name}="${written(value)}"`)
    .join(" ");
}

/** @param {number} value @param {number} [digits] */
function round(value, digits = 2) {
  return String(Number(value.toFixed(digits)));
}

/**
 * Text of the data as XML: markup stays text, and characters that XML forbids are replaced.
 * @param {string | number} text
 */
function escape(text) {
  return String(text)
    .replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\u{fffd}")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
