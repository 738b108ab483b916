// A pen that draws on a canvas. `svg.js` has a second one with the same verbs, so that what is seen and what is
// downloaded come from the same drawing.
//
//   rect(x, y, w, h, fill)          filled, its edges on whole device pixels, so that cells meet without a seam
//   ramp(x, y, w, h, colours)       colours from the bottom to the top
//   texture(x, y, w, h, ink)        the sign for "not measured": strokes, like no colour of a scale
//   box(x, y, w, h, line)           an outline
//   path(points, line)              an open line; points are [x, y], null lifts the pen
//   area(points, fill, alpha)       a filled shape
//   circle(x, y, r, {fill, line, alpha})
//   text(x, y, words, {size, weight, colour, align, baseline, turn, plate})
//   picture(x, y, w, h, make)       dots: `make(ratio)` gives a canvas of them
//   inside(box, draw)               what `draw` draws is cut at the box
//   about(words, draw)              what `draw` draws is told by these words (a tooltip in a file; nothing here)
//
// A line is {colour, width, dash, alpha}.

import {fontOf} from "headwise/lettering";

/** A canvas pen; `ratio` is device pixels a CSS pixel. */
export class CanvasPen {
  constructor(canvas, width, height, ratio, sans) {
    this.ratio = ratio;
    this.sans = sans;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.titled = false;
  }

  snap(value) {
    return Math.round(value * this.ratio) / this.ratio;
  }

  rect(x, y, width, height, fill) {
    const [left, top] = [this.snap(x), this.snap(y)];
    this.context.fillStyle = fill;
    this.context.fillRect(left, top, this.snap(x + width) - left, this.snap(y + height) - top);
  }

  ramp(x, y, width, height, colours) {
    const ramp = this.context.createLinearGradient(0, y + height, 0, y);
    colours.forEach((colour, index) => ramp.addColorStop(index / (colours.length - 1), colour));
    this.rect(x, y, width, height, ramp);
  }

  texture(x, y, width, height, ink) {
    const {context} = this;
    this.rect(x, y, width, height, ink.panel);
    context.save();
    context.beginPath();
    context.rect(this.snap(x), this.snap(y), this.snap(x + width) - this.snap(x), this.snap(y + height) - this.snap(y));
    context.clip();
    context.strokeStyle = ink.trace;
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

  box(x, y, width, height, line) {
    this.#line(line);
    this.context.strokeRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  path(points, line) {
    this.#line(line);
    this.#trace(points);
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  area(points, fill, alpha = 1) {
    this.context.fillStyle = fill;
    this.context.globalAlpha = alpha;
    this.#trace(points);
    this.context.fill();
    this.context.globalAlpha = 1;
  }

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

  text(x, y, words, {size, weight = 400, colour, align = "left", baseline = "middle", turn = 0, plate}) {
    const {context} = this;
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    context.font = fontOf(size, this.sans, weight);
    context.textAlign = align;
    context.textBaseline = baseline;
    if (plate) {
      const width = context.measureText(words).width;
      const left = {left: 0, center: -width / 2, right: -width}[align];
      const top = {top: 0, middle: -size * 0.62, bottom: -size * 1.1}[baseline] ?? -size;
      context.fillStyle = plate;
      context.fillRect(left - 2, top - 0.5, width + 4, size * 1.25 + 1);
    }
    context.fillStyle = colour;
    context.fillText(words, 0, 0);
    context.restore();
  }

  inside(box, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(box.x, box.y, box.width, box.height);
    this.context.clip();
    draw();
    this.context.restore();
  }

  picture(x, y, width, height, make) {
    const canvas = make(this.ratio);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(canvas, this.snap(x), this.snap(y), canvas.width / this.ratio, canvas.height / this.ratio);
  }

  about(_, draw) {
    draw();
  }

  #line({colour, width = 1, dash = [], alpha = 1}) {
    Object.assign(this.context, {strokeStyle: colour, lineWidth: width, globalAlpha: alpha, lineJoin: "round"});
    this.context.setLineDash(dash);
  }

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
