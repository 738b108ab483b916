"""Which heads are alike, over everything that is known of them?

Every column is turned into ranks between 0 and 1. Within a study, the distance of two heads is the mean square of their
differences over the columns that both have; over the studies that both were measured in, the mean of these, and its root:

    d(i, j)² = mean over studies of  mean over columns of (r_i - r_j)²

A column that is the same for all heads tells nothing and is left out. So a study with sixty columns counts as much as one
with a single column. Heads that have nothing to do with each other are √(1/6) = 0.41 apart on average.

Controls. In a large model every head has a near one, so two things are said with each neighbour: which share of all pairs
of heads is farther apart, and how near the nearest head would be in a record whose studies have been shuffled against
each other within layers (each study keeps its own maps, but what it says of one head is joined to what another says of
another head of the same layer). A neighbour nearer than that is alike in several studies at once.

Cost: heads² x columns multiplications, in blocks of rows. This module does not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.analysis.columns import Columns
from headwise.analysis.rank_stats import places

__all__ = ["Neighbour", "Neighbourhood"]

BLOCK = 512  # rows of distances held at once
PAIRS = 200_000  # pairs of heads drawn for the spread of distances, where there are more
SHUFFLED_ROWS = 256  # heads whose nearest is looked for in each shuffled record
SHUFFLES = 8
NAMED = 3  # columns named of a neighbour


@dataclass(frozen=True)
class Neighbour:
    """A head that is near another in the joined record.

    Examples:
        >>> from headwise.analysis import columns_of
        >>> columns = columns_of({"profile": atlas["profile"], "spectral": atlas["spectral"]})
        >>> nearest = Neighbourhood(columns).of("L3H2", most=1)[0]
        >>> nearest.studies, 0 < nearest.distance < 1
        (2, True)
    """

    name: str
    """such as "L3H7\" """
    distance: float
    """0: the same rank in everything; 0.41: unrelated"""
    nearer_than: float
    """0 to 1: share of all pairs of heads in the model that are farther apart"""
    by_chance: float
    """0 to 1: share of heads whose nearest is as near in a record with its studies shuffled; NaN with one study"""
    shares: tuple[str, ...] = ()
    """columns in which both stand out alike, the most telling first"""
    differs: tuple[str, ...] = ()
    """columns in which they differ most"""
    studies: int = 0
    """how many studies both were measured in"""


class Neighbourhood:
    """The joined record as ranks, ready to be asked for the nearest heads of any head.

    Args:
        columns: what `columns_of` gave.
        seed: of the shuffled records that it is held against.

    Examples:
        >>> from headwise.analysis import columns_of
        >>> columns = columns_of({"profile": atlas["profile"], "spectral": atlas["spectral"]})
        >>> len(Neighbourhood(columns).of("L3H2", most=3))
        3
    """

    def __init__(self, columns: Columns, *, seed: int = 0) -> None:
        self.names = columns.names
        telling = [column for column in columns.columns if _varies(column.values)]
        self.labels = [column.name for column in telling]
        self.ranks = places(Columns(columns.layers, columns.heads, tuple(telling)).matrix())[0] / 100  # (head, column)
        order = list(dict.fromkeys(column.study for column in telling))
        self._study = np.array([order.index(column.study) for column in telling], dtype=int)
        self._tables = self._by_study(self.ranks)
        self._layer = np.repeat(np.arange(columns.layers), columns.heads)
        generator = np.random.default_rng(seed)
        self.spread = self._spread(generator)  # sorted distances of pairs
        self.chance = self._chance(generator)  # sorted distances to the nearest, in shuffled records

    def of(self, name: str, most: int = 5) -> tuple[Neighbour, ...]:
        """The nearest heads, nearest first; none for a head that nothing was measured of."""
        row = self.names.index(name)
        distance, studies = self._distances(_rows(self._tables, [row]), self._tables)
        distance, studies = distance[0], studies[0]
        distance[row] = np.nan
        order = [int(place) for place in np.argsort(distance, kind="stable")[:most] if np.isfinite(distance[place])]
        return tuple(self._told(row, other, distance[other], int(studies[other])) for other in order)

    def _told(self, row: int, other: int, distance: float, studies: int) -> Neighbour:
        one, two = self.ranks[row] - 0.5, self.ranks[other] - 0.5
        alike = np.where((one * two > 0) & (np.abs(one - two) < 0.25), np.minimum(np.abs(one), np.abs(two)), np.nan)
        return Neighbour(
            name=self.names[other],
            distance=float(distance),
            nearer_than=_share_over(self.spread, distance),
            by_chance=1 - _share_over(self.chance, distance),
            shares=self._largest(alike, 0.25),
            differs=self._largest(np.abs(one - two), 0.25),
            studies=studies,
        )

    def _largest(self, values: np.ndarray, least: float) -> tuple[str, ...]:
        order = np.argsort(-values, kind="stable")[:NAMED]  # NaN is last
        return tuple(self.labels[place] for place in order if values[place] >= least)

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
        """Distances of all pairs of heads, or of many drawn ones; sorted."""
        count = len(self.names)
        if count * (count - 1) // 2 <= PAIRS:
            found = [
                self._distances(_rows(self._tables, np.arange(start, min(start + BLOCK, count))), self._tables)[0][
                    np.arange(count)[None, :] > np.arange(start, min(start + BLOCK, count))[:, None]
                ]
                for start in range(0, count, BLOCK)
            ]
            return _finite(np.concatenate(found)) if found else np.empty(0)
        rows = generator.choice(count, size=min(count, PAIRS // count + 1), replace=False)
        distance = self._distances(_rows(self._tables, rows), self._tables)[0]
        distance[np.arange(len(rows)), rows] = np.nan
        return _finite(distance)

    def _chance(self, generator: np.random.Generator) -> np.ndarray:
        """Distances to the nearest head when studies are shuffled against each other within layers; sorted."""
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
    """Ranks (head, column), made ready once: 0 in the place of what is missing, their squares, and what is there."""

    filled: np.ndarray
    square: np.ndarray
    there: np.ndarray

    @classmethod
    def of(cls, ranks: np.ndarray) -> _Table:
        filled = np.nan_to_num(ranks)
        return cls(filled, filled**2, np.isfinite(ranks).astype(float))


def _rows(tables: list[_Table], places: Sequence[int] | np.ndarray) -> list[_Table]:
    return [_Table(one.filled[places], one.square[places], one.there[places]) for one in tables]


def _mean_square(rows: _Table, others: _Table) -> tuple[np.ndarray, np.ndarray]:
    """Over the columns that both have: the mean squared difference, and whether there are any; by products of matrices."""
    shared = rows.there @ others.there.T
    square = rows.square @ others.there.T + rows.there @ others.square.T - 2 * rows.filled @ others.filled.T
    return np.maximum(square, 0) / np.maximum(shared, 1), shared > 0


def _varies(values: np.ndarray) -> bool:
    there = values[np.isfinite(values)]
    return bool(there.size and there.max() > there.min())


def _share_over(ordered: np.ndarray, value: float) -> float:
    """The share of sorted numbers that lie over a value; NaN where there are none."""
    return 1 - float(np.searchsorted(ordered, value, side="right")) / len(ordered) if len(ordered) else float("nan")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.sort(values[np.isfinite(values)], axis=None)
