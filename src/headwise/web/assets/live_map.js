// One head, large: rows are tokens that look, columns tokens that are looked at, on one canvas with token labels on both sides.
//
// The server sends the window that is in sight, at most as many cells as the canvas has dots, so that 4,000 tokens cost no
// more than 400. While a new window is on its way the old one is drawn stretched. Pointing at a cell tells both tokens
// and the weight; a cell that stands for several weights tells the largest of them.
//
//     wheel (with Ctrl, or when the map has the focus), + and -   zoom        drag a box   zoom into it
//     arrows   from cell to cell      Shift + arrows   move the window        0, Esc or double click   the whole map

import {el} from "headwise/element";
import {shown} from "headwise/head_patterns";
import {inkOf} from "headwise/ink";
import {COLOURINGS, LEFT, TOP, largest, paintLabels, pictureOf} from "headwise/live_paint";
import {headMap} from "headwise/live_stream";
import {cut, moved, same, whole, zoomed} from "headwise/live_view";
import {told} from "headwise/numbers";
import {ontheme} from "headwise/theme";
import {Tooltip} from "headwise/tooltip";
import {dress} from "headwise/dress";

const MOST = 512; // cells a side
const MANY = 200; // tokens from which on weights are small
const WAIT = 90; // milliseconds without a further turn of the wheel

/** The map of a head of a look: {element, head, leave()}. `scale` are the colours of the grid. */
export class LargeMap {
  constructor(look, head, scale) {
    Object.assign(this, {look, head, scale: {...scale, low: 0, high: 1}, tokens: look.tokens.map((one) => one.text)});
    this.colouring = look.tokens.length > MANY ? "root" : "plain";
    this.count = this.tokens.length;
    this.view = whole(this.count);
    this.stop = new AbortController();
    this.canvas = el("canvas", {class: "live-canvas", tabindex: "0", role: "img",
      "aria-label": `Attention map of ${head}; arrows move from cell to cell, plus and minus zoom`});
    this.said = el("p", {class: "unseen", role: "status"});
    this.where = el("span", {class: "count"});
    this.element = el("div", {class: "live-map"}, this.#tools(), this.canvas, this.said);
    dress(this.element);
    this.tooltip = new Tooltip(this.element);
    this.#listen();
  }

  /** When it is on the page. */
  shown() {
    this.observer = new ResizeObserver(() => this.#settle());
    this.observer.observe(this.element);
    ontheme(() => this.draw());
    this.#fetch();
  }

  leave() {
    this.observer?.disconnect();
    this.stop.abort();
    this.asked?.abort();
  }

  /** Show another window of the map. */
  turn(view) {
    if (same(view, this.view)) return;
    this.view = view;
    this.cursor = null;
    this.tooltip.hide();
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#fetch(), WAIT);
  }

  async #fetch() {
    this.asked?.abort();
    this.asked = new AbortController();
    const {view} = this;
    const size = Math.min(MOST, Math.max(64, Math.round(this.side * devicePixelRatio) || MOST));
    this.element.setAttribute("aria-busy", "true");
    try {
      this.found = await headMap(this.look.id, this.head, {...view, size}, this.asked.signal);
      this.most = largest(this.found);
      this.picture = null;
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.where.textContent = error.message;
      return;
    }
    this.element.removeAttribute("aria-busy");
    this.element.dataset.window = `${view.rows.join(":")} ${view.columns.join(":")}`;
  }

  // ---- drawing ----

  #settle() {
    const side = Math.max(220, Math.min(this.element.clientWidth - LEFT - 8, 680));
    if (side === this.side) return;
    this.side = side;
    const ratio = devicePixelRatio;
    this.canvas.width = (side + LEFT) * ratio;
    this.canvas.height = (side + TOP) * ratio;
    this.canvas.style.width = `${side + LEFT}px`;
    this.canvas.style.height = `${side + TOP}px`;
    this.draw();
  }

  draw() {
    if (!this.side) return;
    const pen = this.canvas.getContext("2d");
    const ink = inkOf(this.element);
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, this.side + LEFT, this.side + TOP);
    pen.fillStyle = ink.panel;
    pen.fillRect(LEFT, TOP, this.side, this.side);
    if (this.found) this.#paste(pen);
    paintLabels(pen, ink, this);
    pen.strokeStyle = ink.line;
    pen.strokeRect(LEFT - 0.5, TOP - 0.5, this.side + 1, this.side + 1);
    if (this.cursor) this.#outline(pen, ink);
    if (this.box) this.#rubber(pen, ink);
    const {rows, columns} = this.view;
    const part = rows[1] - rows[0] === this.count && columns[1] - columns[0] === this.count;
    const most = this.found ? `; largest weight in sight ${told(this.most)}` : "";
    this.where.textContent = (part ? `${this.count.toLocaleString("en")} tokens` : `rows ${rows[0]}–${rows[1] - 1}, columns ${columns[0]}–${columns[1] - 1} of ${this.count.toLocaleString("en")}`) + most;
  }

  /** What the server sent, stretched to where it lies in the view. */
  #paste(pen) {
    this.picture ??= pictureOf(this.found, this.scale, this.colouring);
    const {found, view} = this;
    const along = ([first, last], [low, high], cells) => [((first - low) / (high - low)) * cells, ((last - first) / (high - low)) * cells];
    const [x, width] = along(view.columns, found.columns, found.wide);
    const [y, height] = along(view.rows, found.rows, found.high);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture, x, y, width, height, LEFT, TOP, this.side, this.side);
  }

  #outline(pen, ink) {
    const [x, y, width, height] = this.#cellBox(this.cursor);
    pen.strokeStyle = ink.accent;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, y - 1, Math.max(width, 3) + 2, Math.max(height, 3) + 2);
    pen.lineWidth = 1;
  }

  #rubber(pen, ink) {
    const [[x0, y0], [x1, y1]] = this.box;
    pen.strokeStyle = ink.accent;
    pen.strokeRect(LEFT + Math.min(x0, x1) * this.side, TOP + Math.min(y0, y1) * this.side, Math.abs(x1 - x0) * this.side, Math.abs(y1 - y0) * this.side);
  }

  // ---- cells ----

  /** The tokens [first, last] that cell `index` stands for, along a side of what was sent. */
  #stretch(starts, index, end) {
    return [starts[index], (starts[index + 1] ?? end) - 1];
  }

  #cellBox({row, column}) {
    const {found, view, side} = this;
    const [top, bottom] = this.#stretch(found.row_starts, row, found.rows[1]);
    const [left, right] = this.#stretch(found.column_starts, column, found.columns[1]);
    const across = side / (view.columns[1] - view.columns[0]);
    const down = side / (view.rows[1] - view.rows[0]);
    return [LEFT + (left - view.columns[0]) * across, TOP + (top - view.rows[0]) * down, (right - left + 1) * across, (bottom - top + 1) * down];
  }

  /** The cell below a place in the map, given as shares. */
  #cell([x, y]) {
    const {found, view} = this;
    if (!found || x < 0 || y < 0 || x >= 1 || y >= 1) return null;
    const query = view.rows[0] + Math.floor(y * (view.rows[1] - view.rows[0]));
    const key = view.columns[0] + Math.floor(x * (view.columns[1] - view.columns[0]));
    const place = (starts, token) => starts.findLastIndex((start) => start <= token);
    if (query < found.rows[0] || query >= found.rows[1] || key < found.columns[0] || key >= found.columns[1]) return null;
    return {row: place(found.row_starts, query), column: place(found.column_starts, key)};
  }

  #telling({row, column}) {
    const {found} = this;
    const weight = found.values[row * found.wide + column];
    const [from, to] = this.#stretch(found.row_starts, row, found.rows[1]);
    const [left, right] = this.#stretch(found.column_starts, column, found.columns[1]);
    const several = to > from || right > left;
    return {
      name: Number.isNaN(weight) ? "hidden by the mask" : `${several ? "largest weight " : "weight "}${told(weight)}`,
      caption: several ? `of ${to - from + 1} x ${right - left + 1} pairs of tokens` : "",
      rows: [["looks", this.#named(from, to)], ["is looked at", this.#named(left, right)]],
    };
  }

  #named(first, last) {
    const one = (place) => `${shown(this.tokens[place])} (${place})`;
    return last > first ? `${one(first)} … ${one(last)}` : one(first);
  }

  #point(cell, spoken = false) {
    this.cursor = cell;
    this.draw();
    if (!cell) return this.tooltip.hide();
    const telling = this.#telling(cell);
    const [x, y, width, height] = this.#cellBox(cell);
    const box = this.canvas.getBoundingClientRect();
    this.tooltip.show(telling, box.left + x + width, box.top + y + height);
    if (spoken) this.said.textContent = `${telling.rows.map((row) => row.join(" ")).join(", ")}: ${telling.name}`;
  }

  // ---- hands ----

  #share(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left - LEFT) / this.side, (event.clientY - box.top - TOP) / this.side];
  }

  #listen() {
    const {signal} = this.stop;
    const on = (name, act, options = {}) => this.canvas.addEventListener(name, act, {signal, ...options});
    on("pointermove", (event) => this.#over(event));
    on("pointerleave", () => this.#point(null));
    on("pointerdown", (event) => this.#press(event));
    on("pointerup", (event) => this.#release(event));
    on("dblclick", () => this.turn(whole(this.count)));
    on("wheel", (event) => this.#wheel(event), {passive: false});
    on("keydown", (event) => this.#key(event));
    on("blur", () => this.#point(null));
  }

  #over(event) {
    const share = this.#share(event);
    if (this.box) {
      this.box[1] = share.map((one) => Math.min(Math.max(one, 0), 1));
      this.draw();
      return;
    }
    this.#point(this.#cell(share));
  }

  #press(event) {
    const share = this.#share(event);
    if (event.button !== 0 || share.some((one) => one < 0 || one > 1)) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.tooltip.hide();
    this.box = [share, share];
  }

  #release() {
    const {box} = this;
    this.box = null;
    if (!box) return;
    const far = Math.max(Math.abs(box[0][0] - box[1][0]), Math.abs(box[0][1] - box[1][1])) * this.side;
    if (far > 6) this.turn(cut(this.view, box[0], box[1], this.count));
    this.draw();
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    const share = this.#share(event).map((one) => Math.min(Math.max(one, 0), 1));
    this.turn(zoomed(this.view, event.deltaY > 0 ? 1.25 : 0.8, this.count, share));
  }

  #key(event) {
    const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (steps && event.shiftKey) this.turn(moved(this.view, steps[0] / 4, steps[1] / 4, this.count));
    else if (steps) this.#walk(...steps);
    else if (event.key === "+" || event.key === "=") this.turn(zoomed(this.view, 0.7, this.count));
    else if (event.key === "-") this.turn(zoomed(this.view, 1.4, this.count));
    else if (event.key === "0" || event.key === "Escape") this.turn(whole(this.count));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #walk(across, down) {
    if (!this.found) return;
    const {row, column} = this.cursor ?? {row: 0, column: 0};
    const step = this.cursor ? [across, down] : [0, 0];
    this.#point({row: Math.min(Math.max(row + step[1], 0), this.found.high - 1), column: Math.min(Math.max(column + step[0], 0), this.found.wide - 1)}, true);
  }

  #tools() {
    const button = (text, label, act) => el("button", {type: "button", "aria-label": label, on: {click: act}}, text);
    const colours = el("select", {on: {change: (event) => {
      this.colouring = event.target.value;
      this.picture = null;
      this.draw();
    }}}, Object.entries(COLOURINGS).map(([key, [name]]) => el("option", {value: key, selected: key === this.colouring}, name)));
    return el("div", {class: "live-map-tools"},
      button("+", "Zoom in", () => this.turn(zoomed(this.view, 0.7, this.count))),
      button("−", "Zoom out", () => this.turn(zoomed(this.view, 1.4, this.count))),
      button("Whole", "The whole map", () => this.turn(whole(this.count))),
      el("label", {}, "colours ", colours), this.where);
  }
}
