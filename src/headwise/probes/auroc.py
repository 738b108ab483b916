"""How well does a number tell wrong answers from right ones? The area under the ROC curve, with its interval.

    A = P(wrong > right) + P(wrong = right) / 2

over all pairs of a wrong and a right answer: 0.5 knows nothing, 1 is perfect, below 0.5 is informative the other way
round. It is the Mann-Whitney U over the number of pairs; 2 A - 1 is the rank-biserial correlation.

Interval: DeLong's variance (1988) in the O(n log n) form of Sun and Xu (2014). With the placement of an answer = share
of the other class that it beats,

    var A = var(placements of wrong) / n_wrong + var(placements of right) / n_right

taken on the logit scale, so that it stays between 0 and 1. Of three intervals tried on normal data (4,000 draws, A from
.5 to .97) it keeps its 95 % best: 95-97 % at 20 against 20 answers, where plain DeLong falls to 79 % and Hanley-McNeil
to 86 %; 94-96 % at 300 against 200. Its weak side is one tiny class: 91-94 % at 10 against 100. Where A is exactly 0 or
1 the variance is 0 and the interval is instead the exact one-sided binomial bound of the smaller class, .025^(1/n).

The variance is a sum over answers of one ``influence`` squared. That one array also gives the interval of a mean over
folds, of a difference between two detectors scored on the same answers, and of answers that come in groups (Obuchowski
1997: sum within the group, then square).

Cost: three sorts of the values. This module does not know where the numbers come from, and leaves out nothing: NaN is
refused by those who call it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import norm, rankdata

from headwise.probes.labels import Labels

__all__ = ["Auroc", "Difference", "auroc", "auroc_by_fold", "compare", "interval"]

Floats = NDArray[np.float64]


class Auroc(NamedTuple):
    """AUROC of one or many numbers, with its interval.

    Examples:
        >>> wrong = np.array([True] * 20 + [False] * 20)
        >>> found = auroc(np.arange(40) % 23, wrong)
        >>> float(found.low.round(2)), float(found.value.round(2)), float(found.high.round(2))
        (0.31, 0.49, 0.67)
    """

    value: Floats
    """0.5 knows nothing, 1 is perfect, 0 perfect the other way round"""
    low: Floats
    """lower end of the 95 % interval"""
    high: Floats
    """upper end"""
    influence: Floats
    """(example, ...): the variance of ``value`` is the sum of its squares, times ``inflation``"""
    inflation: float = 1.0
    """above 1 where the score was learnt by cross-validation: the folds share their training rows"""


class Difference(NamedTuple):
    """One AUROC minus another on the same answers.

    Examples:
        >>> wrong = np.array([True] * 20 + [False] * 20)
        >>> better, worse = auroc(-np.arange(40), wrong), auroc(np.arange(40) % 7, wrong)
        >>> found = compare(better, worse)
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
    """AUROC of every column at once.

    Args:
        values: (example, ...).
        labels: (example,), True for wrong answers.
        groups: (example,), whole numbers from 0: examples of one group are not independent, and the interval knows it.

    Returns:
        The area, its 95 % interval (DeLong, on the logit scale), and what each example added to its variance.

    Examples:
        >>> labels = np.array([True, True, False, False])
        >>> float(auroc([3.0, 1.0, 1.0, 0.0], labels).value)
        0.875
    """
    table = np.asarray(values, dtype=np.float64)
    value, influence = _value_and_influence(table, labels)
    low, high = interval(value, _variance(influence, groups), int(min(labels.sum(), (~labels).sum())))
    return Auroc(value, low, high, influence)


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
    ``learnt``, the variance is inflated by 1 + K / (K - 1), after Nadeau and Bengio (2003): the K classifiers share
    most of their training rows, so their errors go together, which neither DeLong nor a bootstrap of the pooled scores
    can see. On 500 normal answers with 270 features and 5 folds (250 draws; true AUROC .50, .55, .68) the interval
    holds the truth in 96, 95, 92 % of draws with the inflation, and in 85, 80, 78 % without.
    """
    scores = np.asarray(scores, dtype=np.float64)
    folds = np.unique(fold_of)
    influence = np.zeros(len(scores))
    values = np.empty(len(folds))
    for place, fold in enumerate(folds):
        rows = fold_of == fold
        values[place], influence[rows] = _value_and_influence(scores[rows], labels[rows])
    influence /= len(folds)
    value = values.mean()
    inflation = 1 + len(folds) / (len(folds) - 1) if learnt else 1.0
    variance = inflation * _variance(influence, groups)
    low, high = interval(value, variance, int(min(labels.sum(), (~labels).sum())))
    return Auroc(value, low, high, influence, inflation), values


def compare(first: Auroc, second: Auroc, *, groups: NDArray[np.int64] | None = None) -> Difference:
    """How much better is the first than the second, on the same answers? DeLong's paired interval and test."""
    value = float(first.value - second.value)
    inflation = max(first.inflation, second.inflation)
    error = float(np.sqrt(inflation * _variance(first.influence - second.influence, groups)))
    half = float(norm.isf(0.025)) * error
    p = float(2 * norm.sf(abs(value) / error)) if error > 0 else float(value == 0)
    return Difference(value, value - half, value + half, p)


def interval(value: Any, variance: Any, smaller: int, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """The interval on the logit scale; ``smaller`` is the size of the smaller class."""
    value, variance = np.asarray(value, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    outside = (1 - level) / 2
    inner = np.clip(value, 1e-12, 1 - 1e-12)
    half = norm.isf(outside) * np.sqrt(variance) / (inner * (1 - inner))
    low, high = expit(logit(inner) - half), expit(logit(inner) + half)
    bound = outside ** (1 / smaller)
    low = np.where(value >= 1, bound, np.where(value <= 0, 0.0, low))
    high = np.where(value <= 0, 1 - bound, np.where(value >= 1, 1.0, high))
    return low, high


def _value_and_influence(table: Floats, labels: Labels) -> tuple[Floats, Floats]:
    wrong, right = table[labels], table[~labels]
    n_wrong, n_right = len(wrong), len(right)
    ranks = rankdata(table, axis=0)
    above = (ranks[labels] - rankdata(wrong, axis=0)) / n_right  # share of right answers below this wrong one
    below = 1 - (ranks[~labels] - rankdata(right, axis=0)) / n_wrong  # share of wrong answers above this right one
    value = above.mean(axis=0)
    influence = np.empty_like(table)
    influence[labels] = (above - value) / np.sqrt(n_wrong * max(n_wrong - 1, 1))
    influence[~labels] = (below - value) / np.sqrt(n_right * max(n_right - 1, 1))
    return value, influence


def _variance(influence: Floats, groups: NDArray[np.int64] | None) -> Floats:
    if groups is not None:
        summed = np.zeros((int(groups.max()) + 1, *influence.shape[1:]))
        np.add.at(summed, groups, influence)
        influence = summed
    return np.square(influence).sum(axis=0)
