"""Which heads does the study name? Per task, the strongest tenth by effect, with the interval off 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import TASK
from headwise.studies.head_sets import HeadSetMap, layer_head, set_key, strongest


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per task; its map is the size of the effect."""
    effect, low, high = (layer_head(dataset[name], TASK) for name in ("effect", "effect_low", "effect_high"))
    for index, name in enumerate(dataset[TASK].values.astype(str)):
        strength = np.abs(effect[index])
        member = strongest(strength, (low[index] > 0) | (high[index] < 0))
        rule = "the strongest tenth by effect, with the interval off 0"
        label = str(dataset["label"].values[index])
        yield HeadSetMap(set_key("circuits", name), "circuits", label, rule, strength, member)
