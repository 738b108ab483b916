"""Are new answers still like those a threshold was set on? Tests of a shift, and where in the log it began.

A threshold or a calibrated probability holds for answers like the calibration answers. Whether new ones are can be seen
without knowing which are wrong, in anything that is logged: the score, its alarms, the length of the answer. For each,

    numbers   Kolmogorov and Smirnov's two-sample test, D = max |F_new - F_reference|, which finds any change of a
              distribution; effect: P(new > reference) + P(equal) / 2 (the AUROC), with DeLong's interval
    shares    Fisher's exact test; effect: the difference of the shares, with Newcombe's interval (Statistics in Medicine 17,
              1998, method 10), made of Wilson's two

**Where it began.** A change late in a log is diluted by all that came before. The new scores are therefore also tested in
windows of equal size (at most ten, at least 50 answers each), each against the reference; the smallest p, times the number of
windows, is one more test. The change is first seen in the first window whose own p passes that correction; the true change
may lie earlier, by as many answers as a window needs to show it.

All tests of a log share one correction (Benjamini and Hochberg), so that a log without drift is reported as drifted in at most
5 of 100 cases. Both samples are taken as independent answers: the same question asked again and again, or a conversation,
counts as more than it is.

A test shows that something changed, and not that the detector got worse: that needs labels. With many answers a drift too
small to matter has a tiny p; look at the effect. Cost: a sort per quantity and window.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.auroc import auroc
from headwise.stats.intervals import wilson_interval
from headwise.stats.multiple_testing import ALPHA, benjamini_hochberg

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_ANSWERS = 20  # with which a quantity is tested, on both sides
MAX_WINDOWS, MIN_WINDOW = 10, 50  # windows, and answers in one


class Shift(NamedTuple):
    """One quantity in new answers against the reference.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> found = drift_test({"score": random.normal(size=200)}, {"score": random.normal(1, 1, 100)}, follow="score")
        >>> shift = found.shifts[0]
        >>> shift.name, round(shift.effect, 2), shift.q < 0.05
        ('score', 0.71, True)
    """

    name: str
    """of the quantity"""
    is_share: bool
    """a share of answers, such as that of alarms; else numbers, such as scores"""
    n_reference: int
    """answers of the reference in which it is known"""
    n_new: int
    """new answers"""
    reference: float
    """median of the numbers, or the share"""
    new: float
    """the same of the new answers"""
    effect: float
    """numbers: P(new > reference) + P(equal) / 2, where 0.5 is no shift; shares: new minus reference"""
    low: float
    """lower end of its 95 % interval"""
    high: float
    """upper end"""
    p: float
    """of no difference; NaN with fewer than 20 answers on either side"""
    q: float
    """corrected for the number of tests of this log"""


class Drift(NamedTuple):
    """What `drift_test` found.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> new = np.r_[random.normal(size=300), random.normal(2, 1, 100)]  # from answer 300 on
        >>> found = drift_test({"score": random.normal(size=400)}, {"score": new}, follow="score")
        >>> found.drifted, int(found.start[found.first]), found.windows_q < 0.05
        (True, 300, True)
    """

    shifts: tuple[Shift, ...]
    """one per quantity"""
    start: Ints
    """(window,) position of its first new answer"""
    stop: Ints
    """(window,) position behind its last"""
    median: Floats
    """(window,) of the quantity that is followed"""
    p: Floats
    """(window,) of no difference from the reference, times the number of windows"""
    windows_q: float
    """of no window being different, corrected for the number of tests of this log"""
    first: int | None
    """the first window that differs; None if none does"""
    drifted: bool
    """whether any q is below 0.05"""


def drift_test(
    reference: Mapping[str, ArrayLike],
    new: Mapping[str, ArrayLike],
    *,
    follow: str,
    shares: Collection[str] = (),
) -> Drift:
    """Do new answers differ from the reference, in what, and from where on?

    Args:
        reference: quantity -> (answer,) its values; NaN where it is unknown.
        new: the same for the new answers, in the order in which they were given. Quantities of one side are left out.
        follow: the quantity that is also tested in windows, such as the score.
        shares: quantities that are true (1) or false (0).

    Returns:
        A shift for each quantity that both have, and the windows.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> same = drift_test({"score": random.random(300)}, {"score": random.random(300)}, follow="score")
        >>> same.drifted, same.first
        (False, None)
    """
    names = [name for name in new if name in reference]
    if follow not in names:
        raise DataError(f"There is no {follow!r} to follow in both the reference and the new answers.")
    tested = [_shift(name, _known(reference[name]), _known(new[name]), name in shares) for name in names]
    followed = tested[names.index(follow)]
    if math.isnan(followed.p):
        raise DataError(
            f"There are {followed.n_reference} answers in the reference and {followed.n_new} new ones, and drift needs at "
            f"least {MIN_ANSWERS} of each; wait for more, or choose a larger part."
        )
    before, after = _known(reference[follow]), np.asarray(new[follow], dtype=np.float64)
    parts = np.array_split(np.flatnonzero(~np.isnan(after)), max(1, min(MAX_WINDOWS, followed.n_new // MIN_WINDOW)))
    p = np.minimum([_ks(before, after[part]) * len(parts) for part in parts], 1.0)
    q = benjamini_hochberg([*(one.p for one in tested), p.min()])
    return Drift(
        shifts=tuple(one._replace(q=float(value)) for one, value in zip(tested, q[:-1], strict=True)),
        start=np.array([part[0] for part in parts]),
        stop=np.array([part[-1] + 1 for part in parts]),
        median=np.array([np.median(after[part]) for part in parts]),
        p=p,
        windows_q=float(q[-1]),
        first=int(np.argmax(p < ALPHA)) if q[-1] < ALPHA else None,
        drifted=bool(np.nanmin(q) < ALPHA),
    )


def _known(values: ArrayLike) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise DataError(f"A quantity has one value per answer, but an array of the shape {found.shape} was given.")
    return found[~np.isnan(found)]


def _shift(name: str, before: Floats, after: Floats, is_share: bool) -> Shift:
    n, m = len(before), len(after)
    middle = np.mean if is_share else np.median
    a, b = (float(middle(values)) if values.size else math.nan for values in (before, after))
    effect = low = high = p = math.nan
    if min(n, m) >= MIN_ANSWERS and is_share:
        table = [[values.sum(), (1 - values).sum()] for values in (before, after)]
        p = float(scipy.stats.fisher_exact(table).pvalue)
        effect, low, high = _difference(a, b, n, m)
    elif min(n, m) >= MIN_ANSWERS:
        area = auroc(np.r_[after, before], np.arange(n + m) < m)
        p, effect, low, high = _ks(before, after), float(area.value), float(area.low), float(area.high)
    return Shift(name, is_share, n, m, a, b, effect, low, high, p, math.nan)


def _ks(before: Floats, after: Floats) -> float:
    return float(scipy.stats.ks_2samp(before, after).pvalue)


def _difference(a: float, b: float, size_a: int, size_b: int) -> tuple[float, float, float]:
    """The second share minus the first, with Newcombe's interval."""
    (low_a, low_b), (high_a, high_b) = wilson_interval([a, b], [size_a, size_b])
    below, above = math.hypot(b - low_b, high_a - a), math.hypot(high_b - b, a - low_a)
    return b - a, b - a - below, b - a + above
