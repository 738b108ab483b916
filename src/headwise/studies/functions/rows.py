"""The steps that a probe can be made from, as arrays: labels, split, questions, and what the joint probe sees of each head.

x_h = [z_h, mean of z over the heads of its layer]: the published features, 2 x width. The mean makes a head's features
know a little of what its neighbours say; importance of a layer smears by that much.

This module does not know probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, WIDTH
from headwise.core.errors import StudyError
from headwise.corpora import TRAIN

__all__ = ["Rows", "joined"]


class Rows:
    """The steps that a probe can be made from: of the functions to be told apart, with an answer."""

    def __init__(self, readings: xr.Dataset, functions: Sequence[str]):
        of = readings["function_of"].values.astype(str)
        used = np.isin(of, functions) & (readings["key_tokens"].values > 0)
        self.readings = readings.isel({EXAMPLE: np.flatnonzero(used)})
        self.functions = tuple(functions)
        self.labels = np.array([self.functions.index(name) for name in of[used]], dtype=np.int64)
        self.trains = self.readings["split_of"].values.astype(str) == TRAIN
        self.groups = self.readings["chain"].values.astype(str)
        z = self.readings["z"].transpose(EXAMPLE, LAYER, HEAD, WIDTH).values
        self.shape = z.shape[1:3]
        self.there = np.isfinite(z).any(axis=3).all(axis=0)  # (layer, head): heads that the model has
        self.z = np.nan_to_num(z)  # heads of a narrower layer have no more entries
        self.held_out = self.labels[~self.trains]
        _refuse_few(self)

    def on_map(self, values: NDArray[Any], fill: Any = np.nan) -> NDArray[Any]:
        """(..., head that is there) -> (..., layer, head)."""
        found = np.full((*values.shape[:-1], *self.shape), fill, dtype=values.dtype)
        found[..., self.there] = values
        return found


def _refuse_few(rows: Rows) -> None:
    for place, name in enumerate(rows.functions):
        counts = [int((rows.labels[part] == place).sum()) for part in (rows.trains, ~rows.trains)]
        if min(counts) < 2:
            raise StudyError(
                f"of the steps of {name!r} the model answers {counts[0]} to learn from and {counts[1]} held out with at "
                "least one token, and two of each are needed; give more steps, or leave that function out"
            )


def joined(z: NDArray[np.floating], there: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(step, head that is there, 2 x width): each head's z, and beside it the mean over the heads of its layer."""
    count = np.maximum(there.sum(axis=1), 1)[:, None, None]
    mean = (z * there[:, :, None]).sum(axis=2, keepdims=True) / count  # (step, layer, 1, width)
    both = np.concatenate([z, np.broadcast_to(mean, z.shape)], axis=3)
    return np.ascontiguousarray(both[:, there], dtype=np.float32)
