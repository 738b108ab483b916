"""How much does a share change, on the same questions? Answers under one change against those under one or several others.

For every question i, o_i is 1 where it is answered correctly under the change of interest, and c_i1 ... c_ik under k controls
(k = 1: the unchanged model). The change is mean(o) - mean(c).

**Test.** Where the change of interest is exchangeable with its controls, each of a question's r_i = o_i + Σ c_ij ones is
equally likely to be its own: o_i is 1 with probability r_i / (k + 1), given r_i. So Σ o_i is a sum of independent Bernoulli
variables, whose distribution is known exactly (Poisson's binomial); p is twice its smaller tail. Only questions on which the
answers differ count. For k = 1 this is McNemar's exact test (Psychometrika 12, 1947); for more it is the exact test of matched
sets. Six changed answers, all in one direction, are the fewest with p < 0.05.

**Interval.** That of a mean with two questions added, one changed in each direction: with d_i = o_i - mean of c_i,

    centre = Σ d / (n + 2),   variance = (Σ d² + 2) / (n + 2) - centre²,   centre ± 1.96 sqrt(variance / (n + 2))

For k = 1 it is that of Bonett and Price (Journal of Educational and Behavioral Statistics 37, 2012), which keeps its level
where few answers change, and where none does it still has a width.

Cost: n² for the distribution, where there are several controls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.intervals import HALF_WIDTH

Floats = NDArray[np.float64]


class ShareChange(NamedTuple):
    """A change of a share.

    Examples:
        >>> share_change([True] * 10 + [False] * 10, [True] * 20).value
        -0.5
    """

    value: float
    """the share of interest minus the mean of the controls"""
    low: float
    """lower end of the 95 % interval"""
    high: float
    """upper end"""
    p: float
    """two-sided, of no difference"""


def share_change(own: ArrayLike, controls: ArrayLike) -> ShareChange:
    """The share of ``own`` minus that of its controls, paired by question.

    Args:
        own: (question,), whether the answer is correct.
        controls: (question,), the same under another condition; or (question, control) under several.

    Returns:
        The change, its 95 % interval and p.

    Examples:
        Eight of 40 questions are no longer answered correctly, one is now.

        >>> intact, without = np.arange(40) < 20, np.arange(40) < 12
        >>> without[30] = True
        >>> found = share_change(without, intact)
        >>> round(found.value, 3), round(found.low, 2), round(found.high, 2), round(found.p, 3)
        (-0.175, -0.31, -0.02, 0.039)
    """
    ones, others = np.asarray(own, dtype=bool), np.asarray(controls, dtype=bool)
    others = others[:, None] if others.ndim == 1 else others
    if not len(ones) or len(ones) != len(others) or not others.shape[1]:
        raise DataError(
            f"A share is compared on the same questions; there are {len(ones)} and {len(others)} of them, with "
            f"{others.shape[1]} controls. Give one row per question in both."
        )
    difference = ones - others.mean(axis=1)
    n = len(ones) + 2
    centre = difference.sum() / n
    half = HALF_WIDTH * np.sqrt(((np.square(difference).sum() + 2) / n - centre**2) / n)
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    if others.shape[1] == 1:
        p = float(sign_test((difference > 0).sum(), (difference < 0).sum()))
    else:
        p = _tails(int(ones.sum()), (ones + others.sum(axis=1)) / (others.shape[1] + 1))
    return ShareChange(float(difference.mean()), float(low), float(high), p)


def sign_test(gained: ArrayLike, lost: ArrayLike) -> Floats:
    """McNemar's exact test: two-sided p of as many questions changed in either direction; 1 where none changed.

    Args:
        gained: number answered correctly only under the first condition, of any shape.
        lost: only under the second, of the same shape.

    Returns:
        p, of the same shape.

    Examples:
        >>> sign_test([6, 5, 0], [0, 0, 0]).round(3)
        array([0.031, 0.062, 1.   ])
    """
    gained, lost = np.asarray(gained), np.asarray(lost)
    tail: Floats = scipy.stats.binom.cdf(np.minimum(gained, lost), gained + lost, 0.5)
    return np.minimum(1.0, 2 * tail)


def _tails(count: int, chance: Floats) -> float:
    """Twice the smaller tail of a sum of Bernoulli variables with these probabilities."""
    distribution = np.ones(1)
    for one in chance[(chance > 0) & (chance < 1)]:
        distribution = np.convolve(distribution, [1 - one, one])
    at = count - int((chance == 1).sum())
    return float(min(1.0, 2 * min(distribution[: at + 1].sum(), distribution[at:].sum())))
