"""How much lower is one accuracy than another on the same steps, when one of the two is a mean over random draws?

    value = mean over steps and draws of (random - own)
    SE²   = (variance over steps) / steps + (variance over draws) / draws

with Student's t and Satterthwaite's degrees of freedom, cut at -1 and 1, which no gap can pass; where nothing varies, or
there is one step, the interval is that of the worst case, Wilson's for the one share against the other. Pure functions. This
module does not know what was done to the heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.stats import sum_of_means_half_width, t_half_width, wilson_interval

__all__ = ["Interval", "gap", "mean_over", "over_draws", "share"]

Floats = NDArray[np.float64]
Interval = tuple[float, float, float]  # value, and the ends of its 95 % interval
NOTHING: Interval = (np.nan, np.nan, np.nan)


def share(right: NDArray) -> Interval:
    """Of (step,) right or wrong, with Wilson's interval; NaN where there is no step."""
    if not len(right):
        return NOTHING
    value = float(np.mean(right))
    low, high = wilson_interval(value, len(right))
    return value, float(low), float(high)


def over_draws(right: NDArray) -> Interval:
    """The mean of (draw, step), with Student's interval over draws."""
    if not right.size:
        return NOTHING
    means = right.mean(axis=1, dtype=np.float64)
    value = float(means.mean())
    if len(means) < 2:
        return value, np.nan, np.nan
    half = float(t_half_width(means))
    return value, max(0.0, value - half), min(1.0, value + half)


def gap(own: NDArray, random: NDArray) -> Interval:
    """Random - own, from own (step,) and random (draw, step)."""
    if not len(own) or not random.size:
        return NOTHING
    gaps = random.astype(np.float64) - own.astype(np.float64)  # (draw, step)
    return mean_over(float(gaps.mean()), [gaps.mean(axis=0), gaps.mean(axis=1)])


def mean_over(value: float, samples: Sequence[Floats]) -> Interval:
    """A value whose error is the sum of the errors of several means."""
    samples = [sample for sample in samples if len(sample) > 1]
    half = sum_of_means_half_width(samples)
    if half == 0:  # nothing varied: as many steps could still have hidden what is rarer than this
        size = max((len(sample) for sample in samples), default=1)
        reach = float(wilson_interval(0.0, size)[1])
        return value, max(-1.0, value - reach), min(1.0, value + reach)
    return value, max(-1.0, value - half), min(1.0, value + half)
