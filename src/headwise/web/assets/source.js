// Where do pages get their data? From one function: get("study/profile") is a Promise of what stands at that path.
//
// In a report the data are blocks of JSON in the page, the large ones packed (zlib, then base64); heads are bundled by layer.
// A served page asks /api/ATLAS/PATH. Either way a path is asked for once and kept, and what cannot be had is an Error whose
// message a reader can act on. This module does not know what the data mean.

import {served, settings} from "headwise/settings";

const kept = new Map();
let blocks = null;

/** What stands at a path. */
export function get(path, atlas = settings.atlas) {
  const key = `${atlas} ${path}`;
  if (!kept.has(key)) {
    const asked = served ? fetched(path, atlas) : embedded(path);
    kept.set(key, asked);
    asked.catch(() => kept.delete(key));
  }
  return kept.get(key);
}

/** Bytes that were packed by zlib and written in base64, as Python's payload.py and report.py write them. */
export async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function fetched(path, atlas) {
  const address = `/api/${encodeURIComponent(atlas)}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const answer = await fetch(address, {headers: {accept: "application/json"}});
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || body.detail || `The server answered ${answer.status} for ${path}.`);
  return body;
}

async function embedded(path) {
  blocks ??= new Map([...document.querySelectorAll("script[data-path]")].map((one) => [one.dataset.path, one]));
  const block = blocks.get(path);
  if (block) return opened(block);
  const bundle = bundleOf(path);
  const found = blocks.has(bundle) ? (await get(bundle))[path] : undefined;
  if (found === undefined) throw new Error(`There is nothing at ${path} in this report.`);
  return found;
}

/** Heads of one layer are packed together: head/L12H3 is in the block "layer/12". */
function bundleOf(path) {
  const head = /^head\/L(\d+)H\d+$/.exec(path);
  return head ? `layer/${head[1]}` : "";
}

async function opened(block) {
  if (!block.dataset.packed) return JSON.parse(block.textContent);
  return JSON.parse(new TextDecoder().decode(await unpacked(block.textContent)));
}
