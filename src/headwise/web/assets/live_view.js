// Which part of a map is in sight: a window of rows and columns, in tokens, that can be zoomed and moved.
//
// A view is {rows: [first, after the last], columns: [...]}; it never leaves the map and never has less than LEAST tokens a
// side. This module draws nothing.

const LEAST = 6;

/** The whole map of so many tokens. */
export function whole(tokens) {
  return {rows: [0, tokens], columns: [0, tokens]};
}

/** Nearer (factor under 1) or further, around a point: shares of the view's width and height. */
export function zoomed(view, factor, tokens, [x, y] = [0.5, 0.5]) {
  return {rows: stretched(view.rows, factor, y, tokens), columns: stretched(view.columns, factor, x, tokens)};
}

/** Moved by shares of the view. */
export function moved(view, across, down, tokens) {
  return {rows: shifted(view.rows, down, tokens), columns: shifted(view.columns, across, tokens)};
}

/** The part of a view between two corners, in shares of it. */
export function cut(view, [x0, y0], [x1, y1], tokens) {
  const part = ([first, last], from, to) => {
    const span = last - first;
    return fitted(first + Math.floor(Math.min(from, to) * span), first + Math.ceil(Math.max(from, to) * span), tokens);
  };
  return {rows: part(view.rows, y0, y1), columns: part(view.columns, x0, x1)};
}

/** Whether two views are the same. */
export function same(one, other) {
  return ["rows", "columns"].every((side) => one[side][0] === other[side][0] && one[side][1] === other[side][1]);
}

/** Which tokens get a label: every n-th, so that labels are `room` pixels apart at least. */
export function labelled([first, last], pixels, room) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((one) => (pixels / (last - first)) * one >= room) ?? 2000;
  const places = [];
  for (let place = Math.ceil(first / step) * step; place < last; place += step) places.push(place);
  return places;
}

function stretched([first, last], factor, share, tokens) {
  const span = last - first;
  const wide = Math.max(Math.min(LEAST, tokens), Math.round(span * factor));
  const start = Math.round(first + share * (span - wide));
  return fitted(start, start + wide, tokens);
}

function shifted([first, last], share, tokens) {
  const step = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * (last - first)));
  const start = Math.min(Math.max(first + (share ? step : 0), 0), tokens - (last - first));
  return [start, start + last - first];
}

/** A stretch of at least LEAST tokens inside the map. */
function fitted(first, last, tokens) {
  const wide = Math.min(Math.max(last - first, LEAST), tokens);
  const start = Math.min(Math.max(first, 0), tokens - wide);
  return [start, start + wide];
}
