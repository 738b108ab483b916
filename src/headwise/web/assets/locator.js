// Where in the model is this head? All heads as a small grid, layers from the top, this one in the accent colour; a click
// opens the head that was pointed at.

import {el} from "headwise/element";
import {colour, painted} from "headwise/theme";

const WIDTH = 200; // pixels at most
const TALLEST = 260;

/** A canvas; `opened(name)` hears of a click. The links to the heads beside are what a keyboard uses. */
export function locator({layer, head, layers, heads}, opened) {
  const step = Math.max(2, Math.min(Math.floor(WIDTH / heads), Math.floor(TALLEST / layers), 12));
  const gap = step > 4 ? 1 : 0.5;
  const canvas = el("canvas", {width: 2 * step * heads, height: 2 * step * layers, class: "locator", "aria-hidden": "true"});
  canvas.style.width = `${step * heads}px`;
  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (place, size, count) => Math.min(count - 1, Math.max(0, Math.floor((place / size) * count)));
    return `L${at(event.clientY - box.top, box.height, layers)}H${at(event.clientX - box.left, box.width, heads)}`;
  };
  canvas.addEventListener("click", (event) => opened(cell(event)));
  canvas.addEventListener("mousemove", (event) => {
    canvas.title = cell(event);
  });
  return painted(canvas, () => {
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, step * heads, step * layers);
    context.fillStyle = colour("line");
    for (let row = 0; row < layers; row++) {
      for (let column = 0; column < heads; column++) context.fillRect(column * step, row * step, step - gap, step - gap);
    }
    context.fillStyle = colour("accent");
    context.fillRect(head * step - 1, layer * step - 1, step + 2 - gap, step + 2 - gap);
  });
}
