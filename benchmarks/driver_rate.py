"""How many shards a second can one driver take? Measured on shards that measure nothing.

    python benchmarks/driver_rate.py --shards 10000 -o driver.json

Three parts of what a driver does for a shard, each by itself:

- *Ray*: calls of actors that give back so many bytes, through a Ray of our own on this machine (extra ``[ray]``);
- *the scheduler*: the loop that assigns shards (`engines.scheduler`), over simulated workers that answer at once, one at a
  time, which is the most expensive case; it looks at all workers for each event, so its time grows with their number;
- *the commit*: `ShardStore.commit_packed` into a local folder (written, flushed, renamed).

Their sum is what a shard costs the driver where the atlas lies in a folder. At a URL workers commit themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas import Provenance
from headwise.atlas.packing import pack
from headwise.engines import ShardStore
from headwise.engines.engine import Listener
from headwise.engines.pool import Answered, Call, Event
from headwise.engines.scheduler import Scheduler, TaskList
from headwise.engines.shards import split_shards

WORKERS = (2, 16, 128, 512, 1024, 2048)
SIZES = (1_000, 1_000_000, 10_000_000)


class Pretended:
    """Workers that answer in the order in which they were asked, one a look."""

    def __init__(self) -> None:
        self.asked: deque[str] = deque()
        self.started = 0

    def start(self) -> str:
        self.started += 1
        self.asked.append(f"worker {self.started}")
        return self.asked[-1]

    def send(self, worker: str, call: Call) -> None:
        self.asked.append(worker)

    def wait(self, seconds: float) -> list[Event]:
        return [Answered(self.asked.popleft())] if self.asked else []

    def stop(self, worker: str) -> None:
        self.asked.remove(worker)

    def check(self) -> None:
        pass

    def now(self) -> float:
        return time.monotonic()


def scheduler_seconds(workers: int, shards: int) -> float:
    """Of one shard, in the loop of a scheduler with so many workers; the quickest of three times."""
    return min(_scheduler_seconds(workers, shards) for _ in range(3))


def _scheduler_seconds(workers: int, shards: int) -> float:
    pool = Pretended()
    scheduler = Scheduler(pool, workers, Listener())
    scheduler.work(_tasks(split_shards(workers, 1)))  # all are there
    start = time.perf_counter()
    scheduler.work(_tasks(split_shards(shards, 1)))
    return (time.perf_counter() - start) / shards


def _tasks(items: Any) -> TaskList[Any]:
    return TaskList("nothing", items, lambda _: Call("measure"), str, lambda *_: None)


def commit_seconds(size: int, shards: int) -> float:
    """Of one shard of so many bytes; the median, since other programs use the disk too."""
    origin = Provenance("nothing", 1, {"id": "none"}, {"name": "none", "size": shards}, {}, 0)
    with tempfile.TemporaryDirectory() as folder:
        store = ShardStore(Path(folder), origin, examples=shards, size=1)
        random = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)  # cannot be packed smaller
        content = pack(xr.Dataset({"value": ("byte", random)}))
        took = []
        for shard in split_shards(shards, 1):
            start = time.perf_counter()
            store.commit_packed(shard, content)
            took.append(time.perf_counter() - start)
        return median(took)


def ray_seconds(size: int, shards: int, workers: int = 2) -> float:
    """Of one call that gives back so many bytes, with so many actors busy all the time."""
    from headwise.engines.ray.connection import connect

    with connect() as joined:
        ray = joined.ray
        actors = [ray.remote(num_cpus=0.5)(_Nothing).remote() for _ in range(workers)]
        ray.get([actor.measure.remote(1) for actor in actors])
        start = time.perf_counter()
        doing = {actor.measure.remote(size): actor for actor in actors}
        for place in range(shards):
            (ready,), _ = ray.wait(list(doing), num_returns=1)
            actor = doing.pop(ready)
            ray.get(ready)
            if place < shards - workers:
                doing[actor.measure.remote(size)] = actor
        return (time.perf_counter() - start) / shards


class _Nothing:
    def measure(self, size: int) -> bytes:
        return b"\0" * size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--parts", default="scheduler,commit,ray")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    parts, found = given.parts.split(","), {}
    if "scheduler" in parts:
        found["scheduler"] = {count: scheduler_seconds(count, max(2 * count, given.shards // 10)) for count in WORKERS}
    if "commit" in parts:
        found["commit"] = {size: commit_seconds(size, 20 if size > 1e6 else 200) for size in SIZES}
    if "ray" in parts:
        found["ray"] = {1_000: ray_seconds(1_000, given.shards), 1_000_000: ray_seconds(1_000_000, given.shards // 10)}
    printed = {part: {str(key): round(1000 * value, 3) for key, value in row.items()} for part, row in found.items()}
    print(json.dumps(printed), "ms per shard")
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
