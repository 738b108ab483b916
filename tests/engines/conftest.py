"""A toy measurement: an example's numbers follow from its place, and every shard measured is noted in a log."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headwise.core.provenance import Provenance
from headwise.engines import Shard, ShardStore

EXAMPLES, SIZE = 23, 4


def make_store(atlas: Path, *, size: int = SIZE, **changes: object) -> ShardStore:
    parts: dict = {"model": {"digest": "m"}, "data": {"digest": "d", "size": EXAMPLES}, "parameters": {}, "seed": 0}
    provenance = Provenance("toy", 1, **(parts | changes))
    return ShardStore(atlas, provenance, examples=EXAMPLES, size=size)


def make_work(log: Path) -> Callable[[Shard], xr.Dataset]:
    def work(shard: Shard) -> xr.Dataset:
        with log.open("a") as file:
            file.write(f"{shard.index}\n")
        examples = range(shard.start, shard.stop)
        numbers = np.stack([np.random.default_rng(example).random((3, 2), "float32") for example in examples])
        numbers[0, 0, 0] = np.nan
        return xr.Dataset(
            {"value": (("example", "layer", "head"), numbers)},
            coords={"example": [f"é{example}" for example in examples]},
        )

    return work


@pytest.fixture
def store() -> Callable[..., ShardStore]:
    return make_store


@pytest.fixture
def work() -> Callable[[Path], Callable[[Shard], xr.Dataset]]:
    return make_work
