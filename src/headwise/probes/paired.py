"""Did a number change between two runs on the same examples? For every cell (a head, a statistic) at once.

For each cell the change of every example, after - before, gives

    change   its mean, with the 95 % interval of that mean (Student's t over examples)
    p        Wilcoxon's signed-rank test, two-sided, as `scipy.stats.wilcoxon` has it: exact up to 50 examples without
             ties, else normal with correction for ties. Examples that did not change are left out of it; a cell in
             which none did has p = 1
    q        Benjamini-Hochberg over all cells of a map (`multiplicity`)

A change smaller than `NOISE` is none: it is the rounding of float32. An example that is NaN on either side is left out of
its cell; a cell with fewer than `LEAST` examples is not tested and is NaN everywhere.

Cost: one sort of all cells; scipy would take ten milliseconds a cell. This module does not know whether examples are
independent: several cuttings of one text are less so than as many texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from headwise.core.dims import EXAMPLE, STATISTIC
from headwise.probes.multiplicity import q_of_maps

__all__ = ["interval_of_mean", "paired_changes"]

Floats = NDArray[np.float64]

NOISE = 1e-6
EXACT = 50  # examples: scipy's own limit
LEAST = 6  # with fewer, no change whatever gives p < 0.05


def paired_changes(before: xr.DataArray, after: xr.DataArray, *, maps: Sequence[str] = (STATISTIC,)) -> xr.Dataset:
    """Did anything change? The same examples twice, every cell tested (Wilcoxon's signed ranks).

    Args:
        before: (example, ...).
        after: of the same examples.
        maps: dims along which lie different maps, each with its own q-values.

    Returns:
        ``change`` (after - before) with its interval ``low`` and ``high``, ``p`` and ``q``; NaN with fewer than six
        examples.

    Examples:
        >>> before = xr.DataArray(np.arange(20.0).reshape(10, 2), dims=("example", "head"))
        >>> after = before + np.stack([np.zeros(10), 1 + np.arange(10) / 10], axis=1)  # head 1 rises
        >>> found = paired_changes(before, after, maps=())
        >>> found.change.values.round(2), found.q.values < 0.05
        (array([0.  , 1.45]), array([False,  True]))
    """
    after = after.transpose(*before.dims)
    difference = (after - before).transpose(EXAMPLE, ...).astype(np.float64)
    difference = difference.where((abs(difference) > NOISE) | difference.isnull(), 0.0)
    result = interval_of_mean(difference, EXAMPLE).rename(mean="change")
    tested = difference.notnull().sum(EXAMPLE) >= LEAST
    p = result["change"].copy(
        data=_wilcoxon(difference.values.reshape(difference.sizes[EXAMPLE], -1)).reshape(tested.shape)
    )
    result = result.assign(p=p).where(tested)
    return result.assign(q=q_of_maps(result["p"], maps))


def interval_of_mean(values: xr.DataArray, dim: str) -> xr.Dataset:
    """The mean along a dim and its 95 % interval (Student's t).

    Args:
        values: NaN is left out.
        dim: what is averaged over.

    Returns:
        ``mean``, ``low`` and ``high``; without an interval for a single value.

    Examples:
        >>> found = interval_of_mean(xr.DataArray([1.0, 2.0, 3.0, 6.0], dims="example"), "example")
        >>> float(found["mean"]), float(found["low"].round(2)), float(found["high"].round(2))
        (3.0, -0.44, 6.44)
    """
    count = values.notnull().sum(dim)
    mean = values.mean(dim)
    error = values.std(dim, ddof=1) / np.sqrt(count.where(count > 0))
    half = error * stats.t.ppf(0.975, np.maximum(count - 1, 1))
    return xr.Dataset({"mean": mean, "low": mean - half, "high": mean + half})


def _wilcoxon(table: Floats) -> Floats:
    """The p of every column of (example, cell)."""
    size = np.abs(np.nan_to_num(table))
    counted = size > 0
    count = counted.sum(axis=0)
    ranks = np.where(counted, stats.rankdata(size, axis=0) - (len(table) - count), 0.0)  # the unchanged rank lowest
    up, all_, squares = ((ranks * (table > 0)).sum(axis=0), ranks.sum(axis=0), (ranks**2).sum(axis=0))
    tied = squares < count * (count + 1) * (2 * count + 1) / 6 - 0.25
    p = np.ones(table.shape[1])
    exact = ~tied & (count <= EXACT) & (count > 0)
    for n in np.unique(count[exact]):
        here = exact & (count == n)
        p[here] = 2 * _below(int(n))[np.minimum(up, all_ - up)[here].astype(int)]
    rest = ~exact & (count > 0)
    z = np.abs(up[rest] - all_[rest] / 2) / np.sqrt(squares[rest] / 4)
    p[rest] = 2 * stats.norm.sf(z)
    return np.minimum(p, 1.0)


@cache
def _below(n: int) -> Floats:
    """P(the ranks 1 ... n that got a plus sum to at most w), for every w, when signs are tossed."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] += ways[: len(ways) - rank].copy()
    return np.cumsum(ways / 2.0**n)
