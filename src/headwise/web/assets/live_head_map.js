// One head's map, large: rows are queries, columns are keys, on one canvas with token labels on both axes.
//
// The server sends the visible mapWindow, with at most as many cells as the canvas has pixels, so that 4,000 tokens cost no more than 400.
// While a new window is loading the old one is drawn scaled. Hovering over a cell shows both tokens and the weight; a pooled cell shows
// its maximum weight.
//
//     wheel (with Ctrl, or when the map has the focus), + and -   zoom        drag a box   zoom into it
//     arrow keys   from cell to cell      Shift + arrow keys   pan            0, Esc or double click   the whole map

import {themeOf} from "headwise/colours";
import {loadHeadMap} from "headwise/data_loader";
import {context2d, countSeconds, el} from "headwise/dom";
import {visibleToken} from "headwise/head_attention";
import {
  COLOURINGS,
  LEFT,
  TOP,
  cropView,
  maxWeight,
  moveView,
  paintLabels,
  sameView,
  weightImage,
  wholeView,
  zoomView,
} from "headwise/live_map_view";
import {formatNumber} from "headwise/numbers";
import {applyFigureStyles} from "headwise/styles";
import {onThemeChange} from "headwise/theme";
import {Tooltip} from "headwise/tooltip";

const MAX_CELLS = 512; // per side
const LONG_TEXT_TOKENS = 200; // above which weights are small, and coloured by their square root
const FETCH_DELAY = 90; // milliseconds after the last zoom

/** One head's map of a run; `scale` is the colour scale of the grid. */
export class HeadMapView {
  /** @type {MapWindow | null} */ mapWindow = null;
  /** @type {OffscreenCanvas | null} */ picture = null;
  /** @type {Cell | null} */ cursor = null;
  /** @type {number[][] | null} */ box = null; // the corners of a dragged box
  /** @type {AbortController | null} */ request = null;
  /** @type {ResizeObserver | null} */ observer = null;
  maximum = 0;
  side = 0; // pixels of the map
  timer = 0;

  /** @param {RunResult} run @param {string} head @param {Scale} scale */
  constructor(run, head, scale) {
    this.run = run;
    this.head = head;
    this.scale = {...scale, low: 0, high: 1};
    this.tokens = run.tokens.map((token) => token.text);
    this.colouring = run.tokens.length > LONG_TEXT_TOKENS ? "root" : "plain";
    this.count = this.tokens.length;
    this.view = wholeView(this.count);
    this.stop = new AbortController();
    this.canvas = el("canvas", {
      class: "live-canvas",
      tabindex: "0",
      role: "img",
      "aria-label": `Attention map of ${head}; arrow keys move from cell to cell, plus and minus zoom`,
    });
    this.announcement = el("p", {class: "visually-hidden", role: "status"});
    this.status = el("span", {class: "count"});
    this.element = el("div", {class: "live-map"}, this.#tools(), this.canvas, this.announcement);
    applyFigureStyles(this.element);
    this.tooltip = new Tooltip(this.element);
    this.#listen();
  }

  /** Called when it is on the page. */
  shown() {
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(this.element);
    onThemeChange(() => this.draw());
    this.#fetch();
  }

  leave() {
    this.observer?.disconnect();
    this.stop.abort();
    this.request?.abort();
  }

  /**
   * Show another window of the map.
   * @param {View} view
   */
  show(view) {
    if (sameView(view, this.view)) return;
    this.view = view;
    this.cursor = null;
    this.tooltip.hide();
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#fetch(), FETCH_DELAY);
  }

  async #fetch() {
    this.request?.abort();
    this.request = new AbortController();
    const {view} = this;
    const size = Math.min(MAX_CELLS, Math.max(64, Math.round(this.side * devicePixelRatio) || MAX_CELLS));
    this.element.setAttribute("aria-busy", "true");
    const stop = countSeconds((time) => (this.status.textContent = `loading the map, ${time} so far`));
    try {
      this.mapWindow = await loadHeadMap(this.run.id, this.head, {...view, size}, this.request.signal);
      this.maximum = maxWeight(/** @type {MapWindow} */ (this.mapWindow));
      this.picture = null;
      this.draw();
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") this.status.textContent = /** @type {Error} */ (error).message;
      return;
    } finally {
      stop();
    }
    this.element.removeAttribute("aria-busy");
    this.element.dataset.window = `${view.rows.join(":")} ${view.columns.join(":")}`;
  }

  // ---- drawing ----

  #resize() {
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
    const context = context2d(this.canvas);
    const theme = themeOf(this.element);
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.side + LEFT, this.side + TOP);
    context.fillStyle = theme.panel;
    context.fillRect(LEFT, TOP, this.side, this.side);
    if (this.mapWindow) this.#drawWindow(context);
    paintLabels(context, theme, this);
    context.strokeStyle = theme.line;
    context.strokeRect(LEFT - 0.5, TOP - 0.5, this.side + 1, this.side + 1);
    if (this.cursor) this.#drawCursor(context, theme);
    if (this.box) this.#drawSelection(context, theme);
    const {rows, columns} = this.view;
    const part = rows[1] - rows[0] === this.count && columns[1] - columns[0] === this.count;
    const maximum = this.mapWindow ? `; largest visible weight ${formatNumber(this.maximum)}` : "";
    this.status.textContent =
      (part
        ? `${this.count.toLocaleString("en")} tokens`
        : `rows ${rows[0]}–${rows[1] - 1}, columns ${columns[0]}–${columns[1] - 1} of ${this.count.toLocaleString("en")}`) + maximum;
  }

  /**
   * The loaded window, scaled to its position in the view.
   * @param {CanvasRenderingContext2D} context
   */
  #drawWindow(context) {
    this.picture ??= weightImage(/** @type {MapWindow} */ (this.mapWindow), this.scale, this.colouring);
    const {view} = this;
    const mapWindow = /** @type {MapWindow} */ (this.mapWindow);
    /** @type {(span: Span, whole: Span, cells: number) => number[]} */
    const along = ([first, last], [low, high], cells) => [((first - low) / (high - low)) * cells, ((last - first) / (high - low)) * cells];
    const [x, width] = along(view.columns, mapWindow.columns, mapWindow.wide);
    const [y, height] = along(view.rows, mapWindow.rows, mapWindow.high);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, x, y, width, height, LEFT, TOP, this.side, this.side);
  }

  /** @param {CanvasRenderingContext2D} context @param {Theme} theme */
  #drawCursor(context, theme) {
    const [x, y, width, height] = this.#cellBox(/** @type {Cell} */ (this.cursor));
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(width, 3) + 2, Math.max(height, 3) + 2);
    context.lineWidth = 1;
  }

  /** @param {CanvasRenderingContext2D} context @param {Theme} theme */
  #drawSelection(context, theme) {
    const [[x0, y0], [x1, y1]] = /** @type {number[][]} */ (this.box);
    context.strokeStyle = theme.accent;
    context.strokeRect(
      LEFT + Math.min(x0, x1) * this.side,
      TOP + Math.min(y0, y1) * this.side,
      Math.abs(x1 - x0) * this.side,
      Math.abs(y1 - y0) * this.side,
    );
  }

  // ---- cells ----

  /**
   * The tokens [first, last] of cell `index` along one side.
   * @param {number[]} starts
   * @param {number} index
   * @param {number} end
   */
  #cellTokens(starts, index, end) {
    return [starts[index], (starts[index + 1] ?? end) - 1];
  }

  /** @param {Cell} cell */
  #cellBox({row, column}) {
    const {view, side} = this;
    const mapWindow = /** @type {MapWindow} */ (this.mapWindow);
    const [top, bottom] = this.#cellTokens(mapWindow.row_starts, row, mapWindow.rows[1]);
    const [left, right] = this.#cellTokens(mapWindow.column_starts, column, mapWindow.columns[1]);
    const across = side / (view.columns[1] - view.columns[0]);
    const down = side / (view.rows[1] - view.rows[0]);
    return [
      LEFT + (left - view.columns[0]) * across,
      TOP + (top - view.rows[0]) * down,
      (right - left + 1) * across,
      (bottom - top + 1) * down,
    ];
  }

  /**
   * The cell at a position in the map, as shares of its side.
   * @param {number[]} number
   */
  #cell([x, y]) {
    const {view} = this;
    const mapWindow = /** @type {MapWindow} */ (this.mapWindow);
    if (!mapWindow || x < 0 || y < 0 || x >= 1 || y >= 1) return null;
    const query = view.rows[0] + Math.floor(y * (view.rows[1] - view.rows[0]));
    const key = view.columns[0] + Math.floor(x * (view.columns[1] - view.columns[0]));
    const indexOf = (starts, token) => starts.findLastIndex((start) => start <= token);
    if (query < mapWindow.rows[0] || query >= mapWindow.rows[1] || key < mapWindow.columns[0] || key >= mapWindow.columns[1]) return null;
    return {row: indexOf(mapWindow.row_starts, query), column: indexOf(mapWindow.column_starts, key)};
  }

  /** @param {Cell} cell */
  #tooltipContent({row, column}) {
    const mapWindow = /** @type {MapWindow} */ (this.mapWindow);
    const weight = mapWindow.values[row * mapWindow.wide + column];
    const [from, to] = this.#cellTokens(mapWindow.row_starts, row, mapWindow.rows[1]);
    const [left, right] = this.#cellTokens(mapWindow.column_starts, column, mapWindow.columns[1]);
    const pooled = to > from || right > left;
    return {
      name: Number.isNaN(weight) ? "masked" : `${pooled ? "largest weight " : "weight "}${formatNumber(weight)}`,
      caption: pooled ? `maximum of ${to - from + 1} x ${right - left + 1} token pairs` : "",
      rows: [
        ["query", this.#tokenRange(from, to)],
        ["key", this.#tokenRange(left, right)],
      ],
    };
  }

  /** @param {number} first @param {number} last */
  #tokenRange(first, last) {
    const one = (index) => `${visibleToken(this.tokens[index])} (${index})`;
    return last > first ? `${one(first)} … ${one(last)}` : one(first);
  }

  /** @param {Cell | null} cell @param {boolean} [spoken] */
  #point(cell, spoken = false) {
    this.cursor = cell;
    this.draw();
    if (!cell) return this.tooltip.hide();
    const content = this.#tooltipContent(cell);
    const [x, y, width, height] = this.#cellBox(cell);
    const box = this.canvas.getBoundingClientRect();
    this.tooltip.show(content, box.left + x + width, box.top + y + height);
    if (spoken) this.announcement.textContent = `${content.rows.map((row) => row.join(" ")).join(", ")}: ${content.name}`;
  }

  // ---- events ----

  /** @param {MouseEvent} event */
  #position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left - LEFT) / this.side, (event.clientY - box.top - TOP) / this.side];
  }

  #listen() {
    const {signal} = this.stop;
    const on = (name, act, options = {}) => this.canvas.addEventListener(name, act, {signal, ...options});
    on("pointermove", (event) => this.#onMove(event));
    on("pointerleave", () => this.#point(null));
    on("pointerdown", (event) => this.#onPress(event));
    on("pointerup", () => this.#onRelease());
    on("dblclick", () => this.show(wholeView(this.count)));
    on("wheel", (event) => this.#onWheel(event), {passive: false});
    on("keydown", (event) => this.#onKey(event));
    on("blur", () => this.#point(null));
  }

  /** @param {PointerEvent} event */
  #onMove(event) {
    const share = this.#position(event);
    if (this.box) {
      this.box[1] = share.map((one) => Math.min(Math.max(one, 0), 1));
      this.draw();
      return;
    }
    this.#point(this.#cell(share));
  }

  /** @param {PointerEvent} event */
  #onPress(event) {
    const share = this.#position(event);
    if (event.button !== 0 || share.some((one) => one < 0 || one > 1)) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.tooltip.hide();
    this.box = [share, share];
  }

  #onRelease() {
    const {box} = this;
    this.box = null;
    if (!box) return;
    const far = Math.max(Math.abs(box[0][0] - box[1][0]), Math.abs(box[0][1] - box[1][1])) * this.side;
    if (far > 6) this.show(cropView(this.view, box[0], box[1], this.count));
    this.draw();
  }

  /** @param {WheelEvent} event */
  #onWheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    const share = this.#position(event).map((one) => Math.min(Math.max(one, 0), 1));
    this.show(zoomView(this.view, event.deltaY > 0 ? 1.25 : 0.8, this.count, share));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (steps && event.shiftKey) this.show(moveView(this.view, steps[0] / 4, steps[1] / 4, this.count));
    else if (steps) this.#moveCursor(steps[0], steps[1]);
    else if (event.key === "+" || event.key === "=") this.show(zoomView(this.view, 0.7, this.count));
    else if (event.key === "-") this.show(zoomView(this.view, 1.4, this.count));
    else if (event.key === "0" || event.key === "Escape") this.show(wholeView(this.count));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} across @param {number} down */
  #moveCursor(across, down) {
    if (!this.mapWindow) return;
    const {row, column} = this.cursor ?? {row: 0, column: 0};
    const step = this.cursor ? [across, down] : [0, 0];
    this.#point(
      {
        row: Math.min(Math.max(row + step[1], 0), this.mapWindow.high - 1),
        column: Math.min(Math.max(column + step[0], 0), this.mapWindow.wide - 1),
      },
      true,
    );
  }

  #tools() {
    const button = (text, label, act) => el("button", {type: "button", "aria-label": label, on: {click: act}}, text);
    const colours = el(
      "select",
      {
        on: {
          change: (event) => {
            this.colouring = event.target.value;
            this.picture = null;
            this.draw();
          },
        },
      },
      Object.entries(COLOURINGS).map(([key, [name]]) => el("option", {value: key, selected: key === this.colouring}, name)),
    );
    return el(
      "div",
      {class: "live-map-tools"},
      button("+", "Zoom in", () => this.show(zoomView(this.view, 0.7, this.count))),
      button("−", "Zoom out", () => this.show(zoomView(this.view, 1.4, this.count))),
      button("Whole", "The whole map", () => this.show(wholeView(this.count))),
      el("label", {}, "colours ", colours),
      this.status,
    );
  }
}
