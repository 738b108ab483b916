// The tooltip next to the pointer, one per figure, always inside the window.
//
// Its content is set as text: a token may look like markup and stays what it is.

const OFFSET = 14; // pixels from the pointer
const EDGE_MARGIN = 6; // pixels from the window's edges

export class Tooltip {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.box = root.appendChild(document.createElement("div"));
    this.box.className = "hw-tooltip";
    this.box.setAttribute("role", "presentation");
    this.box.hidden = true;
  }

  /**
   * Show content near a point of the window. `hint` says what a click does.
   * @param {TooltipContent} content
   * @param {number} x
   * @param {number} y
   * @param {string} [hint]
   */
  show(content, x, y, hint = "") {
    this.box.replaceChildren(...this.#lines(content, hint));
    this.box.hidden = false;
    this.moveTo(x, y);
  }

  /**
   * Move next to a point, inside the window.
   * @param {number} x
   * @param {number} y
   */
  moveTo(x, y) {
    const {width, height} = this.box.getBoundingClientRect();
    const [right, bottom] = [innerWidth - EDGE_MARGIN - width, innerHeight - EDGE_MARGIN - height];
    const left = x + OFFSET > right ? x - OFFSET - width : x + OFFSET;
    const top = y + OFFSET > bottom ? y - OFFSET - height : y + OFFSET;
    this.box.style.left = `${Math.max(EDGE_MARGIN, Math.min(left, right))}px`;
    this.box.style.top = `${Math.max(EDGE_MARGIN, Math.min(top, bottom))}px`;
  }

  hide() {
    this.box.hidden = true;
  }

  /** @param {TooltipContent} tooltipContent @param {string} hint */
  #lines({name, caption, rows}, hint) {
    const table = makeDiv("div", "hw-tooltip-rows");
    for (const [label, value, colour] of rows) {
      const key = makeDiv("span", "hw-tooltip-label", label);
      if (colour) {
        const swatch = key.insertBefore(makeDiv("i", "hw-tooltip-swatch"), key.firstChild);
        swatch.style.background = colour;
      }
      table.append(key, makeDiv("span", "hw-tooltip-value", value));
    }
    const lines = [makeDiv("div", "hw-tooltip-name", name), makeDiv("div", "hw-tooltip-caption", caption), table];
    if (hint) lines.push(makeDiv("div", "hw-tooltip-hint", hint));
    return lines;
  }
}

/** @param {string} tag @param {string} className @param {string} [text] */
function makeDiv(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}
