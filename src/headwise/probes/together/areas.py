"""AUROC of many scores on the same rows at once, exact with ties. The formula, without the interval, of ``auroc``.

    A = (sum of the ranks of wrong rows - w (w + 1) / 2) / (w r),     equal scores share the mean of their ranks

Cost: one sort. This module does not know folds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from headwise.probes.labels import Labels

__all__ = ["areas"]


def areas(scores: Any, wrong: Labels) -> NDArray[np.float64]:
    """AUROC over the last dim of ``scores`` (..., row), larger scores meaning wrong.

    >>> areas([[3.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], np.array([True, True, False, False]))
    array([0.875, 0.5  ])
    """
    ranks = rankdata(np.asarray(scores), axis=-1)
    n_wrong, n_right = int(wrong.sum()), int((~wrong).sum())
    return (ranks[..., wrong].sum(axis=-1) - n_wrong * (n_wrong + 1) / 2) / (n_wrong * n_right)
