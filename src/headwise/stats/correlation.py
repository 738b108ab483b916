"""How similar are two maps of the heads? Pearson's and Spearman's correlation over heads, with a bootstrap interval.

The interval of Pearson's r comes from resampling the heads with replacement (percentiles of `draws` correlations; Efron
1979). Scores of heads are mostly 0 with a few large ones, so Fisher's formula, which assumes normal data, would be far too
narrow; where one or two heads carry the correlation, the resampled ones spread, and the interval shows it. What other
texts or pairs would have given is not in it. Resampled maps that are constant are left out.

A correlation is NaN where one of the two maps is constant. Cost: one product (draws x heads) per map.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.stats.ranks import ranks

Floats = NDArray[np.float64]

MIN_CELLS = 3  # below which no correlation is computed


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
    """Pearson's r of two maps of one shape; cells that are NaN in either are left out.

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
    if size < MIN_CELLS or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Correlation(np.nan, np.nan, np.nan)
    weights = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=draws)  # (draw, cell)
    resampled = _pearson(a - a.mean(), b - b.mean(), weights)
    whole = _pearson(a - a.mean(), b - b.mean(), np.ones((1, size)))
    low, high = np.nanpercentile(resampled, [2.5, 97.5]) if np.isfinite(resampled).any() else (np.nan, np.nan)
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
            if known.sum() >= MIN_CELLS and np.ptp(a[known]) > 0 and np.ptp(b[known]) > 0:
                table[i, j] = np.corrcoef(a[known], b[known])[0, 1]
    return table


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation, ties given their mean rank; pairs with a NaN are left out.

    Args:
        a: numbers.
        b: as many.

    Returns:
        From -1 to 1, to twelve digits; NaN with fewer than three pairs, or where one side is constant.

    Examples:
        >>> spearman([1.0, 2.0, 3.0], [1.0, 8.0, 27.0])
        1.0
    """
    pairs = np.stack([np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    if pairs.shape[1] < MIN_CELLS or (np.ptp(pairs, axis=1) == 0).any():
        return math.nan
    ranked = rank_vectors(pairs)
    return round(float(ranked[0] @ ranked[1]), 12)


def rank_vectors(maps: ArrayLike) -> Floats:
    """Rows as ranks of mean 0 and length 1: the product of two is their rank correlation. A constant row is 0.

    Args:
        maps: (map, cell), without NaN.

    Returns:
        (map, cell).

    Examples:
        >>> vectors = rank_vectors([[1.0, 2.0, 3.0], [30.0, 20.0, 10.0]])
        >>> (vectors @ vectors.T).round(2)
        array([[ 1., -1.],
               [-1.,  1.]])
    """
    centred = ranks(maps, axis=1)
    centred -= centred.mean(axis=1, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)


def _pearson(a: Floats, b: Floats, weights: np.ndarray) -> Floats:
    """Under each row of weights, (draw,); `a` and `b` centred, so that nothing cancels."""
    total = weights.sum(axis=1)
    mean_a, mean_b = weights @ a / total, weights @ b / total
    variance_a = weights @ (a * a) / total - mean_a**2
    variance_b = weights @ (b * b) / total - mean_b**2
    covariance = weights @ (a * b) / total - mean_a * mean_b
    floor = 1e-12
    known = (variance_a > floor * (a * a).mean()) & (variance_b > floor * (b * b).mean())
    return np.where(known, covariance / np.sqrt(np.where(known, variance_a * variance_b, 1.0)), np.nan)
