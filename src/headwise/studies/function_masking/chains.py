"""The hierarchy in numbers: whole questions with a low-order function's heads masked. Pure functions, no model.

`chain` (masked, function): accuracy on every function's steps; `chain_effect`: on all high-order steps together, the
accuracy with random heads masked less that with this function's. NaN for functions that were not masked. `chain_random`
(function): accuracy on every function's steps with random heads masked, mean over draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import FUNCTION, MASKED
from headwise.studies.function_masking.gaps import NOTHING, gap, share

__all__ = ["to_chains"]

ENDS = ("", "_low", "_high")
RANDOM = "random"


def to_chains(table: xr.Dataset, names: Sequence[str], orders: Mapping[str, str]) -> xr.Dataset:
    """`table`: one row a condition and step; masked_of is "" for the whole model, "random" for random heads."""
    masked, of, right = (table[name].values for name in ("masked_of", "function_of", "right"))
    condition = table["condition"].values

    def by_condition(name: str, functions: Sequence[str]) -> NDArray[np.bool_]:
        """(condition of this name, step of these functions)."""
        there = (masked == name) & np.isin(of.astype(str), functions)
        each = np.unique(condition[there])
        return np.stack([right[there & (condition == one)] for one in each]) if len(each) else np.zeros((0, 0), bool)

    def accuracy(name: str, functions: Sequence[str]) -> tuple[float, float, float]:
        found = by_condition(name, functions)
        return share(found[0]) if found.size else NOTHING

    high = [name for name in names if orders[name] == "high"]
    random = by_condition(RANDOM, high)
    own = {name: by_condition(name, high) for name in names}
    effects = [gap(own[name][0], random) if own[name].size else NOTHING for name in names]
    table_of = np.array([[accuracy(name, [other]) for other in names] for name in names])
    lost = np.array([accuracy(name, high)[0] for name in names])
    found: dict[str, Any] = {
        f"chain{end}": ((MASKED, FUNCTION), table_of[..., place]) for place, end in enumerate(ENDS)
    }
    found |= {f"chain_effect{end}": (FUNCTION, np.array(effects)[:, place]) for place, end in enumerate(ENDS)}
    drawn = {name: by_condition(RANDOM, [name]) for name in names}
    found |= {
        "chain_random": (FUNCTION, np.array([drawn[name].mean() if drawn[name].size else np.nan for name in names])),
        "chain_whole": (FUNCTION, np.array([accuracy("", [name])[0] for name in names])),
        "chain_high_own": (FUNCTION, lost),
        "chain_high_random": (FUNCTION, np.where(np.isnan(lost), np.nan, random.mean() if random.size else np.nan)),
    }
    steps = np.array([by_condition("", [name]).size for name in names], dtype=np.int64)
    return xr.Dataset(found, coords={"chain_steps": (FUNCTION, steps)})
