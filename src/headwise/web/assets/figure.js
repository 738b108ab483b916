// A figure on the page: `drawFigure(element, payload, options)` is the only entry point.
//
// The payload is the output of Python's `to_payload`: panels, scales, notes; numbers without colours. Panels form a grid with fewer
// columns in a narrow window. Hovering over a cell shows its tooltip and outlines the same cell (the same head) in all other panels;
// arrow keys do the same, and the tooltip is announced to screen readers. Enter or a click opens the head.
//
// Cost: an 80 x 64 profile (eleven maps of 5,120 cells) is drawn once, in 0.12 to 0.25 s on two busy cores; hovering draws only
// outlines (2 to 4 ms). It is redrawn when its width or the theme changes, and for print on white.

import {CanvasPen} from "headwise/canvas_pen";
import {BAR_WIDTH, describeMarks, describeScale, markValueOnBar, paintBar} from "headwise/colour_bar";
import {printTheme, themeOf} from "headwise/colours";
import {PANEL_GAP, TOP_MARGIN, layoutFigure, numberNames} from "headwise/layout";
import {describeLegend} from "headwise/legend";
import {PanelCanvas} from "headwise/panel_canvas";
import {applyFigureStyles} from "headwise/styles";
import {Tooltip} from "headwise/tooltip";
import {tooltipLine} from "headwise/tooltip_text";

/**
 * Draw a figure into an element, replacing its content.
 *
 * onhead(name) is called when a cell that is a head is picked ("L12H3"); onpick({panel, item, name, head, value}) for
 * anything that is picked. describe is a text alternative (default: the payload's own). heading and
 * notes say whether the figure's title and notes are shown.
 * Returns {point(head), redraw(), remove()}.
 * @param {HTMLElement} element
 * @param {Payload} payload
 * @param {Partial<FigureOptions>} [options]
 */
export function drawFigure(element, payload, {onhead = null, onpick = null, describe = "", heading = true, notes = true} = {}) {
  views.get(element)?.remove();
  const view = new FigureView(element, payload, {onhead, onpick, describe, heading, notes});
  views.set(element, view);
  return {point: (head) => view.point(head), redraw: () => view.redraw(), remove: () => view.remove()};
}

const views = new WeakMap(); // one figure per element, removed with its observers

class FigureView {
  /** @type {HTMLElement} */ grid;
  /** @type {(PanelCanvas & {panel: HTMLElement, head: HTMLElement})[]} */ canvases;
  /** @type {HTMLElement} */ shared;
  /** @type {HTMLElement} */ names; // what numbers on the axes stand for
  /** @type {HTMLElement} */ live;
  /** @type {ResizeObserver} */ observer;
  /** @type {MutationObserver} */ themes;
  /** @type {AbortController} */ stop;
  /** @type {number | null} */ pending = null;
  /** @type {((theme: Theme, value: number | null, ratio?: number) => void) | null} */ sharedBar = null;
  /** @type {{canvas: PanelCanvas, item: any} | null} */ followed = null;
  /** @type {Theme} */ theme;

  /** @param {HTMLElement} element @param {Payload} payload @param {FigureOptions} options */
  constructor(element, payload, options) {
    this.payload = payload;
    this.options = options;
    applyFigureStyles(element);
    this.root = document.createElement("figure");
    this.root.className = "hw-figure";
    this.root.setAttribute("aria-label", payload.title);
    this.#build();
    element.replaceChildren(this.root);
    this.tooltip = new Tooltip(this.root);
    this.#watch();
    this.redraw();
  }

  /**
   * Outline a head in all panels; null: none.
   * @param {string | null} head
   */
  point(head) {
    for (const canvas of this.canvases)
      canvas.mark(head && canvas.slot && canvas.type.findItem ? canvas.type.findItem(canvas.slot, head) : null);
  }

  redraw() {
    const width = Math.floor(this.root.clientWidth);
    if (width < 40) return; // not on the page yet: the observer calls again
    this.width = width;
    this.theme = themeOf(this.root);
    const {payload, names} = numberNames(this.payload, width, this.theme.font);
    this.names.replaceChildren(...names.map((name) => makeElement("li", "", name)));
    this.names.hidden = !names.length;
    const {columns, widths, slots, shared} = layoutFigure(payload, width, this.theme.font);
    const tracks = shared ? [...widths, shared.width] : widths;
    this.grid.style.gridTemplateColumns = tracks.map((each) => `${each}px`).join(" ");
    this.grid.style.columnGap = `${PANEL_GAP}px`;
    this.grid.toggleAttribute("data-wide", tracks.reduce((sum, each) => sum + each + PANEL_GAP, -PANEL_GAP) > width);
    this.canvases.forEach((canvas, index) => {
      const column = index % columns;
      const row = Math.floor(index / columns);
      canvas.panel.style.gridColumn = `${column + 1}`;
      canvas.panel.style.gridRow = `${2 * row + 1} / span 2`;
      canvas.head.style.marginLeft = `${slots[index].box.x}px`;
      canvas.settle(slots[index], this.theme);
    });
    this.#paintShared(shared, columns, slots);
  }

  remove() {
    this.observer.disconnect();
    this.themes.disconnect();
    this.stop.abort();
    this.root.remove();
  }

  /** @param {PanelCanvas} canvas @param {any} item @param {Point | null} point */
  look(canvas, item, point) {
    const content = canvas.type.tooltipContent(canvas.slot, item);
    const key = canvas.type.itemKey(canvas.slot, item);
    for (const other of this.canvases) {
      if (other === canvas) other.mark(item, true);
      else other.mark(key && other.type.findItem ? other.type.findItem(other.slot, key) : null);
    }
    this.sharedBar?.(this.theme, canvas.slot.scale ? (content.value ?? null) : null);
    const opens = content.head && this.options.onhead;
    canvas.element.toggleAttribute("data-opens", Boolean(opens));
    const {x, y} = point ?? canvas.pointOf(item);
    this.tooltip.show(content, x, y, opens ? `${point ? "Click" : "Enter"} opens ${content.head}` : "");
    this.followed = point ? null : {canvas, item};
    if (!point) this.live.textContent = tooltipLine(content);
  }

  leave() {
    this.followed = null;
    this.tooltip.hide();
    this.sharedBar?.(this.theme, null);
    this.point(null);
  }

  /** @param {PanelCanvas} canvas @param {any} item */
  pick(canvas, item) {
    const {name, head, value} = canvas.type.tooltipContent(canvas.slot, item);
    this.options.onpick?.({panel: canvas.slot.panel.key, item, name, head, value});
    if (head) this.options.onhead?.(head);
  }

  #build() {
    const {payload, options} = this;
    if (options.heading)
      this.root.append(
        ...textElements([
          ["div", "hw-title", payload.title],
          ["p", "hw-subtitle", payload.subtitle],
        ]),
      );
    const words = options.describe || payload.alt;
    if (words) this.root.append(makeElement("p", "hw-visually-hidden", words));
    this.grid = this.root.appendChild(makeElement("div", "hw-grid"));
    this.canvases = payload.panels.map((panel) => this.#panel(panel));
    this.shared = this.grid.appendChild(makeElement("div", "hw-shared"));
    this.shared.append(document.createElement("canvas"));
    this.names = this.root.appendChild(makeElement("ol", "hw-names"));
    this.live = this.root.appendChild(makeElement("div", "hw-visually-hidden"));
    this.live.setAttribute("aria-live", "polite");
    if (options.notes) {
      const box = this.root.appendChild(makeElement("div", "hw-notes"));
      box.append(...textElements([...payload.notes, payload.provenance].map((note) => ["p", "", note])));
    }
  }

  /** @param {any} panel */
  #panel(panel) {
    const box = this.grid.appendChild(makeElement("div", "hw-panel"));
    const head = box.appendChild(makeElement("div", "hw-panel-head"));
    const hasTitles = panel.type !== "Legend";
    if (hasTitles)
      head.append(
        ...textElements([
          ["div", "hw-panel-title", panel.title],
          ["div", "hw-panel-subtitle", panel.subtitle],
        ]),
      );
    const canvas = new PanelCanvas(panel, describePanel(panel, this.payload.scales[panel.scale]), this);
    if (canvas.window) head.firstElementChild?.append(zoomButtons(canvas));
    box.append(canvas.element);
    return Object.assign(canvas, {panel: box, head});
  }

  /** @param {any} shared @param {number} columns @param {Slot[]} slots */
  #paintShared(shared, columns, slots) {
    this.shared.hidden = !shared;
    this.sharedBar = null;
    if (!shared) return;
    const height = Math.min(Math.max(slots[0].box.height, 120), 320);
    const [width, canvas] = [shared.width, /** @type {HTMLCanvasElement} */ (this.shared.firstChild)];
    this.shared.style.gridColumn = `${columns + 1}`;
    this.shared.style.gridRow = `2 / span ${2 * Math.ceil(slots.length / columns) - 1}`;
    const bar = {x: 8, y: TOP_MARGIN, width: BAR_WIDTH, height};
    this.shared.title = describeMarks(shared.scale);
    this.sharedBar = (theme, value, ratio = devicePixelRatio || 1) => {
      const pen = new CanvasPen(canvas, width, height + 2 * TOP_MARGIN, ratio, theme.font);
      paintBar(pen, bar, shared.scale, shared.scale.label, theme, theme.font);
      if (value !== null) markValueOnBar(pen, bar, shared.scale, value, theme);
    };
    this.sharedBar(this.theme, null);
  }

  #watch() {
    this.stop = new AbortController();
    const {signal} = this.stop;
    const later = () => {
      this.pending ??= requestAnimationFrame(() => {
        this.pending = null;
        this.redraw();
      });
    };
    this.observer = new ResizeObserver(() => {
      if (Math.floor(this.root.clientWidth) !== this.width) later();
    });
    this.observer.observe(this.root);
    this.themes = new MutationObserver(later);
    this.themes.observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme", "class"]});
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later, {signal});
    addEventListener("beforeprint", () => this.#print(), {signal});
    addEventListener("afterprint", later, {signal});
    addEventListener("scroll", () => this.#follow(), {signal, passive: true, capture: true});
  }

  /** After scrolling, the tooltip of a keyboard selection moves along; that of the pointer is hidden. */
  #follow() {
    if (!this.followed) this.tooltip.hide();
    else {
      const {x, y} = this.followed.canvas.pointOf(this.followed.item);
      this.tooltip.moveTo(x, y);
    }
  }

  #print() {
    const theme = printTheme(this.theme?.font);
    for (const canvas of this.canvases) if (canvas.slot) canvas.paint(theme, 3);
    this.sharedBar?.(theme, null, 3);
  }
}

/** @param {any} panel @param {Scale} scale */
function describePanel(panel, scale) {
  if (panel.type === "Legend") return `Legend: ${describeLegend(panel)}`;
  const described = [panel.title, panel.subtitle.replaceAll("\n", ", "), scale ? describeScale(scale) : ""].filter(Boolean).join(". ");
  return `${described}. Arrow keys move, Enter opens, Escape leaves.`;
}

/** @param {PanelCanvas} canvas */
function zoomButtons(canvas) {
  const box = makeElement("span", "hw-zoom");
  const add = (/** @type {string} */ sign, /** @type {string} */ words, /** @type {number} */ steps) => {
    const button = /** @type {HTMLButtonElement} */ (box.appendChild(makeElement("button", "", sign)));
    button.type = "button";
    button.setAttribute("aria-label", words);
    button.addEventListener("click", () => canvas.zoom(steps));
  };
  add("−", "Smaller tiles", -1);
  add("+", "Larger tiles", 1);
  return box;
}

/** @param {string[][]} parts */
function textElements(parts) {
  return parts.filter(([, , text]) => text).map(([tag, className, text]) => makeElement(tag, className, text));
}

/** @param {string} tag @param {string} className @param {string} [text] */
function makeElement(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}
