"""Confidence intervals of means and of proportions.

    t        mean ± t_{n-1} s / sqrt(n)                                                            (Student 1908)
    sums     Σ means ± t_f sqrt(Σ s_i² / n_i),  f = (Σ e_i)² / Σ e_i² / (n_i - 1),  e_i = s_i² / n_i
             (Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2,
             1946): a value put together from several means, such as one over prompts and one over random draws
    MOVER    mean ± sqrt(Σ (value_i - end_i)²) / K: a mean of K independent values of which the intervals are known, each side
             from the same side of theirs (Zou and Donner, Statistics in Medicine 27, 2008)
    Wilson   (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n)
             (Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927): stays
             between 0 and 1 and is informative even where k is 0 or n

Wilson's is written out, because scipy's ``binomtest(k, n).proportion_ci("wilson")`` takes one count at a time: 2.5 s for the
26 x 30 x 9 scores of a relations map that take 0.3 ms here. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
import xarray as xr
from numpy.typing import ArrayLike, NDArray

HALF_WIDTH = 1.959963984540054  # of a 95 % interval of a normal estimate, in standard errors
Floats = NDArray[np.float64]


def t_half_width(values: ArrayLike, axis: int = 0, *, level: float = 0.95) -> Floats:
    """Half of the width of Student's interval of a mean.

    Args:
        values: a sample along ``axis``; NaN is left out.
        axis: what is averaged over.
        level: of the interval.

    Returns:
        Without that axis; NaN where there are fewer than two values.

    Examples:
        >>> float(t_half_width([0.0, 1.0, 0.0, 1.0]).round(3))
        0.919
    """
    values = np.asarray(values, dtype=np.float64)
    n = (~np.isnan(values)).sum(axis=axis, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = values - np.nansum(values, axis=axis, keepdims=True) / n
        error = np.sqrt(np.nansum(np.square(deviation), axis=axis, keepdims=True) / (n - 1) / n)
    half = scipy.special.stdtrit(np.maximum(n - 1, 1), 0.5 + level / 2) * error
    return np.squeeze(np.where(n > 1, half, np.nan), axis=axis)


def mean_interval(values: xr.DataArray, dim: str, *, level: float = 0.95) -> xr.Dataset:
    """The mean along a dim and its interval (Student's t).

    Args:
        values: NaN is left out.
        dim: what is averaged over.
        level: of the interval.

    Returns:
        ``mean``, ``low`` and ``high``; without an interval for a single value.

    Examples:
        >>> found = mean_interval(xr.DataArray([1.0, 2.0, 3.0, 6.0], dims="example"), "example")
        >>> float(found["mean"]), float(found["low"].round(2)), float(found["high"].round(2))
        (3.0, -0.44, 6.44)
    """
    mean, half = values.mean(dim), values.reduce(t_half_width, dim, level=level)
    return xr.Dataset({"mean": mean, "low": mean - half, "high": mean + half})


def sum_of_means_half_width(samples: Sequence[NDArray], *, level: float = 0.95) -> float:
    """Half of the width of the interval of a sum of means (Satterthwaite).

    Args:
        samples: the sample behind each mean, at least two values each.
        level: of the interval.

    Returns:
        Half of its width; 0 where nothing varies.

    Examples:
        >>> round(sum_of_means_half_width([np.array([0.0, 1.0, 0.0, 1.0])]), 3)  # one sample: Student's own interval
        0.919
    """
    errors = np.array([sample.var(ddof=1) / len(sample) for sample in samples])
    total = float(errors.sum())
    if total == 0:
        return 0.0
    freedom = total**2 / sum(error**2 / (len(sample) - 1) for error, sample in zip(errors, samples, strict=True))
    return float(scipy.special.stdtrit(freedom, 0.5 + level / 2) * np.sqrt(total))


def mean_of_intervals(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """The mean over the first axis of independent values with intervals, and its own interval (MOVER).

    It is the interval of the mean of just these quantities, such as the AUROC on these question sets; it does not say how much
    another set would differ.

    Args:
        values: (value, ...).
        low: lower ends of their intervals.
        high: upper ends, of the same level, which the result has, too.

    Returns:
        The mean and the two ends; NaN where a value is NaN.

    Examples:
        >>> mean, low, high = mean_of_intervals([0.6, 0.8], [0.5, 0.7], [0.7, 0.86])
        >>> round(float(mean), 3), round(float(low), 3), round(float(high), 3)
        (0.7, 0.629, 0.758)
    """
    values, low, high = (np.asarray(each, dtype=np.float64) for each in (values, low, high))
    mean, count = values.mean(axis=0), len(values)
    down, up = (np.sqrt(np.square(values - end).sum(axis=0)) / count for end in (low, high))
    return mean, mean - down, mean + up


def wilson_interval(share: ArrayLike, size: ArrayLike, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's interval of a proportion.

    Args:
        share: one, or an array of them.
        size: out of how many; broadcast against the shares.
        level: of the interval.

    Returns:
        Its two ends; NaN where the share is NaN.

    Examples:
        >>> low, high = wilson_interval(np.array(0.5), np.array(40))
        >>> round(float(low), 3), round(float(high), 3)
        (0.352, 0.648)
    """
    share, size = np.asarray(share, dtype=float), np.asarray(size, dtype=float)
    z = float(scipy.special.ndtri(0.5 + level / 2))
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def grouped_share_interval(hits: ArrayLike, sizes: ArrayLike, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a proportion over groups whose members are not independent, such as the heads of models.

    The size is divided by the design effect, the variance of Σ hits / Σ sizes between groups over the binomial one, where
    that is above 1 (Korn and Graubard, "Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data", Survey Methodology 24, 1998). Where all members agree, groups show no variance, and
    each counts once.

    Args:
        hits: (group,), how many of its members count.
        sizes: (group,), out of how many; groups without members say nothing.
        level: of the interval.

    Returns:
        Its two ends; NaN without members. A single group is taken as one of independent members.

    Examples:
        Forty models with three heads each; in ten of them all are missed, which says less than 30 of 120 missed singly.

        >>> low, high = grouped_share_interval([3] * 30 + [0] * 10, [3] * 40)
        >>> round(low, 2), round(high, 2)
        (0.6, 0.86)
        >>> [round(float(end), 2) for end in wilson_interval(0.75, 120)]
        [0.67, 0.82]
    """
    hits, sizes = np.asarray(hits, dtype=float), np.asarray(sizes, dtype=float)
    hits, sizes = hits[sizes > 0], sizes[sizes > 0]
    total, groups = float(sizes.sum()), len(sizes)
    if not groups:
        return float("nan"), float("nan")
    share, effective = float(hits.sum()) / total, total
    if groups > 1 and 0 < share < 1:
        between = groups / (groups - 1) * float(np.square(hits - share * sizes).sum()) / total**2
        effective = total / max(1.0, between / (share * (1 - share) / total))
    elif groups > 1:
        effective = float(groups)
    low, high = wilson_interval(share, effective, level=level)
    return float(low), float(high)
