"""How sure is it that two head sets overlap, or two maps go together? By shuffling heads, all pairs at once.

For two sets A, B and two maps a, b over the same heads,

    overlap      |A ∩ B|, the heads in both; its odds ratio with 0.5 added to each cell of the 2 x 2 table
    correlation  Spearman's, of a and b

and what both are when the heads of one side are shuffled (`shuffles`): over the whole model, and within layers. A p-value is
the share of shuffles, the data counted among them, whose statistic lies as far from the shuffles' mean; two-sided, so that
sets which avoid each other are found too. q is Benjamini-Hochberg's over all pairs.

As a control, shuffled data are put in the place of the data a few hundred times, with the same test and the same q:
``by_chance`` is the mean number of pairs that pass then.

Cost: shuffles x sets² x heads multiplications: about a second for 24 sets, 270 heads and 10,000 shuffles.
This module does not know what the sets mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import false_discovery_control, rankdata

__all__ = [
    "Evidence",
    "Heads",
    "bands",
    "benjamini_hochberg",
    "evidence_of",
    "odds_ratio",
    "ranks",
    "shuffled",
    "shuffled_within",
    "within",
]

CONTROLS = 200  # shuffles put in the place of the data
BATCH_CELLS = 4_000_000  # numbers held at once


@dataclass(frozen=True, eq=False)
class Heads:
    """Where the heads stand, in the order of the columns of sets and maps: band by band."""

    band: np.ndarray
    group: np.ndarray


@dataclass(frozen=True, eq=False)
class Evidence:
    """One statistic of every pair; arrays are (pair,)."""

    observed: np.ndarray
    expected: np.ndarray
    low: np.ndarray
    """95 % of the shuffles lie from low to high"""
    high: np.ndarray
    p: np.ndarray
    q: np.ndarray
    by_chance: float


def evidence_of(
    first: np.ndarray,
    second: np.ndarray,
    sides: np.ndarray,
    heads: Heads,
    permutations: int,
    seed: int,
    *,
    inside: bool,
) -> Evidence:
    """The products of rows ``first[pair]`` and ``second[pair]`` of ``sides`` (row, head), and what shuffled heads give.

    Heads are shuffled over the whole model, or ``inside`` their bands.
    """
    generator = np.random.default_rng(seed)
    observed = (sides @ sides.T)[first, second]
    draws = np.empty((permutations, len(first)), dtype=np.float32)
    start, size = 0, max(1, BATCH_CELLS // sides.size)
    single = sides.astype(np.float32)
    columns = np.ascontiguousarray(single.T)  # (head, row)
    for count in batches(permutations, size):
        order = (
            shuffled_within(heads.band, heads.group, count, generator)
            if inside
            else shuffled(sides.shape[1], count, generator)
        )
        products = np.matmul(single, columns[order])  # (shuffle, row, row of which the heads were shuffled)
        draws[start : start + count] = products[:, second, first]
        start += count
    return _judged(observed, draws)


def ranks(maps: np.ndarray) -> np.ndarray:
    """Rows as ranks of mean 0 and length 1, so that the product of two is Spearman's correlation; a constant row is 0."""
    found = rankdata(maps, axis=1).astype(float)
    found -= found.mean(1, keepdims=True)
    length = np.sqrt((found**2).sum(1, keepdims=True))
    ranked: np.ndarray = np.divide(found, length, out=np.zeros_like(found), where=length > 0)
    return ranked


def within(maps: np.ndarray, band: np.ndarray) -> np.ndarray:
    """The same with each band's mean taken from its ranks: their product is the correlation that depth does not explain."""
    found = rankdata(maps, axis=1).astype(float)
    for each in np.unique(band):
        found[:, band == each] -= found[:, band == each].mean(1, keepdims=True)
    length = np.sqrt((found**2).sum(1, keepdims=True))
    left: np.ndarray = np.divide(found, length, out=np.zeros_like(found), where=length > 1e-9)
    return left


def odds_ratio(both: float, one: float, other: float, heads: int) -> float:
    """Of two sets of ``one`` and ``other`` heads that share ``both``.

    >>> round(odds_ratio(5, 10, 10, 100), 2)
    15.55
    """
    cells = (both, one - both, other - both, heads - one - other + both)
    a, b, c, d = (float(cell) + 0.5 for cell in cells)
    return a * d / (b * c)


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """q-values; NaN is not tested and stays NaN.

    >>> benjamini_hochberg(np.array([0.01, 0.04, np.nan]))
    array([0.02, 0.04,  nan])
    """
    q = np.full(p.shape, np.nan)
    there = np.isfinite(p)
    if there.any():
        q[there] = false_discovery_control(p[there], method="bh")
    return q


def _judged(observed: np.ndarray, draws: np.ndarray) -> Evidence:
    mean = draws.mean(0, dtype=np.float64)
    away = np.sort(np.abs(draws - mean), axis=0)
    fixed = draws.std(0) < 1e-6  # nothing can be shuffled: an empty set, a constant map
    p = _share(away, np.abs(observed - mean))
    p[fixed] = np.nan
    chance = [
        int((benjamini_hochberg(np.where(fixed, np.nan, _share(away, np.abs(draw - mean)))) < 0.05).sum())
        for draw in draws[:CONTROLS]
    ]
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return Evidence(observed, mean, low, high, p, benjamini_hochberg(p), float(np.mean(chance)))


def _share(away: np.ndarray, far: np.ndarray) -> np.ndarray:
    """The share of shuffles as far away, the data counted among them; (pair,)."""
    count = len(away)
    over = [count - np.searchsorted(away[:, pair], far[pair] - 1e-6, side="left") for pair in range(away.shape[1])]
    return (1 + np.array(over, dtype=float)) / (1 + count)


LEAST = 4  # heads that are worth shuffling among themselves


def bands(layer: np.ndarray, least: int = LEAST) -> np.ndarray:
    """A number a head: its layer, adjacent layers taken together until each has ``least`` heads.

    >>> bands(np.array([0, 0, 1, 1, 2, 2, 3]), least=3)
    array([0, 0, 0, 0, 1, 1, 1])
    """
    band, found, size = 0, {}, 0
    numbers, counts = np.unique(layer, return_counts=True)
    for place, (number, count) in enumerate(zip(numbers, counts, strict=True)):
        found[number] = band
        size += count
        if size >= least and counts[place + 1 :].sum() >= least:
            band, size = band + 1, 0
    return np.array([found[number] for number in layer], dtype=int)


def shuffled(heads: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """(count, heads): orders of all heads."""
    return np.argsort(generator.random((count, heads)), axis=1)


def shuffled_within(band: np.ndarray, group: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """(count, heads): orders in which heads stay in their band, and groups stay whole. Heads must come band by band."""
    unit = _units(band, group)
    first = np.unique(unit, return_index=True)[1]
    order = np.argsort(band[first][None, :] + generator.random((count, len(first))), axis=1)  # of units
    place = np.argsort(order, axis=1)  # where each unit comes to stand
    key = place[:, unit] + generator.random((count, len(unit)))
    return np.argsort(key, axis=1)


def batches(total: int, size: int) -> Iterator[int]:
    """How many shuffles to draw at a time."""
    while total > 0:
        yield min(size, total)
        total -= size


def _units(band: np.ndarray, group: np.ndarray) -> np.ndarray:
    """What changes places: groups, or single heads in a band whose groups are unequal. Numbered in order of the heads."""
    unit, number = np.zeros(len(band), dtype=int), 0
    for each in np.unique(band):
        own = np.flatnonzero(band == each)
        _, sizes = np.unique(group[own], return_counts=True)
        labels = group[own] if len(set(sizes.tolist())) == 1 else np.arange(len(own))
        _, label = np.unique(labels, return_inverse=True)
        unit[own] = number + label
        number += int(label.max()) + 1
    return unit
