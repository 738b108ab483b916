"""Which heads does the study name? Per kind of head, the highest tenth, with the interval over a uniform head."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from headwise.core.dims import STATISTIC
from headwise.studies.head_sets import HeadSetMap, layer_head, strongest

PROFILE_SETS = ("previous", "induction", "duplicate", "sink", "delimiter")


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per kind; its map is the statistic."""
    known = dataset[STATISTIC].values.astype(str).tolist()
    values, low, uniform = (layer_head(dataset[name], STATISTIC) for name in ("value", "low", "uniform"))
    for name in (each for each in PROFILE_SETS if each in known):
        index = known.index(name)
        rule = "the highest tenth, with the interval over a uniform head"
        member = strongest(values[index], low[index] > uniform[index])
        label = str(dataset["label"].values[index])
        yield HeadSetMap(f"profile.{name}", "profile", label, rule, values[index], member)
