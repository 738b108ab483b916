"""How alike are two maps of the heads? Pearson's correlation over all heads, with a bootstrap interval.

The interval comes from drawing the heads anew with replacement (percentiles of `draws` correlations). Scores of heads
are mostly nought with a few large ones, so Fisher's formula, which wants normal data, would be far too sure; where one or
two heads carry the correlation, the drawn ones spread, and the interval says so.

A correlation is NaN where one of the two maps is the same everywhere. Drawn maps that are the same everywhere are left
out of the interval. What other texts or pairs would have given is not in it.

Cost: one product (draws x heads) a map. This module does not know what the maps show.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Correlation", "correlation", "correlation_table"]

Floats = NDArray[np.float64]


class Correlation(NamedTuple):
    """Pearson's r, with its interval.

    Examples:
        >>> found = correlation([0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 5, 4])
        >>> round(found.value, 2), found.low < found.value < found.high
        (0.89, True)
    """

    value: float
    """from -1 to 1; NaN where a map is constant"""
    low: float
    """lower end of the 95 % interval"""
    high: float
    """upper end"""


def correlation(a: ArrayLike, b: ArrayLike, *, draws: int = 1000, seed: int = 0) -> Correlation:
    """How alike two maps of one shape are; cells that are NaN in either are left out.

    Args:
        a: a map.
        b: another of the same heads.
        draws: of the bootstrap.
        seed: of the draws.

    Returns:
        Pearson's r and its 95 % interval.

    Examples:
        >>> correlation([0, 0, 1, 2], [1, 1, 2, 3]).value
        1.0
    """
    a, b = np.asarray(a, dtype=np.float64).ravel(), np.asarray(b, dtype=np.float64).ravel()
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    size = len(a)
    if size < 3 or _constant(a) or _constant(b):
        return Correlation(np.nan, np.nan, np.nan)
    weights = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=draws)  # (draw, cell)
    drawn = _pearson(a - a.mean(), b - b.mean(), weights)
    whole = _pearson(a - a.mean(), b - b.mean(), np.ones((1, size)))
    low, high = np.nanpercentile(drawn, [2.5, 97.5]) if np.isfinite(drawn).any() else (np.nan, np.nan)
    return Correlation(float(np.round(whole[0], 12)), float(low), float(high))


def correlation_table(rows: ArrayLike, columns: ArrayLike) -> Floats:
    """Pearson's r of every map with every other.

    Args:
        rows: (map, cell).
        columns: (map, cell).

    Returns:
        (map of rows, map of columns); NaN where one is constant.

    Examples:
        >>> correlation_table([[0, 1, 2]], [[0, 1, 2], [2, 1, 0], [1, 1, 1]]).round(2)
        array([[ 1., -1., nan]])
    """
    rows, columns = np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    table = np.full((len(rows), len(columns)), np.nan)
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            known = np.isfinite(a) & np.isfinite(b)
            if known.sum() >= 3 and not _constant(a[known]) and not _constant(b[known]):
                table[i, j] = np.corrcoef(a[known], b[known])[0, 1]
    return table


def _pearson(a: Floats, b: Floats, weights: np.ndarray) -> Floats:
    """Under each row of weights, (draw,); `a` and `b` centred, so that nothing cancels."""
    total = weights.sum(axis=1)
    mean_a, mean_b = weights @ a / total, weights @ b / total
    spread_a = weights @ (a * a) / total - mean_a**2
    spread_b = weights @ (b * b) / total - mean_b**2
    both = weights @ (a * b) / total - mean_a * mean_b
    floor = 1e-12
    known = (spread_a > floor * (a * a).mean()) & (spread_b > floor * (b * b).mean())
    return np.where(known, both / np.sqrt(np.where(known, spread_a * spread_b, 1.0)), np.nan)


def _constant(values: Floats) -> bool:
    return bool(np.ptp(values) == 0)
