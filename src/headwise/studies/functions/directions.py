"""Along which direction of a head's z do right answers differ from wrong ones? What augmenting adds.

    d_h = σ · u,   u = unit(mean z of right answers - mean z of wrong answers),   σ = deviation of z along u

over the *training* steps of one function; held-out steps are never looked at. So an amount of 1 is one standard deviation
towards the right answers (inference-time intervention, Li et al. 2023, as Ma et al. use it). NaN where there are fewer than
`LEAST` right or `LEAST` wrong answers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST", "direction"]

LEAST = 5


def direction(z: NDArray[np.floating], right: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(layer, head, width) from z (step, layer, head, width) of one function's training steps."""
    if right.sum() < LEAST or (~right).sum() < LEAST:
        return np.full(z.shape[1:], np.nan, dtype=np.float32)
    gap = z[right].mean(axis=0, dtype=np.float64) - z[~right].mean(axis=0, dtype=np.float64)
    length = np.linalg.norm(gap, axis=-1, keepdims=True)
    unit = gap / np.where(length > 0, length, 1)
    along = np.einsum("nlhw,lhw->nlh", z.astype(np.float64), unit)
    return np.asarray(along.std(axis=0)[..., None] * unit, dtype=np.float32)
