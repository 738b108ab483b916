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
    """What it takes to run a study.

    Examples:
        What `build` does with one, in one piece.

        >>> from headwise.corpora import Passage, Passages
        >>> from headwise.engines import Shard
        >>> from headwise.studies import profile
        >>> words = "the old river was the old river and the old house"
        >>> texts = Passages("mine", (Passage("a", words), Passage("b", words.replace("old", "low"))))
        >>> work = profile.prepare(model, texts, profile.ProfileOptions(repeats=2, period=16))
        >>> work.examples  # two texts, and two sequences of repeated random tokens
        4
        >>> maps = work.conclude([work.measure(Shard(0, 0, work.examples))])
        >>> dict(maps["profile"].value.sizes)
        {'statistic': 11, 'layer': 3, 'head': 6}
    """

    provenance: Provenance  # fixes the numbers: two works of one identity give one result
    examples: int  # how many there are to measure
    shard_size: int  # examples between two commits
    measure: Callable[[Shard], xr.Dataset]  # examples [start, stop) of the work, measured
    conclude: Callable[[Sequence[xr.Dataset]], Mapping[str, xr.Dataset]]  # all shards, in order, to Datasets by name
    leave: Leave | None = None  # puts files beside the maps, such as a fitted detector
