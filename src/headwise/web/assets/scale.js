// A colour scale of a payload: which colour means which number.
//
//   share = (value - low) / (high - low), or of the logarithms
//   colour = the stops of the payload at that share, in straight lines between them
//
// What lies beyond an end gets the colour of the end; that this happens is written on the colour bar (its ticks carry a
// plus) and never hidden in a tooltip, which tells the number itself. NaN (null) has no colour: it is a texture.

import {hex, parse} from "headwise/ink";

const LEVELS = 256;

/** How far along the scale a number lies: 0 at the low end, 1 at the high end, beyond both where it is. */
export function shareOf(scale, value) {
  if (scale.log) return Math.log(Math.max(value, scale.low * 1e-9) / scale.low) / Math.log(scale.high / scale.low);
  return (value - scale.low) / (scale.high - scale.low);
}

/** The colour at a share. */
export function colourAt(scale, share) {
  return levelsOf(scale)[Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))];
}

/** A function from numbers to colours, for many of them. */
export function colouring(scale) {
  const levels = levelsOf(scale);
  return (value) => levels[Math.round(Math.min(Math.max(shareOf(scale, value), 0), 1) * (LEVELS - 1))];
}

/** The colours of a scale in 256 equal steps, as `#rrggbb`. */
export function levelsOf(scale) {
  if (!known.has(scale)) {
    const stops = scale.stops.map(parse);
    known.set(scale, Array.from({length: LEVELS}, (_, level) => hex(between(stops, level / (LEVELS - 1)))));
  }
  return known.get(scale);
}

const known = new WeakMap();

function between(stops, share) {
  const place = share * (stops.length - 1);
  const first = Math.min(Math.floor(place), stops.length - 2);
  return stops[first].map((channel, index) => channel + (stops[first + 1][index] - channel) * (place - first));
}
