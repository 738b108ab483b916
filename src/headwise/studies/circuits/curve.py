"""How large must a circuit be? Scores of growing sets, and closer and closer around the size that explains enough.

    share(n) = (mean score with n kept - mean corrupt score) / (mean clean score - mean corrupt score)

A coarse row of sizes is measured first; then the gap between the largest size that is below the goal and the next is
halved (by factors) until its ends differ by less than a tenth. All is exact at all kept: there the score is the clean one.

This module does not know what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["needed", "sizes_up_to", "trace"]

Floats = NDArray[np.float64]
CLOSE = 1.1  # two sizes whose factor is below this are not told apart


def sizes_up_to(total: int, *, first: int, factor: int) -> list[int]:
    """Growing sizes below the total.

    >>> sizes_up_to(20, first=1, factor=2)
    [1, 2, 4, 8, 16]
    """
    sizes = []
    while first < total:
        sizes.append(first)
        first *= factor
    return sizes


def trace(
    measure: Callable[[Sequence[int]], Floats],
    sizes: Sequence[int],
    total: int,
    clean: Floats,
    corrupt: Floats,
    goal: float,
) -> tuple[list[int], Floats]:
    """Sizes in order and scores (size, prompt); `measure` gives the scores of some sizes, clean and corrupt are (prompt,)."""
    found = dict(zip(sizes, measure(sizes), strict=True)) | {total: clean}
    while True:
        order = sorted(found)
        above = needed(order, _shares([found[size] for size in order], clean, corrupt), goal)
        below = max((size for size in order if size < above), default=0)
        middle = round((max(below, 1) * above) ** 0.5)
        if above <= below + 1 or above < CLOSE * below or middle in found:
            return order, np.stack([found[size] for size in order])
        found[middle] = measure([middle])[0]


def needed(sizes: Sequence[int], shares: Floats, goal: float) -> int:
    """The least size from which on the share stays at or above the goal; sizes in order, the last is all.

    >>> needed([1, 2, 4, 8], np.array([0.95, 0.3, 0.92, 1.0]), 0.9)
    4
    """
    below = np.flatnonzero(np.asarray(shares) < goal)
    return int(sizes[min(below[-1] + 1, len(sizes) - 1)] if below.size else sizes[0])


def _shares(scores: Sequence[Floats], clean: Floats, corrupt: Floats) -> Floats:
    return (np.mean(scores, axis=1) - corrupt.mean()) / (clean.mean() - corrupt.mean())
