// A figure on the page: `draw(element, payload, options)` is the only entry.
//
// The payload is what Python's `to_payload` wrote: panels, scales, notes; numbers and no ink. Panels stand in a grid that
// has fewer columns in a narrow window. Pointing at a cell tells it, and outlines the same cell (the same head) in all
// other panels; arrows do the same from the keyboard, and what is told is spoken. Enter or a click picks it.
//
// Cost: an 80 x 64 profile (eleven maps of 5,120 cells) is drawn once, in 0.12 to 0.25 s on two busy cores; pointing draws
// only outlines (2 to 4 ms). It is drawn again when its width or the theme changes, and for print with ink for white paper.

import {BAR, marksOf, paintBar, pointAt, scaleInWords} from "headwise/bar";
import {CanvasPen} from "headwise/pen";
import {dress} from "headwise/dress";
import {GAP, TOP, layOut} from "headwise/layout";
import {inkOf, paperInk} from "headwise/ink";
import {inWords} from "headwise/telling";
import {Stage} from "headwise/stage";
import {spoken} from "headwise/legend";
import {Tooltip} from "headwise/tooltip";

/**
 * Draw a figure into an element, in place of what is there.
 *
 * onhead(name) is called when a cell that is a head is picked ("L12H3"); onpick({panel, place, name, head, value}) for
 * anything that is picked. describe is the figure in words, for who cannot see it (else the payload's own). heading and
 * notes say whether the figure's title and its notes are written.
 * Gives {point(head), redraw(), remove()}.
 */
export function draw(element, payload, {onhead = null, onpick = null, describe = "", heading = true, notes = true} = {}) {
  homes.get(element)?.remove();
  const drawn = new Drawn(element, payload, {onhead, onpick, describe, heading, notes});
  homes.set(element, drawn);
  return {point: (head) => drawn.point(head), redraw: () => drawn.redraw(), remove: () => drawn.remove()};
}

const homes = new WeakMap(); // what is drawn in an element: one figure, whose observers end with it

class Drawn {
  constructor(element, payload, options) {
    Object.assign(this, {payload, options});
    dress(element);
    this.root = document.createElement("figure");
    this.root.className = "hw-figure";
    this.root.setAttribute("aria-label", payload.title);
    this.#build();
    element.replaceChildren(this.root);
    this.tooltip = new Tooltip(this.root);
    this.#watch();
    this.redraw();
  }

  /** Outline a head in all panels; null: none. */
  point(head) {
    for (const stage of this.stages) stage.mark(head && stage.slot && stage.kind.find ? stage.kind.find(stage.slot, head) : null);
  }

  redraw() {
    const width = Math.floor(this.root.clientWidth);
    if (width < 40) return; // not on the page yet: the observer calls again
    this.width = width;
    this.ink = inkOf(this.root);
    const {columns, widths, slots, shared} = layOut(this.payload, width, this.ink.sans);
    const tracks = shared ? [...widths, shared.width] : widths;
    this.grid.style.gridTemplateColumns = tracks.map((each) => `${each}px`).join(" ");
    this.grid.style.columnGap = `${GAP}px`;
    this.grid.toggleAttribute("data-wide", tracks.reduce((sum, each) => sum + each + GAP, -GAP) > width);
    this.stages.forEach((stage, index) => {
      const column = index % columns;
      const row = Math.floor(index / columns);
      stage.panel.style.gridColumn = `${column + 1}`;
      stage.panel.style.gridRow = `${2 * row + 1} / span 2`;
      stage.head.style.marginLeft = `${slots[index].box.x}px`;
      stage.settle(slots[index], this.ink);
    });
    this.#paintShared(shared, columns, slots);
  }

  remove() {
    this.observer.disconnect();
    this.themes.disconnect();
    this.stop.abort();
    this.root.remove();
  }

  look(stage, place, point) {
    const telling = stage.kind.tell(stage.slot, place);
    const address = stage.kind.addressOf(stage.slot, place);
    for (const other of this.stages) {
      if (other === stage) other.mark(place, true);
      else other.mark(address && other.kind.find ? other.kind.find(other.slot, address) : null);
    }
    this.sharedBar?.(this.ink, stage.slot.scale ? telling.value : null);
    const opens = telling.head && this.options.onhead;
    stage.element.toggleAttribute("data-opens", Boolean(opens));
    const {x, y} = point ?? stage.pointOf(place);
    this.tooltip.show(telling, x, y, opens ? `${point ? "Click" : "Enter"} opens ${telling.head}` : "");
    this.followed = point ? null : {stage, place};
    if (!point) this.live.textContent = inWords(telling);
  }

  leave() {
    this.followed = null;
    this.tooltip.hide();
    this.sharedBar?.(this.ink, null);
    this.point(null);
  }

  pick(stage, place) {
    const {name, head, value} = stage.kind.tell(stage.slot, place);
    this.options.onpick?.({panel: stage.slot.panel.key, place, name, head, value});
    if (head) this.options.onhead?.(head);
  }

  #build() {
    const {payload, options} = this;
    if (options.heading) this.root.append(...texts([["div", "hw-title", payload.title], ["p", "hw-subtitle", payload.subtitle]]));
    const words = options.describe || payload.alt;
    if (words) this.root.append(part("p", "hw-unseen", words));
    this.grid = this.root.appendChild(part("div", "hw-grid"));
    this.stages = payload.panels.map((panel) => this.#panel(panel));
    this.shared = this.grid.appendChild(part("div", "hw-shared"));
    this.shared.append(document.createElement("canvas"));
    this.live = this.root.appendChild(part("div", "hw-unseen"));
    this.live.setAttribute("aria-live", "polite");
    if (options.notes) {
      const box = this.root.appendChild(part("div", "hw-notes"));
      box.append(...texts([...payload.notes, payload.provenance].map((note) => ["p", "", note])));
    }
  }

  #panel(panel) {
    const box = this.grid.appendChild(part("div", "hw-panel"));
    const head = box.appendChild(part("div", "hw-panel-head"));
    const titled = panel.type !== "Legend";
    if (titled) head.append(...texts([["div", "hw-panel-title", panel.title], ["div", "hw-panel-subtitle", panel.subtitle]]));
    const stage = new Stage(panel, wordsFor(panel, this.payload.scales[panel.scale]), this);
    if (stage.window) head.firstChild?.append(zoomButtons(stage));
    box.append(stage.element);
    return Object.assign(stage, {panel: box, head});
  }

  #paintShared(shared, columns, slots) {
    this.shared.hidden = !shared;
    this.sharedBar = null;
    if (!shared) return;
    const height = Math.min(Math.max(slots[0].box.height, 120), 320);
    const [width, canvas] = [shared.width, this.shared.firstChild];
    this.shared.style.gridColumn = `${columns + 1}`;
    this.shared.style.gridRow = `2 / span ${2 * Math.ceil(slots.length / columns) - 1}`;
    const bar = {x: 8, y: TOP, width: BAR, height};
    this.shared.title = marksOf(shared.scale);
    this.sharedBar = (ink, value, ratio = devicePixelRatio || 1) => {
      const pen = new CanvasPen(canvas, width, height + 2 * TOP, ratio, ink.sans);
      paintBar(pen, bar, shared.scale, shared.scale.label, ink, ink.sans);
      if (value !== null) pointAt(pen, bar, shared.scale, value, ink);
    };
    this.sharedBar(this.ink, null);
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

  /** After a scroll: what the keyboard looks at keeps its tooltip, what the pointer looked at is elsewhere now. */
  #follow() {
    if (!this.followed) this.tooltip.hide();
    else this.tooltip.place(...Object.values(this.followed.stage.pointOf(this.followed.place)));
  }

  #print() {
    const ink = paperInk(this.ink?.sans);
    for (const stage of this.stages) if (stage.slot) stage.paint(ink, 3);
    this.sharedBar?.(ink, null, 3);
  }
}

function wordsFor(panel, scale) {
  if (panel.type === "Legend") return `Legend: ${spoken(panel)}`;
  const told = [panel.title, panel.subtitle.replaceAll("\n", ", "), scale ? scaleInWords(scale) : ""].filter(Boolean).join(". ");
  return `${told}. Arrow keys move, Enter opens, Escape leaves.`;
}

function zoomButtons(stage) {
  const box = part("span", "hw-zoom");
  for (const [sign, words, steps] of [["−", "Smaller tiles", -1], ["+", "Larger tiles", 1]]) {
    const button = box.appendChild(part("button", "", sign));
    button.type = "button";
    button.setAttribute("aria-label", words);
    button.addEventListener("click", () => stage.zoom(steps));
  }
  return box;
}

function texts(parts) {
  return parts.filter(([, , text]) => text).map(([tag, className, text]) => part(tag, className, text));
}

function part(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}
