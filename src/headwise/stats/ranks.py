"""How does a value rank among the others? Ranks with ties, and a head's percentile among all heads.

Ties share their mean rank, as in every rank test here (or the smallest one). The percentile of a head is the share of the
other measured heads with a smaller value, ties counted half: 0 is the smallest of all, 100 the largest, 50 the median. Heads
that were not measured (NaN) stay NaN and do not count.

Written with numpy alone, because everything that reads an atlas ranks heads, and ``scipy.stats`` takes as long to import as
all the rest. The ranks are scipy's, bit for bit. `placements`, what rank tests and areas need, come from one sort as well.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Labels = NDArray[np.bool_]


def ranks(
    values: ArrayLike, axis: int = 0, *, ties: Literal["mean", "smallest"] = "mean", omit_nan: bool = False
) -> Floats:
    """The ranks along an axis, from 1.

    Args:
        values: numbers.
        axis: what is ranked.
        ties: the rank that equal values share: their mean, or the smallest of them.
        omit_nan: rank the others as if NaN were not there; otherwise all ranks of a row with a NaN are NaN.

    Returns:
        An array of the same shape; NaN stays NaN.

    Examples:
        >>> ranks([10.0, 30.0, 10.0, 20.0])
        array([1.5, 4. , 1.5, 3. ])
        >>> ranks([10.0, 30.0, 10.0, 20.0], ties="smallest")
        array([1., 4., 1., 3.])
        >>> ranks([1.0, np.nan]), ranks([1.0, np.nan], omit_nan=True)
        (array([nan, nan]), array([ 1., nan]))
    """
    rows = np.moveaxis(np.asarray(values), axis, -1)
    order = np.argsort(rows, axis=-1)  # NaN last
    ordered = np.take_along_axis(rows, order, axis=-1)
    place = np.arange(rows.shape[-1])
    changes = ordered[..., 1:] != ordered[..., :-1]  # to another value than the one before
    first = np.zeros(rows.shape, dtype=np.int64)
    np.maximum.accumulate(np.where(changes, place[1:], 0), axis=-1, out=first[..., 1:])
    shared = first.astype(np.float64)
    if ties == "mean":
        last = np.full(rows.shape, len(place) - 1)
        backwards = np.where(changes, place[:-1], len(place) - 1)[..., ::-1]
        np.minimum.accumulate(backwards, axis=-1, out=last[..., -2::-1])
        shared = (first + last) / 2
    found = np.empty(rows.shape)
    np.put_along_axis(found, order, shared + 1, axis=-1)
    missing = np.isnan(rows)
    found[missing if omit_nan else missing.any(axis=-1)] = np.nan
    return np.moveaxis(found, -1, axis)


class Ordered(NamedTuple):
    """Columns in rising order; arrays are (column, place)."""

    order: Ints
    """the row of each place"""
    first: Ints
    """the first place of the values that are equal to this one"""
    last: Ints
    """the last such place"""

    @classmethod
    def of(cls, table: NDArray[Any]) -> Ordered:
        """Sort the columns of (row, ...)."""
        columns = np.ascontiguousarray(table.reshape(len(table), -1).T)
        order = np.argsort(columns, axis=1)
        values = np.take_along_axis(columns, order, axis=1)
        places = np.broadcast_to(np.arange(columns.shape[1]), columns.shape)
        new = values[:, 1:] != values[:, :-1]
        if new.all():
            return cls(order, places, places)
        first, last = np.zeros_like(order), np.full_like(order, columns.shape[1] - 1)
        np.maximum.accumulate(np.where(new, places[:, 1:], 0), axis=1, out=first[:, 1:])
        falling = np.where(new, places[:, :-1], columns.shape[1])[:, ::-1]
        last[:, :-1] = np.minimum(np.minimum.accumulate(falling, axis=1), last[:, :-1])[:, ::-1]
        return cls(order, first, last)

    def by_row(self, values: NDArray[Any], shape: tuple[int, ...]) -> Floats:
        """Values of places (column, place) -> (row, ...)."""
        found = np.empty(self.order.shape)
        np.put_along_axis(found, self.order, values, axis=1)
        return np.ascontiguousarray(found.T).reshape(shape)

    @property
    def tied(self) -> bool:
        """Whether any two numbers of a column are equal."""
        return self.first is not self.last

    def ties(self) -> Floats:
        """(column,): the sum of t³ - t over groups of t equal values."""
        if not self.tied:
            return np.zeros(len(self.order))
        t = (self.last - self.first + 1).astype(np.float64)
        return (t * t - 1).sum(axis=1)


class Placements(NamedTuple):
    """Where the answers of one class lie among those of the other. Made by `placements`."""

    share: Floats
    """(row, ...): the share of right answers below a wrong one, of wrong answers above a right one; ties count half"""
    ties: Floats
    """(...): the sum of t³ - t over groups of t equal values"""


def placements(table: NDArray[Any], labels: Labels) -> Placements:
    """The placements in every column of (row, ...); labels (row,) are True for wrong answers.

    >>> placements(np.array([2.0, 0.0, 1.0, 2.0]), np.array([True, True, False, False])).share
    array([0.75, 0.  , 0.5 , 0.25])
    """
    ordered = Ordered.of(table)
    wrong = labels[ordered.order]
    n_wrong, n_right = int(labels.sum()), int((~labels).sum())
    wrong_below = np.cumsum(wrong, axis=1, dtype=np.float64)
    if ordered.tied:  # those among equal values count half
        before = np.take_along_axis(wrong_below - wrong, ordered.first, axis=1)
        wrong_below = (before + np.take_along_axis(wrong_below, ordered.last, axis=1)) / 2
        right_below = (ordered.first + ordered.last + 1) / 2 - wrong_below
    else:
        right_below = ordered.first + 1 - wrong_below  # of a wrong answer, which is not below itself
    share = np.where(wrong, right_below / n_right, 1 - wrong_below / n_wrong)
    return Placements(ordered.by_row(share, table.shape), ordered.ties().reshape(table.shape[1:]))


def rank_stats(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of (head, column): percentile, rank (1 is the largest, ties share the best, 0: not measured), and measured heads.

    >>> percentile, rank, measured = rank_stats(np.array([[1.0], [3.0], [np.nan], [2.0]]))
    >>> percentile.ravel(), rank.ravel(), measured
    (array([  0., 100.,  nan,  50.]), array([3, 1, 0, 2]), array([3]))
    """
    finite = np.isfinite(values)
    measured = finite.sum(0)
    known = np.where(finite, values, np.nan)
    percentile = 100 * (ranks(known, omit_nan=True) - 1) / np.maximum(measured - 1, 1)
    percentile = np.where(finite & (measured == 1), 50.0, percentile)
    best = ranks(-known, ties="smallest", omit_nan=True)
    return percentile, np.where(finite, np.nan_to_num(best), 0).astype(int), measured


def percentile_per_map(maps: np.ndarray) -> np.ndarray:
    """Of (layer, head, map): each head's percentile among all heads of the map."""
    return rank_stats(maps.reshape(-1, maps.shape[-1]))[0].reshape(maps.shape)
