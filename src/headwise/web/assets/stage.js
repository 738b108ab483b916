// One panel on the page: a canvas for what is drawn, a second over it for what is pointed at, and the reader's hands.
//
// Moving the pointer never draws the panel again, only the second canvas. Pointer, touch and keyboard end in the same
// three messages to the figure: look(place, point), leave(), pick(place). The first tap on a cell looks, the second picks.

import {CanvasPen} from "headwise/pen";
import {kindOf} from "headwise/kinds";
import {ZOOMS} from "headwise/tiles";

const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0],
  PageUp: [0, -10], PageDown: [0, 10]};

export class Stage {
  constructor(panel, words, hands) {
    this.kind = kindOf(panel);
    this.hands = hands;
    this.place = null;
    this.element = document.createElement("div");
    this.element.className = "hw-stage";
    this.base = this.element.appendChild(document.createElement("canvas"));
    this.over = this.element.appendChild(document.createElement("canvas"));
    this.element.setAttribute("aria-label", words);
    if (!this.kind.at) {
      this.element.setAttribute("role", "img");
      return;
    }
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "application");
    this.element.setAttribute("aria-roledescription", "interactive figure");
    this.#listen();
    if (this.kind.contentSize) this.#addWindow();
  }

  /** Take this room and draw. */
  settle(slot, ink) {
    const {zoom, scroll} = this.slot ?? {};
    this.slot = {...slot, zoom, scroll};
    this.ink = ink;
    Object.assign(this.element.style, {width: `${slot.width}px`, height: `${slot.height}px`});
    this.#settleWindow();
    this.paint();
    this.kind.prepare?.(slot.panel).then(() => this.paint());
  }

  paint(ink = this.ink, ratio = devicePixelRatio || 1) {
    const {width, height, sans} = this.slot;
    this.kind.paint(new CanvasPen(this.base, width, height, ratio, sans), this.slot, ink);
    this.mark(this.marked ?? null, this.strong);
  }

  /** Outline a place (null: none); `strong` where the reader is. */
  mark(place, strong = false) {
    this.marked = place;
    this.strong = strong;
    if (!this.slot) return; // not on the page yet
    const {width, height, sans} = this.slot;
    if (!this.pen || this.pen.width !== width || this.pen.height !== height || this.pen.ratio !== devicePixelRatio) {
      this.pen = Object.assign(new CanvasPen(this.over, width, height, devicePixelRatio || 1, sans), {width, height});
    }
    this.pen.context.clearRect(0, 0, width, height);
    if (place) this.kind.outline(this.pen, this.slot, place, this.ink, strong);
  }

  /** A point of the window where a place is told. */
  pointOf(place) {
    const {left, top} = this.element.getBoundingClientRect();
    const {x, y} = this.kind.anchor(this.slot, place);
    return {x: left + x, y: top + y};
  }

  /** Make tiles larger or smaller by steps. */
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
      if (element.matches(":focus-visible")) this.#look(this.place ?? this.kind.start(this.slot));
    });
    element.addEventListener("blur", () => this.#leave());
  }

  #point(event) {
    const {left, top} = this.element.getBoundingClientRect();
    const place = this.kind.at(this.slot, event.clientX - left, event.clientY - top);
    this.element.title = place ? "" : this.kind.hint?.(this.slot, event.clientX - left, event.clientY - top) ?? "";
    if (place) this.#look(place, {x: event.clientX, y: event.clientY});
    else this.#leave();
    return place;
  }

  #click(event) {
    const before = this.told;
    const place = this.#point(event);
    if (!place) return;
    const again = before && JSON.stringify(this.#plain(before)) === JSON.stringify(this.#plain(place));
    if (event.pointerType !== "touch" || again) this.hands.pick(this, place);
  }

  #plain({inside, ...place}) {
    return place;
  }

  #press(event) {
    if (event.key === "Escape") {
      this.#leave();
      this.element.blur();
      return;
    }
    const place = this.place ?? this.kind.start(this.slot);
    if (!place) return; // nothing to look at
    if (event.key === "Enter" || event.key === " ") this.hands.pick(this, place);
    else if (event.key in ARROWS && !event.altKey && !event.metaKey) this.#step(this.kind.move(this.slot, place, ...ARROWS[event.key]));
    else return;
    event.preventDefault();
  }

  #step(place) {
    if (this.window) {
      const {x, y} = this.kind.scrollTo(this.slot, place);
      this.window.scrollTo(x, y);
      this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
    }
    this.#look(place);
  }

  #look(place, point = null) {
    if (!place) return;
    this.place = this.told = place;
    this.hands.look(this, place, point);
  }

  #leave() {
    this.told = null;
    this.hands.leave(this);
  }

  /** A window over the data area that scrolls: the browser's own bars, the canvas below follows. */
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
    const {width, height} = this.kind.contentSize(this.slot);
    Object.assign(this.window.style, {left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px`});
    Object.assign(this.window.firstChild.style, {width: `${width}px`, height: `${height}px`});
    this.slot.scroll = {x: this.window.scrollLeft, y: this.window.scrollTop};
  }
}
