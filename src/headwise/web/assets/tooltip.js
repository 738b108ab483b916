// The small box beside the pointer that says what a cell is. One a figure; it never leaves the window.
//
// Everything in it is text, set as text: a token may look like markup and stays what it is.

const AWAY = 14; // pixels from what it tells of
const EDGE = 6; // from the window's edges

export class Tooltip {
  constructor(root) {
    this.box = root.appendChild(document.createElement("div"));
    this.box.className = "hw-tooltip";
    this.box.setAttribute("role", "presentation");
    this.box.hidden = true;
  }

  /** Show a telling near a point of the window. `hint` is what can be done with it. */
  show(telling, x, y, hint = "") {
    this.box.replaceChildren(...this.#lines(telling, hint));
    this.box.hidden = false;
    this.place(x, y);
  }

  /** Stand beside a point of the window, inside of it. */
  place(x, y) {
    const {width, height} = this.box.getBoundingClientRect();
    const [right, bottom] = [innerWidth - EDGE - width, innerHeight - EDGE - height];
    const left = x + AWAY > right ? x - AWAY - width : x + AWAY;
    const top = y + AWAY > bottom ? y - AWAY - height : y + AWAY;
    this.box.style.left = `${Math.max(EDGE, Math.min(left, right))}px`;
    this.box.style.top = `${Math.max(EDGE, Math.min(top, bottom))}px`;
  }

  hide() {
    this.box.hidden = true;
  }

  #lines({name, caption, rows}, hint) {
    const table = part("div", "hw-tooltip-rows");
    for (const [label, value, colour] of rows) {
      const key = part("span", "hw-tooltip-label", label);
      if (colour) {
        const swatch = key.insertBefore(part("i", "hw-tooltip-swatch"), key.firstChild);
        swatch.style.background = colour;
      }
      table.append(key, part("span", "hw-tooltip-value", value));
    }
    const lines = [part("div", "hw-tooltip-name", name), part("div", "hw-tooltip-caption", caption), table];
    if (hint) lines.push(part("div", "hw-tooltip-hint", hint));
    return lines;
  }
}

function part(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}
