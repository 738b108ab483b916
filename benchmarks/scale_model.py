"""What does one example cost, of a model of any shape, on GPUs whose speed was measured on a smaller model?

    seconds    reading: tokens x 2 x weights / rate, times what observing adds; the rate is what an H200 made on the shape of
               Llama-3.1-8B (docs/benchmarks.md), scaled by floating-point operations
               saying: every token of a batch reads all weights once, bytes / bandwidth
    bytes      what the shards of the default model hold of an example (`footprint`), each variable scaled along its layers,
               heads and width, and packed as much smaller as those were
    driver     what `driver_rate` measured on this machine, a straight line in bytes and in workers

A model that needs g GPUs is spread by layers (`device_map`): one GPU works while the others wait, so a worker is as fast as
one GPU. Measured numbers are in `measured.json` next to this file, assumed ones in `ASSUMED`; there are no others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MEASURED = json.loads((Path(__file__).parent / "measured.json").read_text(encoding="utf-8"))
ASSUMED = {
    "memory bandwidth of a GPU, of which saying tokens reaches": (
        4.8e12 * 0.6,
        "bytes/s; the data sheet of the H200, 60 %",
    ),
    "memory of a GPU": (139 * 2**30, "bytes; H200"),
    "share of a GPU that weights may fill": (0.9, ""),
    "model load, per worker": (2e9, "bytes/s from a disk or a store near by"),
    "all loads together": (100e9, "bytes/s that a store or file system gives to all workers at once"),
    "time between two failures of a GPU": (
        16_384 * 54 * 24 / 419 * 3600,
        "s; Llama 3 (arXiv 2407.21783): 419 in 54 days",
    ),
    "restart of a worker": (60.0, "s, before it loads"),
    "spread of shard times": (0.1, "standard deviation of the logarithm"),
    "share of slow shards": (0.005, "three times as long"),
    "upload to a store, per worker": (0.5e9, "bytes/s"),
    "memory of a node": (2e12, "bytes, where a study is finalized"),
    "requests a store takes": (3_500.0, "writes/s below one prefix; S3's documentation"),
    "a GPU hour": (4.0, "$"),
    "1,000 writes to a store": (0.005, "$"),
    "1 GB a month in a store": (0.023, "$"),
}
TOKENS = {"answers": 29, "spectral": 70, "probing": 100}  # read per example; of a packaged question (`studies.cost`)
SAID = 32  # tokens said by the batch whose longest answer ends it
BATCH = 64  # questions that are answered at a time
LAYER, HEAD, WIDTH = "layer", "head", "width"


class Shape(NamedTuple):
    """Of a Llama."""

    layers: int
    heads: int
    kv_heads: int
    hidden: int
    inner: int
    vocabulary: int
    head_dim: int = 128

    @property
    def decoder(self) -> int:
        """Parameters of all layers."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def bytes(self) -> int:
        """Of all weights in bfloat16."""
        return 2 * (self.decoder + 2 * self.vocabulary * self.hidden)


SMALL = Shape(30, 9, 3, 576, 1536, 49_152, 64)  # the default model, whose shards were weighed
EIGHT = Shape(32, 32, 8, 4096, 14_336, 128_256)
SEVENTY = Shape(80, 64, 8, 8192, 28_672, 128_256)


def assumed(name: str) -> float:
    """An assumption, by its name."""
    return ASSUMED[name][0]


def rate() -> float:
    """Floating-point operations a second of an H200 on a plain forward pass of the 8B shape."""
    gpu = MEASURED["gpu"]
    return 2 * EIGHT.decoder * gpu["tokens"] / gpu["plain"]


def example_seconds(study: str, shape: Shape) -> float:
    """Of one worker."""
    observing = MEASURED["gpu"]["spectrum" if study == "spectral" else "both"] / MEASURED["gpu"]["plain"]
    reading = TOKENS[study] * 2 * shape.decoder / rate()
    if study != "answers":
        return reading * observing
    bandwidth = assumed("memory bandwidth of a GPU, of which saying tokens reaches")
    return reading + SAID / BATCH * shape.bytes / bandwidth


def example_bytes(study: str, shape: Shape) -> tuple[float, float]:
    """In memory, and packed on disk."""
    row = MEASURED["footprint"][study]
    first = sum(variable["bytes"] for variable in row["variables"].values())
    count = max(_examples(variable) for variable in row["variables"].values())
    scaled = sum(_scaled(variable, shape) for variable in row["variables"].values())
    packed = row["shard_bytes"] / row["examples"] / (first / count) * scaled / count
    return max(scaled / count, packed), packed  # texts are held as references, which weigh less than they do


def _examples(variable: Mapping[str, Any]) -> int:
    return int(dict(zip(variable["dims"], variable["sizes"], strict=True)).get("example", 1))


def _scaled(variable: Mapping[str, Any], shape: Shape) -> float:
    """Bytes of a variable, were the model of this shape."""
    now = {LAYER: SMALL.layers, HEAD: SMALL.heads, WIDTH: SMALL.hidden}
    then = {LAYER: shape.layers, HEAD: shape.heads, WIDTH: shape.hidden}
    if variable["dims"][-1:] == ["entry"]:  # of one head, not of the stream
        now, then = now | {"entry": SMALL.head_dim}, then | {"entry": shape.head_dim}
    factors = (then[dim] / now[dim] for dim in variable["dims"] if dim in now)
    return float(variable["bytes"] * math.prod(factors))


def gpus_needed(shape: Shape) -> int:
    """Of one worker; activations and reductions take what is left of the last one."""
    return math.ceil(shape.bytes / (assumed("share of a GPU that weights may fill") * assumed("memory of a GPU")))


def load_seconds(shape: Shape, workers: int = 1) -> float:
    """Of the model, by so many workers at once."""
    return shape.bytes * max(1 / assumed("model load, per worker"), workers / assumed("all loads together"))


def driver_seconds(workers: int, size: float, *, commits: bool) -> float:
    """Of the driver, for a shard of so many bytes; `commits`: whether it writes them, or only learns that they are written."""
    driver = MEASURED["driver"]
    found = _line(driver["scheduler"], workers) + _line(driver["ray"], size if commits else 1000)
    return found + (_line(driver["commit"], size) if commits else 0.0)


def _line(points: Mapping[str, float], at: float) -> float:
    """A straight line through the first and the last point; never below the smallest."""
    known = sorted((float(key), value) for key, value in points.items())
    (low, first), (high, last) = known[0], known[-1]
    return max(min(first, last), first + (at - low) * max(0.0, last - first) / (high - low))
