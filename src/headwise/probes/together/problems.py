"""What is to be fitted at every cell: one problem a fold, and for each set of labels.

A fold is a problem in which its own rows have the weight 0. With ``balanced`` weights both classes of the training rows
weigh half of all, as scikit-learn's ``class_weight="balanced"``.

This module does not know features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import DataError
from headwise.stats.validation import Labels

__all__ = ["BALANCED", "Problems", "problems_of"]

BALANCED = "balanced"


class Problems(NamedTuple):
    """The problems of a cell, the same at every cell."""

    labels: Tensor
    """(problem, row) float32, 1 for wrong"""
    weights: Tensor
    """(problem, row) float32, 0 for rows that have no say"""
    folds: Tensor
    """(problem,): the fold whose training rows these are"""


def problems_of(labels: Labels, trains: Labels, weights: str | None, device: torch.device) -> Problems:
    """Every set of ``labels`` (set, row) with the training rows of every fold, ``trains`` (fold, row); folds vary fastest."""
    if weights not in (None, BALANCED):
        raise DataError(f"weights are None or {BALANCED!r}, not {weights!r}")
    each = np.repeat(labels, len(trains), axis=0)  # (problem, row)
    rows = np.tile(trains, (len(labels), 1))
    weighed = rows.astype(np.float64)
    if weights == BALANCED:
        weighed = _balanced(each, rows)
    places = torch.arange(len(trains)).repeat(len(labels))
    return Problems(
        torch.from_numpy(each).float().to(device),
        torch.from_numpy(weighed).float().to(device),
        places.to(device),
    )


def _balanced(labels: Labels, rows: Labels) -> NDArray[np.float64]:
    """(problem, row): both classes have the same sum, and all rows together their number."""
    weights = np.zeros(rows.shape)
    for kind in (rows & labels, rows & ~labels):
        weights += kind * (rows.sum(axis=1) / 2 / kind.sum(axis=1))[:, None]
    return weights
