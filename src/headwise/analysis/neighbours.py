"""Which heads are similar, over everything that is known about them?

Every column becomes ranks between 0 and 1. Within a study the squared distance of two heads is the mean square of their
rank differences over the columns that both have; over the studies that measured both, the mean of these:

    d(i, j)² = mean over studies of  mean over columns of (r_i - r_j)²

Constant columns are left out. A study with sixty columns counts as much as a study with one. Unrelated heads have an
expected distance of √(1/6) = 0.41.

Controls. In a large model every head has a close neighbour, so each neighbour comes with two references: the share of all
pairs of heads that are farther apart, and how close the nearest head is when the studies are shuffled against each other
within layers (each study keeps its maps, but its row of one head is joined to another study's row of another head of the
same layer). A neighbour closer than that is similar in several studies at once.

Cost: heads² x columns multiplications, in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.analysis.columns import Columns
from headwise.stats.blas import single_threaded_blas
from headwise.stats.ranks import rank_stats

BLOCK_ROWS = 512  # of distances in memory at once
MAX_PAIRS = 200_000  # pairs of heads for the distribution of distances; sampled where there are more
SHUFFLED_ROWS = 256  # heads whose nearest is searched in each shuffled table
SHUFFLES = 8
NAMED_COLUMNS = 3  # per neighbour
MIN_RANK_GAP = 0.25  # from the median rank (similar columns) or from each other (different columns)


@dataclass(frozen=True)
class Neighbour:
    """A head that is similar to another.

    Examples:
        >>> from headwise.analysis import columns_of
        >>> columns = columns_of({"profile": atlas["profile"], "spectral": atlas["spectral"]})
        >>> nearest = Neighbourhood(columns).of("L3H2", n=1)[0]
        >>> nearest.studies, 0 < nearest.distance < 1
        (2, True)
    """

    name: str
    """such as "L3H7\" """
    distance: float
    """0: the same rank in every column; 0.41: unrelated"""
    closer_than: float
    """0 to 1: share of all pairs of heads in the model that are farther apart"""
    by_chance: float
    """0 to 1: share of heads whose nearest is as close with the studies shuffled; NaN with one study"""
    shares: tuple[str, ...] = ()
    """columns in which both stand out in the same direction, the most extreme first"""
    differs: tuple[str, ...] = ()
    """columns in which they differ most"""
    studies: int = 0
    """studies that measured both"""


class Neighbourhood:
    """The head table as ranks: finds the nearest heads of any head.

    Args:
        columns: from `columns_of`.
        seed: of the shuffled tables used as reference.

    Examples:
        >>> from headwise.analysis import columns_of
        >>> columns = columns_of({"profile": atlas["profile"], "spectral": atlas["spectral"]})
        >>> len(Neighbourhood(columns).of("L3H2", n=3))
        3
    """

    @single_threaded_blas
    def __init__(self, columns: Columns, *, seed: int = 0) -> None:
        self.names = columns.names
        varying = [column for column in columns.columns if _varies(column.values)]
        self.labels = [column.name for column in varying]
        self.ranks = (
            rank_stats(Columns(columns.layers, columns.heads, tuple(varying)).matrix())[0] / 100
        )  # (head, column)
        order = list(dict.fromkeys(column.study for column in varying))
        self._study = np.array([order.index(column.study) for column in varying], dtype=int)
        self._tables = self._by_study(self.ranks)
        self._layer = np.repeat(np.arange(columns.layers), columns.heads)
        generator = np.random.default_rng(seed)
        self.spread = self._spread(generator)  # sorted distances of pairs
        self.chance = self._chance(generator)  # sorted distances to the nearest, in shuffled tables

    @single_threaded_blas
    def of(self, name: str, n: int = 5) -> tuple[Neighbour, ...]:
        """The nearest heads, nearest first; none for a head without measurements."""
        row = self.names.index(name)
        distance, studies = self._distances(_rows(self._tables, [row]), self._tables)
        distance, studies = distance[0], studies[0]
        distance[row] = np.nan
        order = [int(index) for index in np.argsort(distance, kind="stable")[:n] if np.isfinite(distance[index])]
        return tuple(self._neighbour(row, other, distance[other], int(studies[other])) for other in order)

    def _neighbour(self, row: int, other: int, distance: float, studies: int) -> Neighbour:
        one, two = self.ranks[row] - 0.5, self.ranks[other] - 0.5
        alike = np.where(
            (one * two > 0) & (np.abs(one - two) < MIN_RANK_GAP), np.minimum(np.abs(one), np.abs(two)), np.nan
        )
        return Neighbour(
            name=self.names[other],
            distance=float(distance),
            closer_than=_share_over(self.spread, distance),
            by_chance=1 - _share_over(self.chance, distance),
            shares=self._largest(alike),
            differs=self._largest(np.abs(one - two)),
            studies=studies,
        )

    def _largest(self, values: np.ndarray) -> tuple[str, ...]:
        order = np.argsort(-values, kind="stable")[:NAMED_COLUMNS]  # NaN is last
        return tuple(self.labels[index] for index in order if values[index] >= MIN_RANK_GAP)

    def _by_study(self, ranks: np.ndarray) -> list[_Table]:
        return [_Table.of(ranks[:, self._study == study]) for study in np.unique(self._study)]

    def _distances(self, rows: list[_Table], others: list[_Table]) -> tuple[np.ndarray, np.ndarray]:
        """(row, other): distance, and the number of studies it is over."""
        total, studies = np.zeros((2, len(rows[0].filled) if rows else 0, len(self.names)))
        for one, other in zip(rows, others, strict=True):
            square, shared = _mean_square(one, other)
            total += np.where(shared, square, 0)
            studies += shared
        with np.errstate(invalid="ignore"):
            return np.sqrt(total / np.where(studies > 0, studies, np.nan)), studies

    def _spread(self, generator: np.random.Generator) -> np.ndarray:
        """Distances of all pairs of heads, or of a sample; sorted."""
        count = len(self.names)
        if not self._tables:  # no study of this atlas has numbers per head
            return np.empty(0)
        if count * (count - 1) // 2 <= MAX_PAIRS:
            found = [
                self._distances(_rows(self._tables, np.arange(start, min(start + BLOCK_ROWS, count))), self._tables)[0][
                    np.arange(count)[None, :] > np.arange(start, min(start + BLOCK_ROWS, count))[:, None]
                ]
                for start in range(0, count, BLOCK_ROWS)
            ]
            return _finite(np.concatenate(found)) if found else np.empty(0)
        rows = generator.choice(count, size=min(count, MAX_PAIRS // count + 1), replace=False)
        distance = self._distances(_rows(self._tables, rows), self._tables)[0]
        distance[np.arange(len(rows)), rows] = np.nan
        return _finite(distance)

    def _chance(self, generator: np.random.Generator) -> np.ndarray:
        """Distances to the nearest head with the studies shuffled against each other within layers; sorted."""
        if len(np.unique(self._study)) < 2:
            return np.empty(0)
        found = []
        for _ in range(SHUFFLES):
            shuffled = self.ranks.copy()
            for study in np.unique(self._study):
                order = np.lexsort((generator.random(len(self.names)), self._layer))
                shuffled[:, self._study == study] = self.ranks[np.ix_(order, self._study == study)]
            rows = generator.choice(len(self.names), size=min(SHUFFLED_ROWS, len(self.names)), replace=False)
            tables = self._by_study(shuffled)
            distance = self._distances(_rows(tables, rows), tables)[0]
            distance[np.arange(len(rows)), rows] = np.nan
            found.append(np.nanmin(np.where(np.isnan(distance), np.inf, distance), axis=1))
        return _finite(np.concatenate(found))


@dataclass(frozen=True, eq=False)
class _Table:
    """Ranks (head, column) prepared for matrix products: missing ranks as 0, their squares, and a mask of what is known."""

    filled: np.ndarray
    square: np.ndarray
    known: np.ndarray

    @classmethod
    def of(cls, ranks: np.ndarray) -> _Table:
        filled = np.nan_to_num(ranks)
        return cls(filled, filled**2, np.isfinite(ranks).astype(float))


def _rows(tables: list[_Table], rows: Sequence[int] | np.ndarray) -> list[_Table]:
    return [_Table(one.filled[rows], one.square[rows], one.known[rows]) for one in tables]


def _mean_square(rows: _Table, others: _Table) -> tuple[np.ndarray, np.ndarray]:
    """Over the columns that both have: the mean squared difference, and whether there are any; by matrix products."""
    shared = rows.known @ others.known.T
    square = rows.square @ others.known.T + rows.known @ others.square.T - 2 * rows.filled @ others.filled.T
    return np.maximum(square, 0) / np.maximum(shared, 1), shared > 0


def _varies(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.max() > finite.min())


def _share_over(ordered: np.ndarray, value: float) -> float:
    """The share of sorted numbers above a value; NaN where there are none."""
    return 1 - float(np.searchsorted(ordered, value, side="right")) / len(ordered) if len(ordered) else float("nan")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.sort(values[np.isfinite(values)], axis=None)
