"""What does a shard cost by Ray, beyond what it costs in process? And is the atlas the same?

    OMP_NUM_THREADS=1 python benchmarks/engines.py                   shards that measure nothing, of several sizes
    OMP_NUM_THREADS=1 python benchmarks/engines.py --model           also the default model: time, and the bits compared

Shards that measure nothing: each is an array of so many bytes, committed to a folder. The overhead is the time of a run by one
Ray worker less that of a run in this process, over the number of shards; starting Ray and the worker is counted by itself,
since it happens once per run. On a model: one study of a few texts in process, by one worker and by two.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas import Atlas, Provenance
from headwise.corpora import packaged_passages
from headwise.engines import (
    Engine,
    Listener,
    LocalEngine,
    RayEngine,
    Shard,
    ShardStore,
    StudyJob,
    StudyResult,
    ThreadCounts,
)
from headwise.studies import ProfileOptions, build

SIZES = (1_000, 100_000, 1_000_000, 10_000_000)  # bytes of a shard


@dataclass(frozen=True)
class Nothing:
    """A spec whose shards measure nothing; also its worker."""

    size: int
    shards: int

    threads = property(lambda self: ThreadCounts(1, 1))
    on_cpu, on_gpu = True, False
    environment = property(lambda self: {})

    def for_workers(self, gpus: float | None, threads: int | None) -> Nothing:
        return self

    def open(self) -> Nothing:
        return self

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        origin = Provenance(studies[0], 1, {"digest": "none"}, {"digest": "none"}, {"size": self.size}, 0)
        return StudyJob(studies[0], origin, self.shards, 1)

    def measure(self, shard: Shard) -> xr.Dataset:
        noise = np.random.default_rng(shard.index).integers(0, 256, self.size, dtype=np.uint8)  # does not compress
        return xr.Dataset({"value": ("byte", noise)})

    def finalize(self, parts: Sequence[xr.Dataset]) -> StudyResult:
        return StudyResult({}, {})


def timed(engine: Engine, spec: Nothing) -> tuple[float, float]:
    """Seconds until the study is prepared, and seconds of the run."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, engine.open(spec, Listener()) as session:
        job = session.prepare(["nothing"], {})
        ready = time.perf_counter()
        store = ShardStore(folder, job.provenance, examples=job.examples, size=job.shard_size)
        session.run(job, store, Listener())
        return ready - begun, time.perf_counter() - ready


def overhead(size: int, shards: int) -> str:
    """A row of the table."""
    _, here = timed(LocalEngine(), Nothing(size, shards))
    start, one = timed(RayEngine(workers=1, threads_per_worker=1), Nothing(size, shards))
    per = [1000 * seconds / shards for seconds in (here, one, one - here)]
    return f"| {size:,} | {shards} | {per[0]:.1f} ms | {per[1]:.1f} ms | {per[2]:.1f} ms | {start:.1f} s |"


def on_a_model(texts: int) -> list[str]:
    """The profile of the default model by each engine, against the one in process."""
    engines = {"in process": LocalEngine(), "one worker": RayEngine(workers=1), "two workers": RayEngine(workers=2)}
    rows, expected = [], None
    options = {"profile": ProfileOptions(repeats=4, max_tokens=256, period=64, shard=2)}
    for name, engine in engines.items():
        heard = _Clock()
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            given = packaged_passages().first(texts)
            atlas = build(None, ["profile"], data=given, output=folder, options=options, engine=engine, progress=heard)
            seconds, found = time.perf_counter() - begun, _bits(atlas)
        expected = expected or found
        same = "the same bits" if found == expected else "OTHER BITS"
        rows.append(f"| {name} | {seconds:.1f} s | {heard.seconds:.1f} s | {same} |")
    return rows


class _Clock(Listener):
    """Seconds from the first example to the last: without starting and loading."""

    begun = seconds = 0.0

    def progress(self, study: str, done: int, total: int) -> None:
        self.begun = self.begun or time.perf_counter()
        self.seconds = time.perf_counter() - self.begun


def _bits(atlas: Atlas) -> dict[str, Any]:
    dataset = atlas["profile"]
    origin = json.loads(dataset.attrs["provenance"])
    origin.pop("created")
    values = {str(name): (one.dims, one.values.tolist()) for name, one in dataset.coords.items()}
    return {**values, **{str(n): v.values.tobytes() for n, v in dataset.data_vars.items()}, "provenance": origin}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--model", action="store_true", help="also on the default model")
    parser.add_argument("--texts", type=int, default=16)
    chosen = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| bytes per shard | shards | in process | one worker | overhead per shard | Ray and the worker start |")
    print("|---|---|---|---|---|---|")
    for size in SIZES:
        print(overhead(size, chosen.shards if size < SIZES[-1] else chosen.shards // 5), flush=True)
    if chosen.model:
        print("\n| engine | in all | measuring | against in process |\n|---|---|---|---|")
        for row in on_a_model(chosen.texts):
            print(row, flush=True)


if __name__ == "__main__":
    main()
