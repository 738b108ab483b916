"""From readings to the profile: means over examples, 95 % intervals, and the level of a uniform head."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC
from headwise.corpora import REPEATS
from headwise.stats import mean_interval

ON_REPEATS = ("induction", "duplicate")  # measured on repeated random tokens; all others on texts
STATISTIC_INFO = {  # statistic -> label, unit, definition
    "entropy": (
        "Entropy",
        "",
        "entropy of a row divided by the log of the number of visible keys (0: one key, 1: uniform)",
    ),
    "sink": ("First token (sink)", "", "weight on the first token of the text"),
    "diagonal": ("Own token", "", "weight on the token itself"),
    "previous": ("Previous token", "", "weight on the token before"),
    "distance": ("Mean distance", "tokens", "how far back the head attends on average"),
    "spread": ("Spread of distance", "tokens", "standard deviation of the distance within a row"),
    "induction": ("Induction", "", "weight on the token that followed the earlier occurrence of this one"),
    "duplicate": ("Duplicate token", "", "weight on the earlier occurrence of this token"),
    "delimiter": ("Delimiters", "", "weight on punctuation and line ends, except the first token"),
    "top1": ("Largest weight", "", "largest weight of a row"),
    "output_norm_ratio": (
        "Output norm (relative)",
        "",
        "norm of the head's output over the norm of the residual stream that it reads",
    ),
}


def finalize(shards: Sequence[xr.Dataset]) -> xr.Dataset:
    """All shards to one Dataset."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").transpose(EXAMPLE, STATISTIC, LAYER, HEAD)
    used = readings.where((readings["register"] == REPEATS) == readings[STATISTIC].isin(ON_REPEATS))
    interval = mean_interval(used["value"], EXAMPLE)
    labels, units, definitions = zip(*(STATISTIC_INFO[name] for name in readings[STATISTIC].values), strict=True)
    result = xr.Dataset(
        {
            "value": interval["mean"],
            "low": interval["low"],
            "high": interval["high"],
            "uniform": used["uniform"].mean(EXAMPLE),
            "per_example": used["value"],
        }
    ).astype(np.float32)
    return result.assign_coords(
        label=(STATISTIC, list(labels)), unit=(STATISTIC, list(units)), definition=(STATISTIC, list(definitions))
    ).assign_attrs(title="Where each head attends", record=json.dumps(["value"]))
