"""How alike are two maps of the heads? Pearson's correlation over all heads, with a bootstrap interval.

The interval comes from drawing the heads anew with replacement (percentiles of `draws` correlations). Scores of heads
are mostly nought with a few large ones, so Fisher's formula, which wants normal data, would be far too sure; where one or
two heads carry the correlation, the drawn ones spread, and the interval says so.

A correlation is NaN where one of the two maps is the same everywhere. Drawn maps that are the same everywhere are left
out of the interval. What other texts or pairs would have given is not in it.

Cost: one product (draws x heads) a map. This module does not know what the maps show.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Correlation", "correlation", "correlation_table"]

Floats = NDArray[np.float64]


class Correlation(NamedTuple):
    """Pearson's r."""

    value: float
    low: float
    high: float
    """ends of the 95 % interval"""


def correlation(a: Any, b: Any, *, draws: int = 1000, seed: int = 0) -> Correlation:
    """Of two maps of one shape; cells that are NaN in either are left out.

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


def correlation_table(rows: Any, columns: Any) -> Floats:
    """Pearson's r of every map in `rows` (map, cell) with every map in `columns`; NaN where one is constant."""
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
