"""Where does a head stand among all heads? Its percentile, column by column.

The percentile of a head is the share of the other measured heads whose value is smaller, heads with the same value
counted half: 0 is the smallest of all, 100 the largest, 50 the middle. NaN (not measured) stays NaN and counts nowhere.

Cost: a sort a column. This module does not know what the columns mean.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from headwise.core.dims import HEAD, LAYER

__all__ = ["percentiles", "places", "with_percentiles"]


def places(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of (head, column): percentile, rank from the largest (1; ties share the best; 0: not measured), and heads measured.

    >>> percentile, rank, of = places(np.array([[1.0], [3.0], [np.nan], [2.0]]))
    >>> percentile.ravel(), rank.ravel(), of
    (array([  0., 100.,  nan,  50.]), array([3, 1, 0, 2]), array([3]))
    """
    there = np.isfinite(values)
    of = there.sum(0)
    shown = np.where(there, values, np.nan)
    mean_rank = rankdata(shown, axis=0, nan_policy="omit") if values.size else shown
    percentile = 100 * (mean_rank - 1) / np.maximum(of - 1, 1)
    percentile = np.where(there & (of == 1), 50.0, percentile)
    best = rankdata(-shown, axis=0, method="min", nan_policy="omit") if values.size else shown
    return percentile, np.where(there, np.nan_to_num(best), 0).astype(int), of


def percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text are left out.

    Args:
        frame: the head table, as `Atlas.heads` gives it.

    Returns:
        0 for the smallest of all heads, 100 for the largest.

    Examples:
        >>> percentiles(pd.DataFrame({"layer": [0, 0, 1], "profile.sink": [0.2, 0.9, 0.4]}))["profile.sink"].tolist()
        [0.0, 100.0, 50.0]
    """
    numbers = frame.select_dtypes("number").drop(columns=[LAYER, HEAD], errors="ignore")
    found = places(numbers.to_numpy(dtype=float))[0]
    return pd.DataFrame(found, index=numbers.index, columns=numbers.columns)


def with_percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text are as they were.

    Args:
        frame: the head table, as `Atlas.heads` gives it.

    Returns:
        The same table, in percentiles.

    Examples:
        >>> float(with_percentiles(atlas.heads()).loc["L3H2", "profile.previous"])
        100.0
    """
    return frame.assign(**{str(name): column for name, column in percentiles(frame).items()})
