// The pattern view in the browser: a grid of small attention maps, one large with its tokens, weights under the pointer.
//
// The model's state comes from Python (pattern_view.py): tiles are bytes, 0 to 254 on the colour scale and 255 masked; `large` is the
// chosen head's map in float32, NaN masked. Choosing a head sets `chosen`, and Python responds with `large`; until then, or where no
// kernel runs, the tile is shown instead, and says so.
//
// Everything is drawn on canvases inside a shadow root: styles neither leak in nor out, text has the notebook's colour. Tokens are
// data: they are written by textContent and fillText only. Arrow keys move, Enter opens; both canvases take focus. This file imports
// nothing and fetches nothing.

const MASKED = 255,
  LEVELS = 254,
  GREY = [214, 214, 214];
const STYLE = `
  :host { display: block; font: 13px/1.45 system-ui, sans-serif; color: inherit; }
  .row { display: flex; gap: 28px; flex-wrap: wrap; align-items: flex-start; }
  .row > div { min-width: 0; max-width: 100%; }
  .scroll { position: relative; overflow: auto; max-height: 580px; max-width: 100%; }
  canvas { display: block; outline-offset: 2px; cursor: crosshair; }
  canvas:focus-visible { outline: 2px solid #3b7dd8; }
  .box { position: absolute; pointer-events: none; box-sizing: border-box; border: 2px solid #e0592a; display: none; }
  .box.pointer { border: 1px solid currentColor; }
  .head { margin: 0 0 6px; font-weight: 600; }
  .quiet { opacity: .7; font-weight: 400; margin-left: .7em; }
  .reading { min-height: 1.5em; margin: 6px 0; font-variant-numeric: tabular-nums; white-space: pre-wrap; }
  .scale { display: flex; gap: 8px; align-items: center; margin: 6px 0; opacity: .85; }
  .tokens { max-width: 560px; max-height: 180px; overflow: auto; line-height: 1.8; white-space: pre-wrap; }
  .tokens span { border-radius: 2px; padding: 1px 0; cursor: default; }
  .tokens span.query { outline: 1.5px solid #e0592a; }`;

export default {render};

function render({model, el}) {
  const page = build(el);
  const state = {model, page, palette: palette(model.get("colours")), at: 0, query: null, key: null, pinned: false};
  const redraw = () => {
    drawGrid(state);
    drawLarge(state);
  };
  listen(state);
  const reopen = () => drawLarge(state);
  const listeners = {tiles: redraw, names: redraw, chosen: reopen, large: reopen, large_of: reopen};
  for (const [name, act] of Object.entries(listeners)) model.on(`change:${name}`, act);
  drawScale(state);
  redraw();
  return () => {
    for (const [name, act] of Object.entries(listeners)) model.off(`change:${name}`, act);
  };
}

// ---- the page ------------------------------------------------------------------------------------------------------

function build(el) {
  const root = el.shadowRoot || el.attachShadow({mode: "open"});
  root.replaceChildren(make("style", {textContent: STYLE}));
  const page = {
    host: el,
    title: make("p", {className: "head"}),
    grid: make("canvas", {tabIndex: 0}),
    mark: make("div", {className: "box"}),
    pointer: make("div", {className: "box pointer"}),
    bar: make("canvas", {width: 128, height: 10}),
    low: make("span"),
    top: make("span"),
    name: make("p", {className: "head"}),
    large: make("canvas", {tabIndex: 0}),
    cell: make("div", {className: "box"}),
    reading: make("p", {className: "reading"}),
    tokens: make("div", {className: "tokens"}),
  };
  page.grid.setAttribute("role", "application");
  page.grid.setAttribute("aria-label", "Attention maps of all heads: arrow keys move, Enter opens one");
  page.large.setAttribute("role", "application");
  page.large.setAttribute("aria-label", "The open head's attention map: arrow keys move over queries and keys");
  page.reading.setAttribute("aria-live", "polite");
  const left = make(
    "div",
    {},
    make("div", {className: "scroll"}, page.grid, page.mark, page.pointer),
    make("div", {className: "scale"}, page.low, page.bar, page.top),
  );
  const right = make("div", {}, page.name, make("div", {className: "scroll"}, page.large, page.cell), page.reading, page.tokens);
  root.append(page.title, make("div", {className: "row"}, left, right));
  return page;
}

function make(tag, set = {}, ...children) {
  const element = Object.assign(document.createElement(tag), set);
  element.append(...children);
  return element;
}

function listen(state) {
  const {grid, large} = state.page;
  grid.addEventListener("pointermove", (event) => outlineHeads(state, headAt(state, event)));
  grid.addEventListener("pointerleave", () => outlineHeads(state, null));
  grid.addEventListener("click", (event) => {
    const head = headAt(state, event);
    if (head !== null) choose(state, head);
  });
  grid.addEventListener("keydown", (event) => onGridKey(state, event));
  large.addEventListener("pointermove", (event) => {
    if (!state.pinned) showCell(state, ...cellAt(state, event));
  });
  large.addEventListener("click", (event) => {
    state.pinned = !state.pinned;
    showCell(state, ...cellAt(state, event));
  });
  large.addEventListener("keydown", (event) => onMapKey(state, event));
}

// ---- the grid of small maps ----------------------------------------------------------------------------------------

function layout({model}) {
  const side = model.get("side"),
    columns = model.get("columns"),
    count = model.get("names").length;
  const zoom = Math.max(1, Math.round(26 / side)),
    cell = side * zoom + 2,
    named = model.get("grid")[0] !== "";
  return {side, columns, rows: Math.ceil(count / columns), count, zoom, cell, left: named ? 26 : 0, above: named ? 32 : 0};
}

function drawGrid(state) {
  const {model, page} = state,
    at = layout(state),
    bytes = typedCopy(model.get("tiles"), Uint8Array);
  page.title.textContent = model.get("title") || "Attention maps";
  page.title.append(make("span", {className: "quiet", textContent: `${at.count} heads, ${model.get("labels").length} tokens`}));
  const context = resizeCanvas(page.grid, at.left + at.columns * at.cell, at.above + at.rows * at.cell);
  const sheet = new OffscreenCanvas(at.side, at.side),
    tileContext = sheet.getContext("2d"),
    area = at.side * at.side;
  context.imageSmoothingEnabled = false;
  for (let head = 0; head < at.count; head++) {
    tileContext?.putImageData(toImage(bytes.subarray(head * area, (head + 1) * area), at.side, state.palette), 0, 0);
    const [x, y] = corner(at, head);
    context.drawImage(sheet, x, y, at.side * at.zoom, at.side * at.zoom);
  }
  drawGridLabels(context, state, at);
  outlineHeads(state, null);
}

function drawGridLabels(context, {model, page}, at) {
  const [rows, columns] = model.get("grid");
  if (!rows) return;
  context.fillStyle = getComputedStyle(page.host).color;
  context.font = "11px system-ui, sans-serif";
  context.fillText(columns, at.left, 11);
  const across = Math.max(1, Math.ceil(22 / at.cell)),
    down = Math.max(1, Math.ceil(14 / at.cell));
  context.textAlign = "center";
  for (let i = 0; i < at.columns; i += across) context.fillText(String(i), at.left + (i + 0.5) * at.cell, at.above - 6);
  context.textAlign = "right";
  for (let i = 0; i < at.rows; i += down) context.fillText(String(i), at.left - 6, at.above + (i + 0.5) * at.cell + 4);
  context.textAlign = "left";
  context.fillText(rows, 0, at.above - 6, at.left - 2);
}

const corner = (at, head) => [at.left + (head % at.columns) * at.cell, at.above + Math.floor(head / at.columns) * at.cell];

function headAt(state, event) {
  const at = layout(state),
    x = Math.floor((event.offsetX - at.left) / at.cell),
    y = Math.floor((event.offsetY - at.above) / at.cell);
  const head = y * at.columns + x;
  return x < 0 || y < 0 || x >= at.columns || head >= at.count ? null : head;
}

function outlineHeads(state, head) {
  const at = layout(state),
    names = state.model.get("names");
  placeBox(state.page.pointer, head === null ? null : [...corner(at, head), at.cell - 2]);
  state.page.grid.title = head === null ? "" : names[head];
  const open = names.indexOf(state.model.get("chosen"));
  placeBox(state.page.mark, open < 0 ? null : [...corner(at, open), at.cell - 2]);
}

function placeBox(box, rect) {
  box.style.display = rect ? "block" : "none";
  if (rect)
    Object.assign(box.style, {
      left: `${rect[0] - 2}px`,
      top: `${rect[1] - 2}px`,
      width: `${rect[2] + 4}px`,
      height: `${(rect[3] ?? rect[2]) + 4}px`,
    });
}

function choose(state, head) {
  state.at = head;
  state.query = state.key = null;
  state.pinned = false;
  state.model.set("chosen", state.model.get("names")[head]);
  state.model.save_changes();
  drawLarge(state);
}

function onGridKey(state, event) {
  const at = layout(state),
    moves = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -at.columns, ArrowDown: at.columns};
  if (event.key === "Enter") choose(state, state.at);
  else if (event.key in moves) {
    const next = state.at + moves[event.key];
    if (next >= 0 && next < at.count) state.at = next;
    outlineHeads(state, state.at);
    state.page.reading.textContent = state.model.get("names")[state.at];
  } else return;
  event.preventDefault();
}

// ---- one map, large ------------------------------------------------------------------------------------------------

// The chosen head's weights: the whole map from Python, or the tile's levels.
function weights({model}) {
  const name = model.get("chosen"),
    count = model.get("labels").length;
  if (model.get("large_of") === name && name) return {size: count, values: typedCopy(model.get("large"), Float32Array), whole: true};
  const side = model.get("side"),
    head = Math.max(model.get("names").indexOf(name), 0),
    high = model.get("high");
  const levels = typedCopy(model.get("tiles"), Uint8Array).subarray(head * side * side, (head + 1) * side * side);
  return {size: side, values: Float32Array.from(levels, (level) => (level === MASKED ? NaN : (level / LEVELS) * high)), whole: false};
}

function drawLarge(state) {
  const {model, page} = state,
    seen = weights(state),
    labelled = seen.size === model.get("labels").length;
  const cell = Math.min(Math.max(Math.floor(460 / seen.size), 1), 22),
    written = labelled && cell >= 10;
  const margin = written ? 86 : 0,
    high = model.get("high");
  const context = resizeCanvas(page.large, margin + seen.size * cell + 1, margin + seen.size * cell + 1);
  const levels = Uint8Array.from(seen.values, (value) =>
    Number.isNaN(value) ? MASKED : Math.round(Math.min(Math.max(value / high, 0), 1) * LEVELS),
  );
  const sheet = new OffscreenCanvas(seen.size, seen.size);
  sheet.getContext("2d")?.putImageData(toImage(levels, seen.size, state.palette), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(sheet, margin, margin, seen.size * cell, seen.size * cell);
  if (written) writeTokens(context, state, margin, cell);
  page.name.textContent = model.get("chosen");
  page.name.append(
    make("span", {
      className: "quiet",
      textContent: seen.whole ? "rows are queries, columns are keys" : "from the small map: no kernel is running",
    }),
  );
  Object.assign(state, {seen, cell, margin, labelled});
  outlineHeads(state, null);
  fillTokens(state);
  showCell(state, state.query, state.key);
}

function writeTokens(context, {model, page}, margin, cell) {
  context.fillStyle = getComputedStyle(page.host).color;
  context.font = `${Math.min(cell - 1, 12)}px system-ui, sans-serif`;
  model.get("labels").forEach((label, index) => {
    const middle = margin + (index + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(short(label), margin - 5, middle + cell / 4, margin - 6);
    context.save();
    context.translate(middle + cell / 4, margin - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(short(label), 0, 0, margin - 6);
    context.restore();
  });
}

const visible = (label) => label.replaceAll("\n", "\\n").replaceAll("\t", "\\t");
const short = (label) => {
  const text = visible(label).trim() || "␣";
  return text.length > 13 ? `${text.slice(0, 12)}…` : text;
};

function cellAt({seen, cell, margin}, event) {
  const query = Math.floor((event.offsetY - margin) / cell),
    key = Math.floor((event.offsetX - margin) / cell);
  const inside = query >= 0 && key >= 0 && query < seen.size && key < seen.size;
  return inside ? [query, key] : [null, null];
}

function showCell(state, query, key) {
  const {page, seen, cell, margin} = state;
  Object.assign(state, {query, key});
  placeBox(page.cell, query === null ? null : [margin + key * cell, margin + query * cell, cell]);
  page.reading.textContent = query === null ? "Point at a cell to read its query, key and weight." : sentence(state, query, key);
  shadeTokens(state, query, seen);
}

function sentence({model, seen, labelled}, query, key) {
  const labels = model.get("labels"),
    weight = seen.values[query * seen.size + key];
  const token = (index) => (labelled ? `${index} “${visible(labels[index])}”` : `segment ${index}`);
  const most = !seen.whole && weight >= model.get("high") ? "at least " : "";
  const text = Number.isNaN(weight) ? "masked" : `weight ${most}${weight.toPrecision(3)}`;
  return `query ${token(query)} → key ${token(key)}: ${text}`;
}

function onMapKey(state, event) {
  const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
  if (!(event.key in moves)) return;
  event.preventDefault();
  const [down, across] = moves[event.key],
    last = state.seen.size - 1,
    within = (index) => Math.min(Math.max(index, 0), last);
  state.pinned = true;
  showCell(state, within((state.query ?? -down) + down), within((state.key ?? -across) + across));
}

// ---- the text, shaded by the attention of one of its tokens --------------------------------------------------------------

function fillTokens(state) {
  const labels = state.labelled && state.model.get("labels").length <= 800 ? state.model.get("labels") : [];
  if (labels.join("\0") === state.written) return;
  state.written = labels.join("\0");
  state.page.tokens.replaceChildren(
    ...labels.map((label, index) => {
      const span = make("span", {textContent: visible(label)});
      span.addEventListener("pointerenter", () => {
        if (!state.pinned) showCell(state, index, index);
      });
      span.addEventListener("click", () => {
        state.pinned = true;
        showCell(state, index, index);
      });
      return span;
    }),
  );
}

function shadeTokens({model, page}, query, seen) {
  [...page.tokens.children].forEach((span, index) => {
    const weight = query === null ? 0 : seen.values[query * seen.size + index] || 0;
    span.style.background = weight > 0 ? `rgba(59, 125, 216, ${Math.min(weight / model.get("high"), 1) * 0.75})` : "";
    span.className = index === query ? "query" : "";
  });
}

// ---- colours and bytes ---------------------------------------------------------------------------------------------

function palette(stops) {
  const colours = stops.map((stop) => [1, 3, 5].map((index) => parseInt(stop.slice(index, index + 2), 16)));
  const table = Array.from({length: LEVELS + 1}, (_, level) => {
    const at = (level / LEVELS) * (colours.length - 1),
      low = Math.min(Math.floor(at), colours.length - 2);
    return colours[low].map((channel, index) => channel + (colours[low + 1][index] - channel) * (at - low));
  });
  return [...table, GREY]; // the last entry is for masked cells
}

function toImage(levels, side, colours) {
  const pixels = new Uint8ClampedArray(4 * levels.length);
  levels.forEach((level, index) => {
    pixels.set(colours[level], 4 * index);
    pixels[4 * index + 3] = 255;
  });
  return new ImageData(pixels, side, side);
}

function drawScale({model, page, palette: colours}) {
  const context = page.bar.getContext("2d"),
    width = page.bar.width;
  for (let x = 0; x < width; x++) {
    context.fillStyle = `rgb(${colours[Math.round((x / (width - 1)) * LEVELS)].join(" ")})`;
    context.fillRect(x, 0, 1, page.bar.height);
  }
  page.low.textContent = "0";
  page.top.textContent = `${model.get("high")} attention weight (grey: masked)`;
}

function resizeCanvas(canvas, width, height) {
  const sharp = window.devicePixelRatio || 1,
    context = canvas.getContext("2d");
  Object.assign(canvas, {width: width * sharp, height: height * sharp});
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  context.scale(sharp, sharp);
  return context;
}

// Bytes from anywidget (a DataView), copied: a Float32Array must start at a multiple of four bytes.
function typedCopy(view, type) {
  if (!view || !view.byteLength) return new type(0);
  const copy = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return new type(copy);
}
