// Asking the server to compute something: one request whose answer comes in lines, first how far it is, last the result.
//
//     const job = asked("live/run", {text}, (now) => show(now.stage, now.share));
//     await job.result;      job.cancel();
//
// A job that is cancelled closes its request; the server sees that and stops at the next layer or token.

import {settings} from "headwise/settings";
import {unpacked} from "headwise/source";

const base = `/api/${encodeURIComponent(settings.atlas)}`;

/** Start a job: {result: Promise, cancel()}. `tell` hears {event, stage, share, ahead}. */
export function asked(path, body, tell = () => {}) {
  const stop = new AbortController();
  return {result: run(path, body, tell, stop.signal), cancel: () => stop.abort()};
}

/** What stands at an address now; never kept. */
export async function now(path, signal = undefined) {
  const answer = await fetch(`${base}/${path}`, {headers: {accept: "application/json"}, cache: "no-store", signal});
  return checked(answer);
}

/** The weights of one head: {rows, columns, row_starts, column_starts, values: Float32Array, high, wide}. */
export async function headMap(look, head, {rows, columns, size}, signal) {
  const query = new URLSearchParams({rows: rows.join(":"), columns: columns.join(":"), size});
  const found = await now(`live/run/${encodeURIComponent(look)}/head/${encodeURIComponent(head)}?${query}`, signal);
  const bytes = await unpacked(found.weights.deflated);
  const [high, wide] = found.weights.shape;
  return {...found, high, wide, values: new Float32Array(bytes.buffer, bytes.byteOffset, high * wide)};
}

async function run(path, body, tell, signal) {
  const answer = await fetch(`${base}/${path}`, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body), signal, cache: "no-store",
  });
  if (!answer.ok) await checked(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const {value, done} = await reader.read();
    const lines = (waiting + (value ?? "")).split("\n");
    waiting = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const said = JSON.parse(line);
      if (said.event === "done") return said.result;
      if (said.event === "failed") throw new Error(sentence(said.error));
      tell(said);
    }
    if (done) throw new Error("The server ended before the result was there; it may have been stopped.");
  }
}

async function checked(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(sentence(body.error || `the server answered ${answer.status}`));
  return body;
}

/** An error of the server as a sentence. */
function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(start) ? start : `${start}.`;
}
