// A pen that draws on a canvas. `svg_export.js` has a second one with the same methods, so that the page and the file come from
// the same drawing code.
//
//   rect(x, y, w, h, fill)          filled, its edges on whole device pixels, so that cells meet without a gap
//   gradient(x, y, w, h, colours)   colours from the bottom to the top
//   texture(x, y, w, h, theme)      hatching, the sign for missing values
//   box(x, y, w, h, line)           an outline
//   path(points, line)              an open line; points are [x, y], null starts a new segment
//   area(points, fill, alpha)       a filled shape
//   circle(x, y, r, {fill, line, alpha})
//   text(x, y, words, {size, weight, colour, align, baseline, rotate, background})
//   image(x, y, w, h, make)         pixels: `make(ratio)` returns a canvas
//   clip(box, draw)                 clips what `draw` draws to the box
//   withTitle(words, draw)          gives what `draw` draws a title (in a file; none on a canvas)
//
// A line is {colour, width, dash, alpha}.

import {fontOf} from "headwise/text_metrics";

/** A canvas pen; `ratio` is device pixels per CSS pixel. */
export class CanvasPen {
  /** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} ratio @param {string} font */
  constructor(canvas, width, height, ratio, font) {
    this.ratio = ratio;
    this.font = font;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.hasTitles = false;
  }

  /** @param {number} value */
  snap(value) {
    return Math.round(value * this.ratio) / this.ratio;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {string | CanvasGradient} fill */
  rect(x, y, width, height, fill) {
    const [left, top] = [this.snap(x), this.snap(y)];
    this.context.fillStyle = fill;
    this.context.fillRect(left, top, this.snap(x + width) - left, this.snap(y + height) - top);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {string[]} colours */
  gradient(x, y, width, height, colours) {
    const gradient = this.context.createLinearGradient(0, y + height, 0, y);
    colours.forEach((colour, index) => gradient.addColorStop(index / (colours.length - 1), colour));
    this.rect(x, y, width, height, gradient);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Theme} theme */
  texture(x, y, width, height, theme) {
    const {context} = this;
    this.rect(x, y, width, height, theme.panel);
    context.save();
    context.beginPath();
    context.rect(this.snap(x), this.snap(y), this.snap(x + width) - this.snap(x), this.snap(y + height) - this.snap(y));
    context.clip();
    context.strokeStyle = theme.trace;
    context.lineWidth = 0.7;
    context.beginPath();
    const first = Math.ceil((x + y) / 6) * 6;
    for (let sum = first; sum < x + y + width + height; sum += 6) {
      context.moveTo(sum - y, y);
      context.lineTo(sum - y - height, y + height);
    }
    context.stroke();
    context.restore();
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {LineStyle} line */
  box(x, y, width, height, line) {
    this.#line(line);
    this.context.strokeRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  /** @param {PathPoint[]} points @param {LineStyle} line */
  path(points, line) {
    this.#line(line);
    this.#trace(points);
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  /** @param {PathPoint[]} points @param {string} fill @param {number} [alpha] */
  area(points, fill, alpha = 1) {
    this.context.fillStyle = fill;
    this.context.globalAlpha = alpha;
    this.#trace(points);
    this.context.fill();
    this.context.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y @param {number} radius @param {{fill?: string, line?: LineStyle, alpha?: number}} options */
  circle(x, y, radius, {fill, line, alpha = 1}) {
    const {context} = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    if (fill) {
      context.globalAlpha = alpha;
      context.fillStyle = fill;
      context.fill();
      context.globalAlpha = 1;
    }
    if (line) {
      this.#line(line);
      context.stroke();
      context.globalAlpha = 1;
    }
  }

  /** @param {number} x @param {number} y @param {string} words @param {TextStyle} textStyle */
  text(x, y, words, {size, weight = 400, colour, align = "left", baseline = "middle", rotate = 0, background}) {
    const {context} = this;
    context.save();
    context.translate(x, y);
    context.rotate((rotate * Math.PI) / 180);
    context.font = fontOf(size, this.font, weight);
    context.textAlign = align;
    context.textBaseline = baseline;
    if (background) {
      const width = context.measureText(words).width;
      const left = {left: 0, center: -width / 2, right: -width}[align];
      const top = {top: 0, middle: -size * 0.62, bottom: -size * 1.1, alphabetic: -size}[baseline];
      context.fillStyle = background;
      context.fillRect(left - 2, top - 0.5, width + 4, size * 1.25 + 1);
    }
    context.fillStyle = colour;
    context.fillText(words, 0, 0);
    context.restore();
  }

  /** @param {Box} box @param {() => void} draw */
  clip(box, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(box.x, box.y, box.width, box.height);
    this.context.clip();
    draw();
    this.context.restore();
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {(ratio: number) => HTMLCanvasElement} make */
  image(x, y, width, height, make) {
    const canvas = make(this.ratio);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(canvas, this.snap(x), this.snap(y), canvas.width / this.ratio, canvas.height / this.ratio);
  }

  /** @param {any} _ @param {() => void} draw */
  withTitle(_, draw) {
    draw();
  }

  /** @param {LineStyle} lineStyle */
  #line({colour, width = 1, dash = [], alpha = 1}) {
    Object.assign(this.context, {strokeStyle: colour, lineWidth: width, globalAlpha: alpha, lineJoin: "round"});
    this.context.setLineDash(dash);
  }

  /** @param {PathPoint[]} points */
  #trace(points) {
    this.context.beginPath();
    let down = false;
    for (const point of points) {
      if (point === null) down = false;
      else if (down) this.context.lineTo(point[0], point[1]);
      else {
        this.context.moveTo(point[0], point[1]);
        down = true;
      }
    }
  }
}
