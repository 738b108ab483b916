"""From readings to the sparsity Dataset: means over prompts, paired with the dense pass, and their 95 % intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RULE
from headwise.kernels import SparsityRule
from headwise.stats import mean_interval

ENDS = {"": "mean", "_low": "low", "_high": "high"}


def finalize(shards: Sequence[xr.Dataset], rules: Sequence[SparsityRule]) -> xr.Dataset:
    """All shards to one Dataset."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").transpose(EXAMPLE, RULE, LAYER, HEAD)
    found: dict[str, Any] = {}
    paired = {"rise": readings["loss"] - readings["dense"], "kl": readings["kl"], "dense": readings["dense"]}
    maps = {"change": readings["change"], "needed": readings["needed"]}
    for name, values in (paired | maps).items():
        interval = mean_interval(values, EXAMPLE)
        found |= {f"{name}{suffix}": interval[part] for suffix, part in ENDS.items()}
    for name in ("kept", "mass"):
        found[name] = readings[name].mean(EXAMPLE)
    for name in ("kept", "mass", "change"):  # over all heads
        found[f"{name}_mean"] = readings[name].mean((LAYER, HEAD)).mean(EXAMPLE)
    labels = {RULE: [rule.name for rule in rules], "kind": [rule.kind for rule in rules]}
    return (
        xr.Dataset(found)
        .astype(np.float32)
        .assign_coords(
            {name: (RULE, np.array(values, dtype=object)) for name, values in labels.items()}
            | {"strength": (RULE, np.array([rule.amount for rule in rules]))}
        )
        .assign_attrs(
            title="Attention weights dropped at inference",
            record=json.dumps(["needed", "change"]),
            renormalised=int(all(rule.renormalise for rule in rules)),
        )
    )
