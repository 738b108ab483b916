"""Which heads does the study name? Per kind of head, the highest tenth, with the interval over a uniform head.

Its words are stricter, and name no head where there is none: a head has a role (`has_role`) when its score is above a
number that is the same for all models. How often either is right is measured on models whose heads are known
(docs/headbench.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import STATISTIC
from headwise.studies.head_sets import HeadSetMap, layer_head, strongest

PROFILE_SETS = ("previous", "induction", "duplicate", "sink", "delimiter")
MIN_ROLE_SCORE = 0.4  # a head has a role when the whole interval of its score is above this
HALF = 0.5  # of a head's attention on the first token: the head is a sink


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


def has_role(dataset: xr.Dataset, statistic: str) -> np.ndarray:
    """(layer, head): heads whose whole interval (where there is none: whose value) is above `MIN_ROLE_SCORE`.

    A head is a sink when its value is above `HALF`: how much of its attention is at rest is a share of the same texts.
    """
    value, low = (layer_head(dataset[name].sel({STATISTIC: statistic})) for name in ("value", "low"))
    if statistic == "sink":
        return np.asarray(value > HALF)
    return np.asarray(np.where(np.isfinite(low), low, value) > MIN_ROLE_SCORE)
