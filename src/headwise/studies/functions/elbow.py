"""How many heads belong to a function? Up to the elbow of its sorted importance.

The curve runs from the largest value to the smallest, both axes stretched to 0..1; the elbow is its point furthest below
the chord between its ends. Heads up to it are chosen. It is a way to cut a curve, not a test: see `chance` for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["elbow"]


def elbow(values: NDArray[np.floating]) -> int:
    """How many of the sorted values, largest first, stand up to the elbow; 0 where all are equal.

    >>> elbow(np.array([9.0, 8.0, 1.0, 0.9, 0.8, 0.0]))
    3
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 3 or np.ptp(values) == 0:
        return 0
    along = np.linspace(0, 1, len(values))
    height = (values - values[-1]) / (values[0] - values[-1])
    below = 1 - along - height  # how far the curve lies below the chord
    return int(below.argmax()) + 1 if below.max() > 0 else 0
