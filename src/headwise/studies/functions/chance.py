"""What is an importance worth when labels mean nothing? p-values from probes that were trained on shuffled labels.

Each shuffle gives a map a class. A head's null is all of them: its mean and its spread. How far the real importance lies
from that mean, in these spreads, is compared with how far every null value of every head lies from its own: pooled, so
that few shuffles give small p-values too.

    p = (1 + #{null values at least as far}) / (1 + #null values),   two-sided;   q: Benjamini-Hochberg over heads

Real maps are means over several seeds, null maps are of one probe each and so vary more: the test errs on the careful
side. It says that a head carries more about this function than about nothing; it does not say that the model needs it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.stats import benjamini_hochberg, pooled_null_p

__all__ = ["Chance", "against_shuffled"]

Floats = NDArray[np.float64]


class Chance(NamedTuple):
    """Of every function and head, (function, head)."""

    p: Floats
    q: Floats
    high: Floats
    """the magnitude that 95 % of the head's null values stay below"""


def against_shuffled(maps: Floats, null: Floats) -> Chance:
    """`maps` (function, head), `null` (shuffle, function, head); NaN stays NaN."""
    flat = null.reshape(-1, null.shape[-1]).astype(np.float64)
    if not len(flat):
        nothing = np.full(maps.shape, np.nan)
        return Chance(nothing, nothing.copy(), nothing.copy())
    p = pooled_null_p(maps, flat.T, two_sided=True)
    high = np.broadcast_to(np.quantile(np.abs(flat), 0.95, axis=0), maps.shape).copy()
    return Chance(p, np.array([benjamini_hochberg(row) for row in p]), high)
