import assert from "node:assert/strict";
import test from "node:test";
import {deflateSync} from "node:zlib";
import {HIDDEN, inflate, maxPool, paintTile, unpackTiles} from "headwise/pixels";

const packed = (bytes) => deflateSync(Uint8Array.from(bytes)).toString("base64");

test("zlib and base64 are undone", async () => {
  assert.deepEqual([...(await inflate(` ${packed([0, 254, 255])}\n`))], [0, 254, 255]);
  const tiles = await unpackTiles({shape: [2, 1, 2], deflated: packed([1, 2, 3, 4])});
  assert.deepEqual({...tiles, bytes: [...tiles.bytes]}, {tiles: 2, rows: 1, columns: 2, bytes: [1, 2, 3, 4]});
});

test("pooling takes the maximum, and masked cells count as less than any level", () => {
  const bytes = Uint8Array.from([0, 9, HIDDEN, HIDDEN, 3, 4, HIDDEN, HIDDEN, 1, 1, 7, HIDDEN, 1, 1, HIDDEN, HIDDEN]);
  const small = maxPool({rows: 4, columns: 4, bytes}, 0, 2);
  assert.deepEqual({...small, bytes: [...small.bytes]}, {rows: 2, columns: 2, bytes: [9, HIDDEN, 1, 7]});
  assert.deepEqual([...maxPool({rows: 1, columns: 2, bytes: Uint8Array.from([1, 2, 3, 4])}, 1, 64).bytes], [3, 4]);
});

test("a tile is painted inside the image only", () => {
  const image = new Uint32Array(9);
  const colours = Uint32Array.from({length: 257}, (_, level) => level + 100);
  paintTile(image, 3, 3, {rows: 1, columns: 2, bytes: Uint8Array.from([1, 2])}, -1, 1, 4, colours);
  assert.deepEqual([...image], [0, 0, 0, 101, 102, 102, 101, 102, 102]);
});
