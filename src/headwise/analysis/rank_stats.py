"""How does a head rank among all heads? Percentile and rank per column.

The percentile of a head is the share of the other measured heads with a smaller value, ties counted half: 0 is the smallest
of all, 100 the largest, 50 the median. Heads that were not measured (NaN) stay NaN and do not count.

Cost: one sort per column.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from headwise.core.dims import HEAD, LAYER

__all__ = ["percentiles", "rank_stats", "with_percentiles"]


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


def percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text are left out.

    Args:
        frame: the head table, from `Atlas.heads`.

    Returns:
        0 for the smallest of all heads, 100 for the largest.

    Examples:
        >>> percentiles(pd.DataFrame({"layer": [0, 0, 1], "profile.sink": [0.2, 0.9, 0.4]}))["profile.sink"].tolist()
        [0.0, 100.0, 50.0]
    """
    numbers = frame.select_dtypes("number").drop(columns=[LAYER, HEAD], errors="ignore")
    found = rank_stats(numbers.to_numpy(dtype=float))[0]
    return pd.DataFrame(found, index=numbers.index, columns=numbers.columns)


def with_percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text stay as they are.

    Args:
        frame: the head table, from `Atlas.heads`.

    Returns:
        The same table, in percentiles.

    Examples:
        >>> float(with_percentiles(atlas.heads()).loc["L3H2", "profile.previous"])
        100.0
    """
    return frame.assign(**{str(name): column for name, column in percentiles(frame).items()})
