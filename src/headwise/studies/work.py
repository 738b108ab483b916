"""A study made concrete: for one model and one set of texts, what is to be done and what it will give.

A study is a recipe (what to show, what to observe, with which controls) that ends in a pure function from readings to
a Dataset. `prepare` of a study turns the recipe, a model and data into a `Work`; whoever runs it (in this process, or
on a cluster) needs to know no more than this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from headwise.atlas import Provenance
from headwise.engines import Shard

Leave = Callable[[Path, Mapping[str, xr.Dataset], Sequence[xr.Dataset]], None]  # atlas folder, Datasets, shards


@dataclass(frozen=True)
class Work:
    """What it takes to run a study."""

    provenance: Provenance  # fixes the numbers: two works of one identity give one result
    examples: int
    shard_size: int
    measure: Callable[[Shard], xr.Dataset]  # examples [start, stop) of the work, measured
    conclude: Callable[[Sequence[xr.Dataset]], Mapping[str, xr.Dataset]]  # all shards, in order, to Datasets by name
    leave: Leave | None = None  # puts files beside the maps, such as a fitted detector
