"""What difference could these data have shown? The smallest effect that a test of this size finds in four cases of five.

"No head differs" means little without it: with 300 wrong and 200 right answers and 270 heads, a head whose AUROC is .55
is missed nearly always. An effect of size d is found with the wanted power where

    d = z(1 - α / (2 m)) s0 + z(power) s1(d)

with the standard error s0 under no effect and s1 under d. Over m tests α is divided by m (Bonferroni): the statement is
about one head picked out in advance of looking, and slightly pessimistic where the q-value is used and many heads differ.

- AUROC: s0² = (N + 1) / (12 w r), the Mann-Whitney test's; s1 by Hanley and McNeil (Radiology 143, 1982). Within strata
  the same, stratum by stratum, with van Elteren's weights 1 / (N_s + 1) (``stratified``).
- a gain, one AUROC minus another on the same answers: from the standard error of the difference (DeLong's);
- a share, such as an accuracy: s² = x (1 - x) / n.

Cost: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from headwise.core.errors import DataError


def minimum_detectable_auroc(
    n_wrong: ArrayLike, n_right: ArrayLike, *, alpha: float = 0.05, power: float = 0.8, tests: int = 1
) -> float:
    """The smallest AUROC above 0.5 that a two-sided test finds with this power; 1 minus it in the other direction.

    Args:
        n_wrong: wrong answers; or, for the test within strata, (stratum,) of each.
        n_right: right answers, likewise.
        alpha: level of the test.
        power: how often the effect is to be found.
        tests: among how many, such as the heads of a map.

    Returns:
        The AUROC; NaN where not even a perfect separation would be found.

    Examples:
        >>> round(minimum_detectable_auroc(308, 184), 3), round(minimum_detectable_auroc(308, 184, tests=270), 3)
        (0.575, 0.622)
        >>> round(minimum_detectable_auroc([5] * 60, [3] * 60, tests=270), 3)  # within 60 strata
        0.631
    """
    wrong, right = (np.atleast_1d(np.asarray(count, dtype=np.float64)) for count in (n_wrong, n_right))
    if wrong.shape != right.shape:
        raise DataError("Give the number of wrong and of right answers of the same strata.")
    both = (wrong > 0) & (right > 0)
    wrong, right = wrong[both], right[both]
    if not both.any():
        return math.nan
    pairs, weight = wrong * right, 1 / (wrong + right + 1)
    slope = float((weight * pairs).sum())  # of the statistic in the AUROC
    at_null = math.sqrt(float((weight * pairs / 12).sum())) / slope

    def deviation(area: float) -> float:
        of_wrong, of_right = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
        spread = area * (1 - area) + (wrong - 1) * of_wrong + (right - 1) * of_right
        return math.sqrt(max(float((weight**2 * pairs * spread).sum()), 0.0)) / slope

    return _smallest(0.5, at_null, deviation, alpha, power, tests)


def minimum_detectable_gain(standard_error: float, *, alpha: float = 0.05, power: float = 0.8, tests: int = 1) -> float:
    """The smallest difference of two AUROCs (or any difference with a normal error) that a two-sided test finds.

    Args:
        standard_error: of the paired difference; of a 95 % interval, its width / 3.92.
        alpha: level of the test.
        power: how often the difference is to be found.
        tests: among how many.

    Returns:
        (z(1 - alpha / (2 tests)) + z(power)) x standard error.

    Examples:
        >>> round(minimum_detectable_gain(0.02), 3)
        0.056
    """
    return float((_z(alpha / (2 * tests)) + _z(1 - power)) * standard_error)


def minimum_detectable_share(
    n: int, baseline: float, *, alpha: float = 0.05, power: float = 0.8, tests: int = 1
) -> float:
    """The smallest share above ``baseline`` (an accuracy above chance) that a two-sided test finds among n examples.

    Args:
        n: examples.
        baseline: the share without an effect.
        alpha: level of the test.
        power: how often the effect is to be found.
        tests: among how many.

    Returns:
        The share; NaN where not even 1 would be found.

    Examples:
        >>> round(minimum_detectable_share(200, 0.125), 3), round(minimum_detectable_share(200, 0.125, tests=270), 3)
        (0.194, 0.238)
    """
    if n < 1 or not 0 < baseline < 1:
        raise DataError(
            f"A share is compared with one between 0 and 1 among at least 1 example, not {baseline} among {n}."
        )
    return _smallest(
        baseline,
        math.sqrt(baseline * (1 - baseline) / n),
        lambda share: math.sqrt(share * (1 - share) / n),
        alpha,
        power,
        tests,
    )


def _z(above: float) -> float:
    """What a standard normal number exceeds with this probability."""
    return -NormalDist().inv_cdf(above)


def _smallest(
    null: float, at_null: float, deviation: Callable[[float], float], alpha: float, power: float, tests: int
) -> float:
    """The smallest value above ``null`` that exceeds the critical value by z(power) of its own standard errors.

    By halving the interval until it has no inside.
    """
    critical, reach = _z(alpha / (2 * tests)) * at_null, _z(1 - power)

    def short(value: float) -> float:
        return critical + reach * deviation(value) - (value - null)

    if short(1.0) >= 0:
        return math.nan
    low, high = null, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high
