// Loading data and running jobs: loadData("study/profile") is a Promise of the JSON at that path.
//
// In a report the data are JSON elements in the page, long ones compressed (zlib, base64), heads bundled by layer. The explorer
// requests /api/ATLAS/PATH. Either way a path is loaded once and cached, and failures are Errors with a readable message.
//
//     const job = startJob("live/run", {text}, (event) => show(event.stage, event.share));
//     await job.result;      job.cancel();
//
// A job is one request whose response is a stream of JSON lines: progress and tokens first, the result last. Cancelling closes the request; the
// server then stops at the next layer or token. This module does not know what the data mean.

import {inflate} from "headwise/pixels";
import {served, settings} from "headwise/settings";

/** @type {Map<string, Promise<any>>} */
const cache = new Map();
/** @type {Map<string | undefined, HTMLElement> | null} */
let blocks = null;

/**
 * The data at a path.
 * @param {string} path
 * @param {string} [atlas]
 */
export function loadData(path, atlas = settings.atlas) {
  const key = `${atlas} ${path}`;
  if (!cache.has(key)) {
    const request = served ? fetchData(path, atlas) : readEmbedded(path);
    cache.set(key, request);
    request.catch(() => cache.delete(key));
  }
  return /** @type {Promise<any>} */ (cache.get(key));
}

/** @param {string} path @param {string} atlas */
async function fetchData(path, atlas) {
  const address = `/api/${encodeURIComponent(atlas)}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const answer = await fetch(address, {headers: {accept: "application/json"}});
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || body.detail || `The server answered ${answer.status} for ${path}.`);
  return body;
}

/** @param {string} path */
async function readEmbedded(path) {
  blocks ??= new Map(
    [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("script[data-path]"))].map((one) => [one.dataset.path, one]),
  );
  const block = blocks.get(path);
  if (block) return parseBlock(block);
  const bundle = layerBundle(path);
  const found = blocks.has(bundle) ? (await loadData(bundle))[path] : undefined;
  if (found === undefined) throw new Error(`There is nothing at ${path} in this report.`);
  return found;
}

/**
 * The bundle of a head: head/L12H3 is in the block "layer/12".
 * @param {string} path
 */
function layerBundle(path) {
  const head = /^head\/L(\d+)H\d+$/.exec(path);
  return head ? `layer/${head[1]}` : "";
}

/** @param {HTMLElement} block */
async function parseBlock(block) {
  if (!block.dataset.packed) return JSON.parse(block.textContent ?? "");
  return JSON.parse(new TextDecoder().decode(await inflate(block.textContent ?? "")));
}

const apiBase = `/api/${encodeURIComponent(settings.atlas)}`;

/**
 * Start a job: {result: Promise, cancel()}. `onProgress` receives every event before the last.
 * @param {string} path
 * @param {object} body
 * @param {(event: JobEvent) => void} [onProgress]
 */
export function startJob(path, body, onProgress = () => {}) {
  const stop = new AbortController();
  return {result: runJob(path, body, onProgress, stop.signal), cancel: () => stop.abort()};
}

/**
 * The JSON at a path now; never cached.
 * @param {string} path
 * @param {AbortSignal | undefined} [signal]
 */
export async function fetchStatus(path, signal = undefined) {
  const response = await fetch(`${apiBase}/${path}`, {headers: {accept: "application/json"}, cache: "no-store", signal});
  return checkResponse(response);
}

/**
 * The weights of one head: {rows, columns, row_starts, column_starts, values: Float32Array, high, wide}.
 * @param {string} look
 * @param {string} head
 * @param {View & {size: number}} view
 * @param {AbortSignal} signal
 */
export async function loadHeadMap(look, head, {rows, columns, size}, signal) {
  const query = new URLSearchParams({rows: rows.join(":"), columns: columns.join(":"), size: String(size)});
  const found = await fetchStatus(`live/run/${encodeURIComponent(look)}/head/${encodeURIComponent(head)}?${query}`, signal);
  const bytes = await inflate(found.weights.deflated);
  const [high, wide] = found.weights.shape;
  return {...found, high, wide, values: new Float32Array(bytes.buffer, bytes.byteOffset, high * wide)};
}

/** @param {string} path @param {object} body @param {(event: JobEvent) => void} onProgress @param {AbortSignal} signal */
async function runJob(path, body, onProgress, signal) {
  const response = await fetch(`${apiBase}/${path}`, {
    method: "POST",
    headers: {"content-type": "application/json"},
    body: JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (!response.ok) await checkResponse(response);
  const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const {value, done} = await reader.read();
    const lines = (waiting + (value ?? "")).split("\n");
    waiting = lines.pop() ?? "";
    for (const line of lines.filter(Boolean)) {
      const event = JSON.parse(line);
      if (event.event === "done") return event.result;
      if (event.event === "failed") throw new Error(sentence(event.error));
      onProgress(event);
    }
    if (done) throw new Error("The server ended before the result was there; it may have been stopped.");
  }
}

/** @param {Response} response */
async function checkResponse(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(sentence(body.error || `the server answered ${response.status}`));
  return body;
}

/**
 * A server error as a sentence.
 * @param {string} text
 */
function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(start) ? start : `${start}.`;
}
