"""Does a probability mean what it says? The reliability curve, the calibration error and Brier's score, with intervals.

Answers are sorted by their probability p of being wrong and cut into bins of equal counts (at most ten, at least 20 answers
each; equal probabilities stay together). With y = 1 for a wrong answer and n_b answers in bin b:

    curve      share of wrong answers of a bin against its mean p, with Wilson's interval
    ECE        Σ_b n_b / n |mean_b(y) - mean_b(p)|                     (Naeini, Cooper and Hauskrecht, AAAI 2015)
    Brier      mean (p - y)²                                            (Brier, Monthly Weather Review 78, 1950)

**ECE next to its null.** The absolute value makes ECE too large in small samples: a perfectly calibrated forecaster with 200
answers shows about 0.07. Of the ways to deal with that, Headwise reports the raw ECE, as papers do, next to what a perfect
forecaster with these probabilities shows (`ece_null`, mean; `ece_null_high`, 95 % quantile), and the p of the hypothesis that
this one is perfect (the consistency resampling of Bröcker and Smith, Weather and Forecasting 22, 2007): labels are drawn with
the probabilities themselves. A debiased ECE would hide how much of the number is noise. ``mean_gap``, the mean of y - p, has
no such bias and tells whether the probabilities are too low or too high on the whole.

**Intervals.** Brier's and the mean gap's: Student's t over groups (the ratio of means, linearised), so that several answers
to one question count as one draw. ECE's: with the gap g_b of a bin (its part of the mean of y - p) and the error e_b of its
estimate, |g_b| + sign(g_b) e_b <= |g_b + e_b| <= |g_b| + |e_b|, where the upper side is sign(g_b) e_b, too, if the gap is clear
of 0 (beyond 2.5 standard errors). The interval takes the percentiles of the sums of either side over bins, the errors from a
bootstrap over groups. It holds for probabilities that are right, too, where percentiles of bootstrapped ECEs fail. With
groups, the null flips the signs of the residuals y - p of whole groups (wild bootstrap), since labels within a group are not
independent.

Cost: two products (draws x groups x bins).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.intervals import t_half_width, wilson_interval
from headwise.stats.validation import as_flags, as_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_ANSWERS = 20  # for a curve, and of a bin
MAX_BINS = 10
CLEAR = 2.5  # standard errors from which on the sign of a gap is known


class Reliability(NamedTuple):
    """How far probabilities are from what happens.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> p = random.random(400)
        >>> overconfident = reliability(p, random.random(400) < 0.3 + 0.4 * p)
        >>> round(overconfident.ece, 2), round(overconfident.ece_null, 2), overconfident.p < 0.01
        (0.16, 0.05, True)
        >>> overconfident.predicted[[0, -1]].round(2), overconfident.observed[[0, -1]].round(2)
        (array([0.05, 0.96]), array([0.35, 0.7 ]))
    """

    predicted: Floats
    """(bin,) mean probability"""
    observed: Floats
    """(bin,) share of wrong answers"""
    low: Floats
    """(bin,) lower end of Wilson's 95 % interval of ``observed``"""
    high: Floats
    """upper end"""
    size: Ints
    """(bin,) answers"""
    ece: float
    """expected calibration error; 0 is perfect, and small samples show more"""
    ece_low: float
    """lower end of its 95 % interval"""
    ece_high: float
    """upper end"""
    ece_null: float
    """what a perfectly calibrated forecaster with these probabilities shows, in the mean"""
    ece_null_high: float
    """and its 95 % quantile"""
    p: float
    """of the hypothesis that the probabilities are right"""
    mean_gap: float
    """share of wrong answers minus mean probability: above 0, the probabilities are too low on the whole"""
    mean_gap_low: float
    """lower end of its 95 % interval"""
    mean_gap_high: float
    """upper end"""
    brier: float
    """Brier's score; 0 is perfect"""
    brier_low: float
    """lower end of its 95 % interval"""
    brier_high: float
    """upper end"""
    brier_base: float
    """Brier's score of the share of wrong answers, given to all"""


def reliability(
    probability: ArrayLike,
    wrong: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    bins: int = MAX_BINS,
    draws: int = 1000,
    seed: int = 0,
) -> Reliability:
    """The reliability curve, ECE next to its null, and Brier's score.

    Args:
        probability: that the answer is wrong, from 0 to 1; of answers on which nothing was fitted.
        wrong: which are.
        groups: what each answer belongs to, such as its question; answers of one group are not independent.
        bins: at most; fewer where a bin would have fewer than 20 answers.
        draws: of the bootstrap and of the null.
        seed: of the draws.

    Returns:
        All of them, with 95 % intervals.

    Examples:
        >>> random = np.random.default_rng(1)
        >>> p = random.random(200)
        >>> perfect = reliability(p, random.random(200) < p)
        >>> round(perfect.ece, 2), round(perfect.ece_null, 2), perfect.p > 0.05, perfect.ece_low
        (0.06, 0.07, True, 0.0)
    """
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim != 1 or len(p) < MIN_ANSWERS:
        raise DataError(f"A reliability curve needs at least {MIN_ANSWERS} answers, not an array of shape {p.shape}.")
    if not ((p >= 0) & (p <= 1)).all():  # NaN included
        raise DataError("Probabilities lie between 0 and 1; leave out answers without one, and convert log-odds first.")
    labels = as_flags(wrong, rows=len(p))
    group = as_groups(groups, len(p))
    bin_of = _equal_counts(p, bins)
    size = np.bincount(bin_of)
    observed = np.bincount(bin_of, labels) / size
    low, high = wilson_interval(observed, size)
    residual = labels - p
    ece = float(np.abs(np.bincount(bin_of, residual)).sum() / len(p))
    random = np.random.default_rng(seed)
    null = _null(random, p, residual, group, bin_of, draws)
    error = _errors(random, residual, np.arange(len(p)) if group is None else group, bin_of, draws)
    too_large, too_small = _ece_errors(np.bincount(bin_of, residual) / len(p), error)
    gap, gap_half = _mean(residual, group)
    brier, brier_half = _mean(np.square(residual), group)
    return Reliability(
        predicted=np.bincount(bin_of, p) / size,
        observed=observed,
        low=low,
        high=high,
        size=size,
        ece=ece,
        ece_low=max(ece - too_large, 0.0),
        ece_high=ece + too_small,
        ece_null=float(null.mean()),
        ece_null_high=float(np.quantile(null, 0.95)),
        p=float((1 + (null >= ece).sum()) / (1 + draws)),
        mean_gap=gap,
        mean_gap_low=gap - gap_half,
        mean_gap_high=gap + gap_half,
        brier=brier,
        brier_low=max(brier - brier_half, 0.0),
        brier_high=min(brier + brier_half, 1.0),
        brier_base=float(labels.mean() * (1 - labels.mean())),
    )


def _equal_counts(p: Floats, bins: int) -> Ints:
    """The bin of every answer; none is empty, and equal probabilities share one."""
    wanted = max(1, min(bins, len(p) // MIN_ANSWERS))
    edges = np.quantile(p, np.arange(1, wanted) / wanted)
    return np.unique(np.searchsorted(edges, p, side="right"), return_inverse=True)[1]


def _null(
    random: np.random.Generator, p: Floats, residual: Floats, group: Ints | None, bin_of: Ints, draws: int
) -> Floats:
    """ECE of forecasters that are right, (draw,)."""
    one_hot = np.eye(bin_of.max() + 1)[bin_of]  # (answer, bin)
    if group is None:
        sums = ((random.random((draws, len(p))) < p) - p) @ one_hot
    else:
        sums = random.choice([-1.0, 1.0], (draws, group.max() + 1)) @ _by_group(group, residual[:, None] * one_hot)
    return np.asarray(np.abs(sums).sum(axis=1) / len(p))


def _errors(random: np.random.Generator, residual: Floats, group: Ints, bin_of: Ints, draws: int) -> Floats:
    """By how much the bins' parts of the mean residual err, (draw, bin): groups drawn with replacement."""
    sums = _by_group(group, residual[:, None] * np.eye(bin_of.max() + 1)[bin_of])
    groups = len(sums)
    weights = random.multinomial(groups, np.full(groups, 1 / groups), size=draws)
    return np.asarray((weights @ sums) / (weights @ np.bincount(group))[:, None] - sums.sum(axis=0) / len(residual))


def _ece_errors(gap: Floats, error: Floats) -> tuple[float, float]:
    """By how much ECE may be too large and too small, from the bins' gaps (bin,) and their errors (draw, bin)."""
    sign = np.where(gap < 0, -1.0, 1.0)
    clear = np.abs(gap) > CLEAR * error.std(axis=0)
    upwards = np.where(clear, sign * error, np.abs(error)).sum(axis=1)
    return float(np.quantile(upwards, 0.975)), -float(np.quantile((sign * error).sum(axis=1), 0.025))


def _by_group(group: Ints, values: Floats) -> Floats:
    """(group, column): sums of (answer, column)."""
    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return sums


def _mean(values: Floats, group: Ints | None) -> tuple[float, float]:
    """The mean over answers and half of its interval, from the groups' sums."""
    mean = float(values.mean())
    if group is None:
        return mean, float(t_half_width(values))
    size = np.bincount(group)
    deviation = (np.bincount(group, values) - mean * size) / size.mean()
    return mean, float(t_half_width(deviation))
