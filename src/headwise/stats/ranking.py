"""Which of several methods is best over several data sets? Friedman's test, Nemenyi's critical difference, mean ranks.

Every data set ranks the methods (1 is the best, equal values share their mean rank). With k methods, N data sets, and R_j the
mean rank of method j:

    Friedman          chi² = 12 N / (k (k + 1)) (Σ R_j² - k (k + 1)² / 4), corrected for ties (`scipy.stats.friedmanchisquare`)
    Iman-Davenport    F = (N - 1) chi² / (N (k - 1) - chi²), with k - 1 and (k - 1)(N - 1) degrees of freedom
    Nemenyi           two methods differ if |R_i - R_j| > CD = q sqrt(k (k + 1) / 6 N), where q sqrt(2) is the quantile of the
                      studentized range of k means (`scipy.stats.studentized_range`)

(Friedman, JASA 32, 1937; Iman and Davenport, Communications in Statistics A 9, 1980; Nemenyi, thesis, Princeton 1963; all as
recommended by Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.) The p reported is that
of Iman and Davenport, since Friedman's is too conservative. It takes the methods as exchangeable; where some are variants of
one another, and rank alike everywhere, it errs more often than it says (docs/how-it-works/calibration.md). Nemenyi's does not.

The data set is the unit: whether a method is better on *other* data sets of this kind is asked, and how many answers each set
has plays no part. With few sets that can hardly be seen. With five sets and ten methods CD is 6.1 of 9 possible ranks; so two
methods that are close in this ranking may differ clearly on every set by itself, which paired tests within the sets show. The
interval of a mean rank is Student's over data sets, cut off at 1 and k.

Cost: one sort per data set, and k² quantiles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.intervals import t_half_width
from headwise.stats.ranks import ranks

Floats = NDArray[np.float64]


class Ranking(NamedTuple):
    """Methods ranked over data sets.

    Examples:
        >>> values = np.array([[0.9, 0.8, 0.5], [0.8, 0.7, 0.6], [0.7, 0.6, 0.6], [0.9, 0.7, 0.5]])
        >>> found = friedman_nemenyi(values)
        >>> found.mean_rank, found.p < 0.001, round(found.critical_difference, 2)
        (array([1.   , 2.125, 2.875]), True, 1.66)
        >>> found.groups  # the first two do not differ by the test, nor do the last two
        [(0, 1), (1, 2)]
    """

    mean_rank: Floats
    """(method,) 1 is the best on every data set"""
    low: Floats
    """(method,) lower end of its 95 % interval over data sets"""
    high: Floats
    """upper end"""
    p: float
    """of the hypothesis that all methods are alike (Iman and Davenport)"""
    critical_difference: float
    """by which two mean ranks must differ (Nemenyi)"""
    pairwise_p: Floats
    """(method, method) of Nemenyi's test"""
    groups: list[tuple[int, ...]]
    """largest sets of methods, in order of rank, of which no two differ"""


def friedman_nemenyi(values: ArrayLike, *, larger_is_better: bool = True, level: float = 0.05) -> Ranking:
    """Rank methods over data sets.

    Args:
        values: (data set, method).
        larger_is_better: whether rank 1 is the largest value.
        level: of Nemenyi's test.

    Returns:
        Mean ranks with intervals, Friedman's test, and what Nemenyi's test tells apart.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> alike = friedman_nemenyi(random.normal(size=(5, 10)))
        >>> alike.p > 0.05, round(alike.critical_difference, 1), len(alike.groups)
        (True, 6.1, 1)
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3 or np.isnan(table).any():
        raise DataError(
            f"A ranking needs at least two data sets and three methods, all measured, not an array of shape {table.shape} "
            "or one with NaN; leave out methods that are missing on a data set."
        )
    sets, methods = table.shape
    ranked = ranks(-table if larger_is_better else table, axis=1)
    mean = ranked.mean(axis=0)
    half = t_half_width(ranked)
    scale = np.sqrt(methods * (methods + 1) / (6 * sets))
    quantile = float(scipy.stats.studentized_range.ppf(1 - level, methods, np.inf)) / np.sqrt(2)
    apart = np.abs(mean[:, None] - mean) / scale * np.sqrt(2)
    difference = float(quantile * scale)
    return Ranking(
        mean_rank=mean,
        low=np.maximum(mean - half, 1.0),
        high=np.minimum(mean + half, float(methods)),
        p=_iman_davenport(ranked),
        critical_difference=difference,
        pairwise_p=np.asarray(scipy.stats.studentized_range.sf(apart, methods, np.inf)),
        groups=_alike(mean, difference),
    )


def _iman_davenport(ranked: Floats) -> float:
    sets, methods = ranked.shape
    if (ranked == ranked[:, :1]).all():  # nothing is ranked
        return 1.0
    chi2 = float(scipy.stats.friedmanchisquare(*ranked.T).statistic)
    left = sets * (methods - 1) - chi2
    if left <= 1e-9:  # all data sets agree: the share of such draws among k!^(N - 1)
        return float(np.exp(-(sets - 1) * scipy.special.gammaln(methods + 1)))
    freedom = (methods - 1, (methods - 1) * (sets - 1))
    return float(scipy.special.fdtrc(*freedom, (sets - 1) * chi2 / left))


def _alike(mean: Floats, difference: float) -> list[tuple[int, ...]]:
    """Maximal runs of the order whose ends do not differ."""
    order = np.argsort(mean, kind="stable")
    found: list[tuple[int, ...]] = []
    reached = -1
    for first in range(len(order)):
        last = int(np.searchsorted(mean[order], mean[order[first]] + difference, side="right")) - 1
        if last > reached:
            found.append(tuple(int(one) for one in order[first : last + 1]))
            reached = last
    return found
