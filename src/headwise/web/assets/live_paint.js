// What stands on the canvas of a large map: the weights as a picture, and the tokens along both sides.
//
// A weight is coloured by its size from 0 to 1, by its square root, or against the largest in sight, so that small weights
// are seen; what the mask hides stays clear. Tokens are written as densely as can be read, every n-th where there are too many; those of the answer in the
// accent colour. This module knows no events.

import {shown} from "headwise/head_patterns";
import {parse} from "headwise/ink";
import {labelled} from "headwise/live_view";
import {colourAt} from "headwise/scale";

export const LEFT = 104; // room for the tokens that look
export const TOP = 92; // and for those that are looked at
const FONT = 11;
const ROOM = 13; // pixels between two labels
const LONGEST = 13; // letters

/** Ways to colour weights: a name for the reader, and the share of the scale for a weight, given the largest in sight. */
export const COLOURINGS = {
  plain: ["from 0 to 1", (weight) => weight],
  root: ["by the square root", (weight) => Math.sqrt(weight)],
  sight: ["against the largest in sight", (weight, most) => weight / most],
};

/** The largest weight of a window. */
export function largest({values}) {
  let most = 0;
  for (const weight of values) if (weight > most) most = weight; // NaN is never larger
  return most;
}

/** The weights of a window as a canvas, a dot a cell. */
export function pictureOf({high, wide, values}, scale, colouring) {
  const canvas = new OffscreenCanvas(wide, high);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(wide, high);
  const dots = new Uint32Array(image.data.buffer);
  const colours = Uint32Array.from({length: 256}, (_, level) => {
    const [red, green, blue] = parse(colourAt(scale, level / 255));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
  const share = COLOURINGS[colouring][1];
  const most = largest({values}) || 1;
  for (let place = 0; place < values.length; place += 1) {
    if (!Number.isNaN(values[place])) dots[place] = colours[Math.min(255, Math.round(share(values[place], most) * 255))];
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** The tokens of the window in sight, at the left and above. */
export function paintLabels(pen, ink, {look, side, view}) {
  pen.font = `${FONT}px ${ink.sans}`;
  pen.textBaseline = "middle";
  const colour = (place) => (look.tokens[place].generated ? ink.accent : ink.inkSoft);
  const middle = (place, [first, last]) => ((place - first + 0.5) * side) / (last - first);
  pen.textAlign = "right";
  for (const place of labelled(view.rows, side, ROOM)) {
    pen.fillStyle = colour(place);
    pen.fillText(short(look.tokens[place].text), LEFT - 6, TOP + middle(place, view.rows));
  }
  pen.textAlign = "left";
  for (const place of labelled(view.columns, side, ROOM)) {
    pen.save();
    pen.fillStyle = colour(place);
    pen.translate(LEFT + middle(place, view.columns), TOP - 6);
    pen.rotate(-Math.PI / 2);
    pen.fillText(short(look.tokens[place].text), 0, 0);
    pen.restore();
  }
}

function short(token) {
  const text = shown(token);
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
