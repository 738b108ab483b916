// One panel on the page: a canvas for the panel, a second one above it for outlines, and the event handlers.
//
// Hovering only redraws the second canvas. Pointer, touch and keyboard call the same three methods of the figure: look(item, point),
// leave(), pick(item). The first tap on a cell shows it, the second picks it.

import {CanvasPen} from "headwise/canvas_pen";
import {panelTypeOf} from "headwise/panel_types";
import {ZOOMS} from "headwise/tile_grid";

/** @type {Record<string, number[]>} */
const ARROWS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  Home: [-1e9, 0],
  End: [1e9, 0],
  PageUp: [0, -10],
  PageDown: [0, 10],
};

export class PanelCanvas {
  /** @type {any} */ item = null; // the last selected item
  /** @type {any} */ shown = null; // the item of the tooltip
  /** @type {any} */ marked = null; // the outlined item
  strong = false;
  /** @type {Slot} */ slot;
  /** @type {Theme} */ theme;
  /** @type {(CanvasPen & {width?: number, height?: number}) | null} */ pen = null;
  /** @type {number | null} */ frame = null;
  /** @type {HTMLElement} */ window; // scrolls over the data area; only types with a content size have one

  /** @param {any} panel @param {string} words @param {any} figure */
  constructor(panel, words, figure) {
    this.type = panelTypeOf(panel);
    this.figure = figure;
    this.item = null;
    this.element = document.createElement("div");
    this.element.className = "hw-canvas";
    this.base = this.element.appendChild(document.createElement("canvas"));
    this.over = this.element.appendChild(document.createElement("canvas"));
    this.element.setAttribute("aria-label", words);
    if (!this.type.itemAt) {
      this.element.setAttribute("role", "img");
      return;
    }
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "application");
    this.element.setAttribute("aria-roledescription", "interactive figure");
    this.#listen();
    if (this.type.contentSize) this.#addWindow();
  }

  /**
   * Apply a layout and draw.
   * @param {Slot} slot
   * @param {Theme} theme
   */
  settle(slot, theme) {
    const {zoom = this.type.startZoom?.(slot.panel, slot.box.width), scroll} = this.slot ?? {};
    this.slot = {...slot, zoom, scroll};
    this.theme = theme;
    Object.assign(this.element.style, {width: `${slot.width}px`, height: `${slot.height}px`});
    this.#settleWindow();
    this.paint();
    this.type.prepare?.(slot.panel).then(() => this.paint());
  }

  /** @param {Theme} [theme] @param {number} [ratio] */
  paint(theme = this.theme, ratio = devicePixelRatio || 1) {
    const {width, height, font} = this.slot;
    this.type.paint(new CanvasPen(this.base, width, height, ratio, font), this.slot, theme);
    this.mark(this.marked ?? null, this.strong);
  }

  /**
   * Outline an item (null: none); `strong` in the panel with the pointer or focus.
   * @param {any} item
   * @param {boolean} [strong]
   */
  mark(item, strong = false) {
    this.marked = item;
    this.strong = strong;
    if (!this.slot) return; // not on the page yet
    const {width, height, font} = this.slot;
    if (!this.pen || this.pen.width !== width || this.pen.height !== height || this.pen.ratio !== devicePixelRatio) {
      this.pen = Object.assign(new CanvasPen(this.over, width, height, devicePixelRatio || 1, font), {width, height});
    }
    this.pen.context.clearRect(0, 0, width, height);
    if (item) this.type.outline(this.pen, this.slot, item, this.theme, strong);
  }

  /**
   * The point of the window for an item's tooltip.
   * @param {any} item
   */
  pointOf(item) {
    const {left, top} = this.element.getBoundingClientRect();
    const {x, y} = this.type.tooltipAnchor(this.slot, item);
    return {x: left + x, y: top + y};
  }

  /**
   * Make tiles larger or smaller by steps.
   * @param {number} steps
   */
  zoom(steps) {
    const now = ZOOMS.indexOf(this.slot.zoom ?? 1);
    const next = ZOOMS[Math.min(Math.max(now + steps, 0), ZOOMS.length - 1)];
    const {x, y} = this.slot.scroll ?? {x: 0, y: 0};
    const ratio = next / (this.slot.zoom ?? 1);
    this.slot.zoom = next;
    this.#settleWindow();
    this.window.scrollTo(x * ratio, y * ratio);
    this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
    this.paint();
  }

  #listen() {
    const {element} = this;
    element.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") this.#point(event);
    });
    element.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") this.#leave();
    });
    element.addEventListener("click", (event) => this.#click(event));
    element.addEventListener("keydown", (event) => this.#press(event));
    element.addEventListener("focus", () => {
      if (element.matches(":focus-visible")) this.#look(this.item ?? this.type.firstItem(this.slot));
    });
    element.addEventListener("blur", () => this.#leave());
  }

  /** @param {MouseEvent} event */
  #point(event) {
    const {left, top} = this.element.getBoundingClientRect();
    const item = this.type.itemAt(this.slot, event.clientX - left, event.clientY - top);
    this.element.title = item ? "" : (this.type.hint?.(this.slot, event.clientX - left, event.clientY - top) ?? "");
    if (item) this.#look(item, {x: event.clientX, y: event.clientY});
    else this.#leave();
    return item;
  }

  /** @param {PointerEvent} event */
  #click(event) {
    const previous = this.shown;
    const item = this.#point(event);
    if (!item) return;
    const repeated = previous && this.#key(previous) === this.#key(item);
    if (event.pointerType !== "touch" || repeated) this.figure.pick(this, item);
  }

  /** @param {any} item */
  #key(item) {
    return JSON.stringify({...item, inside: null});
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.key === "Escape") {
      this.#leave();
      this.element.blur();
      return;
    }
    const item = this.item ?? this.type.firstItem(this.slot);
    if (!item) return; // no items
    if (event.key === "Enter" || event.key === " ") this.figure.pick(this, item);
    else if (event.key in ARROWS && !event.altKey && !event.metaKey)
      this.#step(this.type.moveItem(this.slot, item, ARROWS[event.key][0], ARROWS[event.key][1]));
    else return;
    event.preventDefault();
  }

  /** @param {any} item */
  #step(item) {
    if (this.window) {
      const {x, y} = /** @type {Required<PanelType>} */ (this.type).scrollTo(this.slot, item);
      this.window.scrollTo(x, y);
      this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
    }
    this.#look(item);
  }

  /** @param {any} item @param {Point | null} [point] */
  #look(item, point = null) {
    if (!item) return;
    this.item = this.shown = item;
    this.figure.look(this, item, point);
  }

  #leave() {
    this.shown = null;
    this.figure.leave(this);
  }

  /** A scrolling element over the data area: native scroll bars, followed by the canvas below. */
  #addWindow() {
    this.window = this.element.appendChild(document.createElement("div"));
    this.window.className = "hw-window";
    this.window.append(document.createElement("div"));
    this.window.addEventListener("scroll", () => {
      this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
      this.frame ??= requestAnimationFrame(() => {
        this.frame = null;
        this.paint();
      });
    });
  }

  #settleWindow() {
    if (!this.window) return;
    const {box} = this.slot;
    const {width, height} = /** @type {Required<PanelType>} */ (this.type).contentSize(this.slot);
    Object.assign(this.window.style, {left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px`});
    Object.assign(/** @type {HTMLElement} */ (this.window.firstElementChild).style, {width: `${width}px`, height: `${height}px`});
    this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
  }
}
