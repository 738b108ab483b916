"""How well does a number separate wrong answers from right ones? The area under the ROC curve, with its interval.

    A = P(wrong > right) + P(wrong = right) / 2

over all pairs of a wrong and a right answer: 0.5 is chance, 1 perfect, below 0.5 informative in the other direction. It
is the Mann-Whitney U over the number of pairs; 2 A - 1 is the rank-biserial correlation.

Interval: the variance of DeLong et al. (Biometrics 44, 1988) in the O(n log n) form of Sun and Xu (IEEE Signal Processing
Letters 21, 2014). With the placement of an answer = share of the other class that it beats,

    var A = var(placements of wrong) / n_wrong + var(placements of right) / n_right

taken on the logit scale, so that it stays between 0 and 1. Of three intervals tried on normal data (4,000 draws, A from
.5 to .97) it keeps its 95 % best: 95-97 % at 20 against 20 answers, where plain DeLong falls to 79 % and Hanley-McNeil
to 86 %; 94-96 % at 300 against 200. Its weak side is one tiny class: 91-94 % at 10 against 100. Where A is exactly 0 or
1 the variance is 0 and the interval is instead the exact one-sided binomial bound of the smaller class, .025^(1/n).

The variance is a sum over answers of one squared ``influence``. That array also gives the interval of a mean over folds,
of a difference between two detectors scored on the same answers, and of answers that come in groups (Obuchowski,
Biometrics 53, 1997: sum within the group, then square).

Cost: one sort of the values. NaN is refused by the callers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.ranks import Placements, placements, ranks
from headwise.stats.validation import Labels

CHANCE = 0.5  # AUROC of a score that tells nothing
__all__ = ["Auroc", "AurocDifference", "auroc", "auroc_by_fold", "auroc_interval", "auroc_rows", "delong_test"]

Floats = NDArray[np.float64]


class Auroc(NamedTuple):
    """AUROC of one or many scores, with its interval.

    Examples:
        >>> wrong = np.array([True] * 20 + [False] * 20)
        >>> found = auroc(np.arange(40) % 23, wrong)
        >>> float(found.low.round(2)), float(found.value.round(2)), float(found.high.round(2))
        (0.31, 0.49, 0.67)
    """

    value: Floats
    """0.5 is chance, 1 perfect, 0 perfect in the other direction"""
    low: Floats
    """lower end of the 95 % interval"""
    high: Floats
    """upper end"""
    influence: Floats
    """(example, ...): the variance of ``value`` is the sum of its squares, times ``inflation``"""
    inflation: float = 1.0
    """above 1 where the score was learnt by cross-validation: the folds share their training rows"""


class AurocDifference(NamedTuple):
    """One AUROC minus another on the same answers.

    Examples:
        >>> wrong = np.array([True] * 20 + [False] * 20)
        >>> better, worse = auroc(-np.arange(40), wrong), auroc(np.arange(40) % 7, wrong)
        >>> found = delong_test(better, worse)
        >>> round(found.value, 2), found.p < 0.001
        (0.51, True)
    """

    value: float
    """the first minus the second"""
    low: float
    """lower end of the 95 % interval"""
    high: float
    """upper end"""
    p: float
    """two-sided, of no difference"""


def auroc(values: ArrayLike, labels: Labels, *, groups: NDArray[np.int64] | None = None) -> Auroc:
    """AUROC of every column at once, with DeLong's interval on the logit scale.

    Args:
        values: (example, ...).
        labels: (example,), True for wrong answers.
        groups: (example,), whole numbers from 0: examples of one group are not independent, and the interval is wider.

    Returns:
        The area, its 95 % interval, and what each example contributes to its variance.

    Examples:
        >>> labels = np.array([True, True, False, False])
        >>> float(auroc([3.0, 1.0, 1.0, 0.0], labels).value)
        0.875
    """
    return auroc_from(placements(np.asarray(values, dtype=np.float64), labels), labels, groups=groups)


def auroc_from(placed: Placements, labels: Labels, *, groups: NDArray[np.int64] | None = None) -> Auroc:
    """The same from the placements of the answers."""
    value, influence = _value_and_influence(placed, labels)
    low, high = auroc_interval(value, influence_variance(influence, groups), int(min(labels.sum(), (~labels).sum())))
    return Auroc(value, low, high, influence)


def auroc_rows(scores: ArrayLike, labels: Labels) -> Floats:
    """AUROC over the last dim of ``scores`` (..., example), exact with ties, without an interval.

        A = (sum of the ranks of wrong rows - w (w + 1) / 2) / (w r),     equal scores share the mean of their ranks

    Args:
        scores: (..., example), larger meaning wrong.
        labels: (example,), True for wrong answers.

    Returns:
        (...,): the areas.

    Examples:
        >>> auroc_rows([[3.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], np.array([True, True, False, False]))
        array([0.875, 0.5  ])
    """
    found = ranks(scores, axis=-1)
    n_wrong, n_right = int(labels.sum()), int((~labels).sum())
    return (found[..., labels].sum(axis=-1) - n_wrong * (n_wrong + 1) / 2) / (n_wrong * n_right)


def auroc_by_fold(
    scores: Any,
    labels: Labels,
    fold_of: NDArray[np.int64],
    *,
    learnt: bool = True,
    groups: NDArray[np.int64] | None = None,
) -> tuple[Auroc, Floats]:
    """The mean over folds of the AUROC within each fold, and the AUROC of each fold.

    Scores of different folds come from different classifiers and are not compared with each other. Where they were
    ``learnt``, the variance is inflated by 1 + K / (K - 1) (Nadeau and Bengio, Machine Learning 52, 2003): the K
    classifiers share most of their training rows, so their errors are correlated, which neither DeLong nor a bootstrap
    of the pooled scores can see. On 500 normal answers with 270 features and 5 folds (250 draws; true AUROC .50, .55,
    .68) the interval covers the truth in 96, 95, 92 % of draws with the inflation, and in 85, 80, 78 % without.

    Args:
        scores: (example, ...), out of fold.
        labels: (example,), True for wrong answers.
        fold_of: (example,), the fold of every example.
        learnt: whether each fold's scores come from a classifier fitted on the other folds.
        groups: (example,), whole numbers from 0: examples of one group are not independent.

    Returns:
        The mean area with its interval, and (fold, ...) the area of each.

    Examples:
        >>> labels, fold_of = np.arange(40) % 2 == 0, np.arange(40) // 20
        >>> area, per_fold = auroc_by_fold(np.arange(40) % 7 + 3 * labels, labels, fold_of)
        >>> float(area.value.round(2)), per_fold.round(2)
        (0.84, array([0.82, 0.87]))
    """
    scores = np.asarray(scores, dtype=np.float64)
    folds = np.unique(fold_of)
    influence = np.zeros(scores.shape)
    values = np.empty((len(folds), *scores.shape[1:]))
    for index, fold in enumerate(folds):
        rows = fold_of == fold
        values[index], influence[rows] = _value_and_influence(placements(scores[rows], labels[rows]), labels[rows])
    influence /= len(folds)
    value = values.mean(axis=0)
    inflation = 1 + len(folds) / (len(folds) - 1) if learnt else 1.0
    variance = inflation * influence_variance(influence, groups)
    low, high = auroc_interval(value, variance, int(min(labels.sum(), (~labels).sum())))
    return Auroc(value, low, high, influence, inflation), values


def delong_test(first: Auroc, second: Auroc, *, groups: NDArray[np.int64] | None = None) -> AurocDifference:
    """How much better is the first than the second, on the same answers? DeLong's paired interval and test.

        z = (A1 - A2) / sqrt(inflation · Σ (influence1 - influence2)²)

    Args:
        first: of `auroc` or `auroc_by_fold`.
        second: the same, on the same answers.
        groups: (example,), whole numbers from 0: examples of one group are not independent.

    Returns:
        The difference, its 95 % interval and p.

    Examples:
        >>> wrong = np.array([True] * 20 + [False] * 20)
        >>> first, second = auroc(-np.arange(40), wrong), auroc(np.arange(40) % 7, wrong)
        >>> delong_test(first, second).p < 0.001
        True
    """
    value = float(first.value - second.value)
    inflation = max(first.inflation, second.inflation)
    error = float(np.sqrt(inflation * influence_variance(first.influence - second.influence, groups)))
    half = HALF_WIDTH * error
    p = float(2 * scipy.special.ndtr(-abs(value) / error)) if error > 0 else float(value == 0)
    return AurocDifference(value, value - half, value + half, p)


def auroc_interval(value: Any, variance: Any, smaller: int, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """The interval on the logit scale, logit A ± z sqrt(var A) / (A (1 - A)); ``smaller``: size of the smaller class."""
    value, variance = np.asarray(value, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    outside = (1 - level) / 2
    inner = np.clip(value, 1e-12, 1 - 1e-12)
    half = -scipy.special.ndtri(outside) * np.sqrt(variance) / (inner * (1 - inner))
    low, high = (scipy.special.expit(scipy.special.logit(inner) + side * half) for side in (-1, 1))
    bound = outside ** (1 / smaller)
    low = np.where(value >= 1, bound, np.where(value <= 0, 0.0, low))
    high = np.where(value <= 0, 1 - bound, np.where(value >= 1, 1.0, high))
    return low, high


def _value_and_influence(placed: Placements, labels: Labels) -> tuple[Floats, Floats]:
    share = placed.share
    n_wrong, n_right = int(labels.sum()), int((~labels).sum())
    value = share[labels].mean(axis=0)
    influence = share - value
    influence[labels] /= np.sqrt(n_wrong * max(n_wrong - 1, 1))
    influence[~labels] /= np.sqrt(n_right * max(n_right - 1, 1))
    return value, influence


def influence_variance(influence: Floats, groups: NDArray[np.int64] | None) -> Floats:
    """The sum over answers of their squared influence; where answers come in groups, over groups of the squared sum."""
    if groups is not None:
        summed = np.zeros((int(groups.max()) + 1, *influence.shape[1:]))
        np.add.at(summed, groups, influence)
        influence = summed
    return np.square(influence).sum(axis=0)
