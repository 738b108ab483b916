"""Heads in another order, for a test of whether two maps have to do with each other.

Two ways. Over the whole model: any head may take any other's place. Within layers: a head takes the place of another of the
same layer, and heads that share keys and values stay together (whole groups change places, and heads inside a group), so
that neither depth nor a shared W_K, W_V can make two maps look alike by themselves. Where layers have few heads, adjacent
layers are taken together until there are enough to shuffle; where the groups of a layer are unequal (heads missing), its
heads are shuffled one by one.

    order = next(shuffled(layer, group, 64, generator))      # (64, heads): row r puts head order[r, i] in place i

Cost: a sort a shuffle. This module does not know what is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["bands", "shuffled", "shuffled_within"]

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
