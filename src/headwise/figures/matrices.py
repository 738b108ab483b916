"""Small matrices of names by names: numbers in the cells, short names on the axes, and a tree of the rows that are alike.

Long names become letters that a note explains. The tree is made by average linkage: every row is a cluster, and the two
clusters with the smallest mean distance (1 - correlation, over all pairs of their rows) become one, until one is left. An
unknown correlation counts as 0. Cost: rows cubed, for dozens of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwise.figures.panels import Axis, Frame, Heatmap, Mark

__all__ = ["Join", "Tree", "tree_of"]


MAX_NAME_LETTERS = 16  # that fit next to a map


def written_matrix(
    key: str, title: str, values: np.ndarray, x: Axis, y: Axis, scale: str, *,
    framed: np.ndarray | None = None, subtitle: str = "", missing: str = "not measured",
) -> Heatmap:  # fmt: skip
    """A matrix with its numbers; ``framed`` are the cells with a box around them."""
    marks = tuple(
        Mark(int(row), int(column), short_number(float(values[row, column])), "text")
        for row, column in np.argwhere(np.isfinite(values))
    )
    boxes = [] if framed is None else np.argwhere(framed & np.isfinite(values)).tolist()
    frames = tuple(Frame(row, row, column, column) for row, column in boxes)
    return Heatmap(key, title, values, x, y, scale, subtitle, frames, marks, missing=missing)


def short_number(value: float) -> str:
    """Two decimals without the leading zero.

    >>> short_number(0.123), short_number(-0.5), short_number(1.0), short_number(-0.001)
    ('.12', '−.50', '1', '.00')
    """
    text = f"{value:.2f}"
    if float(text) == 0:
        return ".00"
    if abs(float(text)) >= 1:
        return f"{value:.2g}".replace("-", "−")
    return text.replace("0.", ".", 1).replace("-", "−")


def short_names(topics: Sequence[str]) -> dict[str, str]:
    """What is written at each topic.

    >>> short_names(["art", "body"])
    {'art': 'art', 'body': 'body'}
    >>> short_names(["animals, art, body", "rivers"])
    {'animals, art, body': 'A', 'rivers': 'B'}
    """
    if all(len(topic) <= MAX_NAME_LETTERS for topic in topics):
        return {topic: topic for topic in topics}
    return {topic: chr(ord("A") + index) for index, topic in enumerate(topics)}


def letter_note(names: dict[str, str]) -> str:
    """What the letters stand for, as a sentence; nothing where there are none."""
    entries = [f"{letter}: {topic}" for topic, letter in names.items() if letter != topic]
    return f"{'; '.join(entries)}." if entries else ""


@dataclass(frozen=True)
class Join:
    """Two branches that are joined, as a bracket: their positions among the leaves, their heights, the height of the join."""

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
