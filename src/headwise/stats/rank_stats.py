"""How does a head rank among all heads? Percentile and rank per column.

The percentile of a head is the share of the other measured heads with a smaller value, ties counted half: 0 is the smallest
of all, 100 the largest, 50 the median. Heads that were not measured (NaN) stay NaN and do not count.

Cost: one sort per column.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

__all__ = ["percentile_per_map", "rank_stats"]


def rank_stats(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of (head, column): percentile, rank (1 is the largest, ties share the best, 0: not measured), and measured heads.

    >>> percentile, rank, measured = rank_stats(np.array([[1.0], [3.0], [np.nan], [2.0]]))
    >>> percentile.ravel(), rank.ravel(), measured
    (array([  0., 100.,  nan,  50.]), array([3, 1, 0, 2]), array([3]))
    """
    finite = np.isfinite(values)
    measured = finite.sum(0)
    known = np.where(finite, values, np.nan)
    mean_rank = rankdata(known, axis=0, nan_policy="omit") if values.size else known
    percentile = 100 * (mean_rank - 1) / np.maximum(measured - 1, 1)
    percentile = np.where(finite & (measured == 1), 50.0, percentile)
    best = rankdata(-known, axis=0, method="min", nan_policy="omit") if values.size else known
    return percentile, np.where(finite, np.nan_to_num(best), 0).astype(int), measured


def percentile_per_map(maps: np.ndarray) -> np.ndarray:
    """Of (layer, head, map): each head's percentile among all heads of the map."""
    return rank_stats(maps.reshape(-1, maps.shape[-1]))[0].reshape(maps.shape)
