"""Heads to compare with: of the same layers, and near in the norm of what they write.

What a head costs is a matter of depth and of how much it writes before it is a matter of what it does. So a head is compared
with others of its layer whose output z W_O has a similar norm, on a log scale; a set of heads with sets that have as many
heads in every layer. Other important heads are not excluded from the controls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Head = tuple[int, int]  # layer, head
NEAREST = 3  # heads of the layer, by norm, among which a control is drawn
ATTEMPTS = 20  # per control set, to draw one that is different from the others


def matched_heads(norm: NDArray[np.float64], count: int) -> dict[Head, list[int]]:
    """Head -> at most `count` other heads of its layer, the nearest in norm first; none where it is alone.

    >>> matched_heads(np.array([[1.0, 4.0, 1.1, 3.0]]), 2)[0, 0]
    [2, 3]
    """
    found = {}
    logs = _logs(norm)
    for layer, row in enumerate(logs):
        there = np.flatnonzero(np.isfinite(row))
        for head in there:
            others = there[there != head]
            near = others[np.argsort(np.abs(row[others] - row[head]), kind="stable")][:count]
            if near.size:
                found[layer, int(head)] = near.tolist()
    return found


def matched_sets(
    own: Sequence[Head], norm: NDArray[np.float64], count: int, random: np.random.Generator
) -> list[list[Head]]:
    """At most `count` different sets that share no head with `own`: for each own head, in random order, one of the three heads
    of its layer that are nearest in norm and not yet taken; none where a layer has fewer others than own heads.

    >>> matched_sets([(0, 0)], np.array([[1.0, 4.0, 1.1, 3.0]]), 2, np.random.default_rng(0))
    [[(0, 1)], [(0, 3)]]
    """
    logs, taken = _logs(norm), set(own)
    every = [(int(layer), int(head)) for layer, head in np.argwhere(np.isfinite(logs))]
    others = {layer: [one for one in every if one[0] == layer and one not in taken] for layer, _ in own}
    possible = own and all(len(others[layer]) >= sum(one == layer for one, _ in own) for layer in others)
    found: dict[frozenset[Head], list[Head]] = {}
    for _ in range(ATTEMPTS * count if possible else 0):
        left = {layer: list(some) for layer, some in others.items()}
        drawn: list[Head] = []
        for index in random.permutation(len(own)):
            layer = own[index][0]
            left[layer].sort(key=lambda one, at=logs[own[index]]: abs(logs[one] - at))  # type: ignore[misc]
            drawn.append(left[layer].pop(int(random.integers(min(NEAREST, len(left[layer]))))))
        found.setdefault(frozenset(drawn), drawn)
        if len(found) == count:
            break
    return list(found.values())


def _logs(norm: NDArray[np.float64]) -> NDArray[np.float64]:
    """(layer, head): a pruned head writes nothing; NaN where a layer has no such head."""
    return np.log(np.maximum(norm, 1e-12))
