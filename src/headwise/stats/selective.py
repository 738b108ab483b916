"""What is a score worth to somebody who answers only when it is low? Selective prediction, and alarms.

Answers are kept in the order of their score, the smallest (most trusted) first. With w = 1 for a wrong answer, G(s) the
share of answers with a score up to s (the coverage at which s is kept), and p the share of wrong answers:

    risk(c)   share of wrong answers among those kept at coverage c
    AURC      mean of risk(c) over all coverages            (Geifman, Uziel and El-Yaniv, ICLR 2019)
    PRR       (p - AURC) / (p - AURC of the oracle)         (Malinin and Gales, ICLR 2021)
    AUPRC     mean over wrong answers of the precision of the alarm that is just strict enough for them
              (average precision; Boyd, Eng and Page, ECML 2013)

**PRR** is the prediction-rejection ratio: 0 for a random order, 1 for the oracle, which rejects all wrong answers first, below
0 for a score that trusts wrong answers. LM-Polygraph (Vashurin et al., TACL 13, 2025) defines it by the mean quality q of the
answers kept, A = 1/m Σ_k mean(q of the first k), over the m sizes k that reject at most a share ``max_rejection`` of n, as
(A - A_random) / (A_oracle - A_random). With q = 1 - w the two are the same. Its papers reject at most half, its default all.
Two differences: A_random is exact here (1 - p) and a mean of 1,000 shuffles there; equal scores get their expected order
here, and the order in which they were given there.

**Intervals** need no bootstrap: AURC = E[w φ(G(s))] with φ(u) = -ln max(u, 1 - ρ) / ρ for a largest rejection ρ, whose
influence function is

    w φ(G(s)) - E[w' 1(s' >= s, G(s') > 1 - ρ) / G(s')] / ρ + constant

and the oracle's AURC is a function of p alone, with the derivative φ(1 - p). The variance is the sum of the squared influences
over n², of sums over groups where answers come in groups. The interval of PRR is taken for ln(1 - PRR), so that it stays below
1; those of AURC and AUPRC on the logit scale. Scores learnt by cross-validation are compared by their rank within the fold,
and their variance is inflated for shared training rows, as in ``auroc_by_fold``. How often each misses the truth:
docs/how-it-works/calibration.md.

Cost: one sort.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.auroc import influence_variance
from headwise.stats.intervals import HALF_WIDTH, wilson_interval
from headwise.stats.ranks import ranks
from headwise.stats.validation import Labels, as_groups, as_labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class MetricInterval(NamedTuple):
    """A number with its 95 % interval.

    Examples:
        >>> wrong = np.arange(60) % 3 == 0
        >>> found = auprc(np.arange(60) % 7 + 3 * wrong, wrong)
        >>> round(found.low, 2), round(found.value, 2), round(found.high, 2)
        (0.56, 0.74, 0.86)
    """

    value: float
    """as defined above"""
    low: float
    """lower end of the 95 % interval"""
    high: float
    """upper end"""
    error: float
    """standard error"""


class RiskCoverage(NamedTuple):
    """Which share is wrong of the answers that a score keeps.

    Examples:
        >>> wrong = np.arange(200) % 4 == 0
        >>> score = np.arange(200) % 13 + 6 * wrong
        >>> found = risk_coverage(score, wrong)
        >>> found.risk[[49, 199]], round(found.aurc.value, 3), round(found.prr.value, 2)
        (array([0.  , 0.25]), 0.077, 0.81)
        >>> round(found.oracle, 3), bool(found.risk_low[99] < found.risk[99] < found.risk_high[99])
        (0.035, True)
    """

    coverage: Floats
    """(answer,) share of answers kept, from 1 / n to 1"""
    risk: Floats
    """(answer,) share of wrong answers among them"""
    risk_low: Floats
    """(answer,) lower end of its 95 % interval (Wilson), for answers that score no higher than the last one kept"""
    risk_high: Floats
    """upper end"""
    aurc: MetricInterval
    """area under the curve; smaller is better"""
    prr: MetricInterval
    """prediction-rejection ratio: 1 is the oracle, 0 a random order"""
    oracle: float
    """AURC of the oracle"""


def risk_coverage(
    score: ArrayLike,
    wrong: ArrayLike,
    *,
    max_rejection: float = 1.0,
    fold_of: Ints | None = None,
    groups: ArrayLike | None = None,
) -> RiskCoverage:
    """The risk-coverage curve, the area under it, and the prediction-rejection ratio.

    Args:
        score: (answer,), larger meaning less trusted.
        wrong: (answer,), which are wrong.
        max_rejection: the largest share of answers that is rejected, for AURC and PRR; the curve is whole.
        fold_of: (answer,), for scores learnt by cross-validation.
        groups: what each answer belongs to, such as its question; answers of one group are not independent.

    Returns:
        All of them, with 95 % intervals.

    Examples:
        >>> wrong = np.array([False, False, True, True])
        >>> order = risk_coverage([1.0, 3.0, 2.0, 4.0], wrong)
        >>> order.risk.round(2), round(order.aurc.value, 3)  # mean of 0, 1/2, 1/3, 1/2
        (array([0.  , 0.5 , 0.33, 0.5 ]), 0.333)
        >>> round(order.prr.value, 3)  # (1/2 - 1/3) / (1/2 - 5/24): the oracle's risks are 0, 0, 1/3, 1/2
        0.571
    """
    value, labels, group, inflation = _checked(score, wrong, fold_of, groups)
    n, p = len(labels), float(labels.mean())
    rejected = int(max_rejection * n)
    if not (0 < max_rejection <= 1 and rejected):
        raise DataError(f"max_rejection is a share of the {n} answers, over 0 and at most 1, not {max_rejection:g}.")
    ordered = _Order.of(value)
    kept = np.arange(1, n + 1)
    mean_wrong = ordered.average(labels[ordered.order].astype(np.float64))  # equal scores share their labels
    risk = np.cumsum(mean_wrong) / kept
    judged = kept > n - rejected
    aurc = float(risk[judged].mean())
    oracle = float(np.maximum(kept - n * (1 - p), 0)[judged] @ (1 / kept[judged]) / rejected)
    # how much a wrong answer at each place adds to n times the area, and what one more answer below it takes away
    adds = n / rejected * np.cumsum(np.where(judged, 1 / kept, 0.0)[::-1])[::-1]
    takes = np.where(judged, mean_wrong / kept, 0.0) * n / rejected
    adds, takes = ordered.average(adds), ordered.average(np.cumsum(takes[::-1])[::-1])
    at = np.empty(n, dtype=np.int64)
    at[ordered.order] = np.arange(n)
    influence = labels * adds[at] - takes[at]
    influence -= influence.mean()
    oracle_slope = -float(np.log(max(1 - p, 1 - rejected / n, 1 / n))) * n / rejected
    ratio = (p - aurc) / (p - oracle)
    of_p = labels - p
    ratio_influence = (of_p - influence - ratio * (1 - oracle_slope) * of_p) / (p - oracle)
    aurc_error, prr_error = (
        float(np.sqrt(inflation * influence_variance(one, group))) / n for one in (influence, ratio_influence)
    )
    low, high = wilson_interval(risk, kept / _design_effect(of_p, group))
    return RiskCoverage(
        coverage=kept / n,
        risk=risk,
        risk_low=low,
        risk_high=high,
        aurc=_on_logit_scale(aurc, aurc_error),
        prr=_below_one(ratio, prr_error, labels),
        oracle=oracle,
    )


def auprc(
    score: ArrayLike, wrong: ArrayLike, *, fold_of: Ints | None = None, groups: ArrayLike | None = None
) -> MetricInterval:
    """The area under the precision-recall curve (average precision) of finding wrong answers.

    A random score has the share of wrong answers. Equal scores raise their alarms together, as in scikit-learn.

    Args:
        score: (answer,), larger meaning less trusted.
        wrong: (answer,), which are wrong.
        fold_of: (answer,), for scores learnt by cross-validation.
        groups: what each answer belongs to; answers of one group are not independent.

    Returns:
        The area with its 95 % interval.

    Examples:
        >>> auprc([4.0, 3.0, 2.0, 1.0], np.array([True, False, True, False])).value  # mean of 1/1 and 2/3
        0.8333333333333333
    """
    value, labels, group, inflation = _checked(score, wrong, fold_of, groups)
    n, p = len(labels), float(labels.mean())
    ordered = _Order.of(-value)  # the first alarm first
    flagged = labels[ordered.order].astype(np.float64)
    alarms = (ordered.last + 1).astype(np.float64)
    caught = np.cumsum(flagged)[ordered.last]
    precision = caught / alarms
    area = float(flagged @ precision / flagged.sum())

    def from_here(values: Floats) -> Floats:
        """The sum over this place, those equal to it and those after it."""
        return np.cumsum(values[::-1])[::-1][ordered.first]

    influence = flagged * precision + flagged * from_here(flagged / alarms) - from_here(flagged * precision / alarms)
    influence = (influence - influence.mean()) / p - area * (flagged - p) / p
    by_answer = np.empty(n)
    by_answer[ordered.order] = influence
    error = float(np.sqrt(inflation * influence_variance(by_answer, group))) / n
    return _on_logit_scale(area, error) if area < _PERFECT else _perfect(area, error, labels)


_PERFECT = 1 - 1e-9


class _Order(NamedTuple):
    """Answers in rising order of a score, and the places that equal scores share."""

    order: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, score: Floats) -> _Order:
        order = np.argsort(score, kind="stable")
        first, last = (np.searchsorted(score[order], score[order], side=side) for side in ("left", "right"))
        return cls(order, first, last - 1)

    def average(self, values: Floats) -> Floats:
        """Values of places, averaged over equal scores."""
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray((total[self.last + 1] - total[self.first]) / (self.last + 1 - self.first))


def _checked(
    score: ArrayLike, wrong: ArrayLike, fold_of: Ints | None, groups: ArrayLike | None
) -> tuple[Floats, Labels, Ints | None, float]:
    """The score (a rank within the fold where it was learnt), labels, groups, and the inflation of the variance."""
    value = np.asarray(score, dtype=np.float64)
    if value.ndim != 1 or np.isnan(value).any():
        raise DataError(
            f"Scores must be one number per answer, without NaN, not an array of shape {value.shape}; leave out answers "
            "without a score."
        )
    labels = as_labels(wrong, rows=len(value), min_per_class=1)
    if fold_of is None:
        return value, labels, as_groups(groups, len(value)), 1.0
    folds = np.unique(fold_of)
    for fold in folds:
        rows = fold_of == fold
        value = np.where(rows, 0.0, value)
        value[rows] = (ranks(np.asarray(score, dtype=np.float64)[rows]) - 0.5) / rows.sum()
    return value, labels, as_groups(groups, len(value)), 1 + len(folds) / (len(folds) - 1)


def _on_logit_scale(value: float, error: float) -> MetricInterval:
    inner = min(max(value, 1e-9), 1 - 1e-9)
    half = HALF_WIDTH * error / (inner * (1 - inner))
    low, high = (float(scipy.special.expit(scipy.special.logit(inner) + side * half)) for side in (-1, 1))
    return MetricInterval(value, min(low, value), max(high, value), error)


def _below_one(value: float, error: float, labels: Labels) -> MetricInterval:
    """On the scale of ln(1 - value)."""
    if value >= _PERFECT:
        return _perfect(value, error, labels)
    gap = 1 - value
    half = HALF_WIDTH * error / gap
    return MetricInterval(value, 1 - gap * float(np.exp(half)), 1 - gap * float(np.exp(-half)), error)


def _perfect(value: float, error: float, labels: Labels) -> MetricInterval:
    """Where all answers are in order: the binomial bound of the share of the smaller class that is, as of an AUROC of 1."""
    return MetricInterval(value, float(0.025 ** (1 / min(labels.sum(), (~labels).sum()))), 1.0, error)


def _design_effect(residual: NDArray[Any], group: Ints | None) -> float:
    """How many answers of a group tell as much as one that stands alone."""
    if group is None:
        return 1.0
    return max(1.0, float(influence_variance(residual, group) / np.square(residual).sum()))
