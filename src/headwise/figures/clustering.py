"""Which rows of a matrix of correlations are alike? A tree of them, by average linkage.

Steps: every row is a cluster; the two clusters with the smallest mean distance (1 - correlation, over all pairs of their
rows) become one, until one is left. Cost: rows cubed, for dozens of rows. A correlation that is not known counts as 0.
This module does not know what the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Join", "Tree", "tree_of"]


@dataclass(frozen=True)
class Join:
    """Two branches that become one, as a bracket: where they stand among the leaves, how far they came, where they meet."""

    upper: float
    lower: float
    upper_from: float
    lower_from: float
    distance: float


@dataclass(frozen=True)
class Tree:
    """The rows from top to bottom, similar rows adjacent, and the joins from the nearest to the farthest."""

    order: tuple[int, ...]
    joins: tuple[Join, ...]


def tree_of(correlations: np.ndarray) -> Tree:
    """The tree of a symmetric matrix.

    >>> tree_of(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]])).order
    (0, 2, 1)
    """
    distances = 1 - np.nan_to_num(np.asarray(correlations, dtype=float), nan=0.0)  # (row, row)
    clusters: list[tuple[int, ...]] = [(row,) for row in range(len(distances))]
    merges: list[tuple[tuple[int, ...], tuple[int, ...], float]] = []
    while len(clusters) > 1:
        apart = {
            (one, other): float(distances[np.ix_(clusters[one], clusters[other])].mean())
            for one in range(len(clusters))
            for other in range(one + 1, len(clusters))
        }
        (one, other), distance = min(apart.items(), key=lambda item: item[1])
        merges.append((clusters[one], clusters[other], distance))
        clusters[one] += clusters.pop(other)
    order = clusters[0] if clusters else ()
    return Tree(order, _joins(order, merges))


def _joins(order: tuple[int, ...], merges: list[tuple[tuple[int, ...], tuple[int, ...], float]]) -> tuple[Join, ...]:
    middle: dict[tuple[int, ...], float] = {(row,): float(position) for position, row in enumerate(order)}
    came: dict[tuple[int, ...], float] = {(row,): 0.0 for row in order}
    joins = []
    for one, other, distance in merges:
        joins.append(Join(middle[one], middle[other], came[one], came[other], distance))
        middle[one + other], came[one + other] = (middle[one] + middle[other]) / 2, distance
    return tuple(joins)
