"""Which heads have a role? Those that give much of their attention to one kind of token, beyond what a uniform head gives.

A score is corrected for chance as Cohen's kappa is: (value - uniform) / (1 - uniform) is 0 for a uniform head and 1 for a head
that looks nowhere else. A head has the role where the whole 95 % interval is above `MIN_ROLE_SCORE`, so a model may have no
such head, or many. The number was chosen on planted models that are not among those on which the rule is measured
(docs/headbench.md); there, a rule that names heads that stand out from the model's other heads names them whatever little they
give.

A sink is a head that puts more than half of its attention on the first token, as the words say: many heads that look for
something rest there where they do not find it, and the lower number names them, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import STATISTIC
from headwise.studies.head_sets import HeadSetMap, layer_head, set_key

MIN_ROLE_SCORE = 0.3
HALF = 0.5  # of a head's attention on the first token
NAMED = ("previous", "induction", "duplicate", "sink", "delimiter")


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per role; its map is the score."""
    corrected = f"the whole interval, corrected for a uniform head, is above {MIN_ROLE_SCORE}"
    for statistic in (one for one in NAMED if one in dataset[STATISTIC].values):
        own = dataset.sel({STATISTIC: statistic})
        key, label = set_key("profile", statistic), str(own["label"].values)
        rule = "more than half of its attention" if statistic == "sink" else corrected
        yield HeadSetMap(key, "profile", label, rule, layer_head(own["value"]), has_role(dataset, statistic))


def has_role(dataset: xr.Dataset, statistic: str) -> np.ndarray:
    """(layer, head): heads whose whole interval (or value, where there is none) is above `MIN_ROLE_SCORE`; or the sinks."""
    own = dataset.sel({STATISTIC: statistic})
    value, low, uniform = (layer_head(own[name]) for name in ("value", "low", "uniform"))
    if statistic == "sink":
        return np.asarray(value > HALF)
    least = np.where(np.isfinite(low), low, value)
    return np.asarray(least - uniform > MIN_ROLE_SCORE * (1 - uniform))
