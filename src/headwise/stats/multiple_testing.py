"""What is a p-value worth among hundreds of heads, and with ten eigenvalues per head?

Over heads: the q-value of Benjamini and Hochberg (JRSS B 57, 1995), over all cells of a map. Among the heads with q < 0.05
at most 5 % are expected to be false discoveries. Over the ranks of one head: one p from several dependent ones,

    Cauchy   T = mean tan((1/2 - p_r) π),  p = 1/2 - arctan(T) / π        (Liu and Xie, JASA 115, 2020)
    min-p    p = 1 - (1 - min p_r)^m                                      (Šidák, JASA 62, 1967)

Cauchy holds for small p under nearly any dependence, and returns p where all p_r are equal; one p_r near 1 would drown
all others (tan goes to minus infinity), so p_r is capped at 0.99 (the truncated Cauchy of Fang et al. 2023; the upper
tail, which decides, does not change). Šidák is exact for independent ranks and conservative for similar ones, as
neighbouring eigenvalues are.

NaN means "not tested": it stays NaN and is not counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise.core.dims import RANK
from headwise.core.errors import StudyError, did_you_mean

ALPHA = 0.05  # a p- or q-value below this is called significant, in all studies, figures and words
Floats = NDArray[np.float64]

_CAUCHY_CAP = 0.99
_LINEAR_BELOW = 1e-15  # below this tan((1/2 - p) π) is 1 / (p π) to all digits


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """The q-value of every cell, over all cells of the array; NaN stays NaN.

    Args:
        p: p-values, an array of any shape.

    Returns:
        Among the cells with q below 0.05, at most 5 % are expected to be there by chance.

    Examples:
        >>> benjamini_hochberg([0.01, 0.04, float("nan")])
        array([0.02, 0.04,  nan])
    """
    values = np.asarray(p, dtype=np.float64)
    tested = ~np.isnan(values)
    q = np.full(values.shape, np.nan)
    known = values[tested]
    order = np.argsort(known)
    scaled = known[order] * (known.size / np.arange(1, known.size + 1))
    known[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    q[tested] = np.clip(known, 0, 1)
    return q


def q_values(p: xr.DataArray, maps: Sequence[str]) -> xr.DataArray:
    """The q-values of every map: over all its cells, separately for each entry of the dims ``maps``."""
    cells = within_map_dims([str(dim) for dim in p.dims], maps)
    return xr.apply_ufunc(
        benjamini_hochberg, p, input_core_dims=[cells], output_core_dims=[cells], vectorize=True
    ).transpose(*p.dims)


def within_map_dims(dims: Sequence[str], maps: Sequence[str]) -> list[str]:
    """The dims whose cells make one map: all but ``maps``; all where nothing else is left.

    >>> within_map_dims(["feature", "layer", "head"], ["feature"]), within_map_dims(["feature"], ["feature"])
    (['layer', 'head'], ['feature'])
    """
    return [dim for dim in dims if dim not in maps] or list(dims)


def cauchy_p(p: Any, axis: int = -1) -> Floats:
    """One p from several by the Cauchy combination.

    >>> round(float(cauchy_p([0.03, 0.03, 0.03])), 12)
    0.03
    """
    values = np.minimum(np.asarray(p, dtype=np.float64), _CAUCHY_CAP)
    tiny = values < _LINEAR_BELOW
    shifted = np.where(
        tiny, 1 / (np.pi * np.maximum(values, 1e-300)), np.tan((0.5 - np.where(tiny, 0.5, values)) * np.pi)
    )
    count = np.sum(~np.isnan(values), axis=axis)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(shifted, axis=axis) / np.where(count > 0, count, np.nan)
    return np.where(mean > 1 / _LINEAR_BELOW, 1 / (np.pi * np.maximum(mean, 1)), 0.5 - np.arctan(mean) / np.pi)


def min_p(p: Any, axis: int = -1) -> Floats:
    """One p from several: the smallest, with Šidák's correction for their number.

    >>> round(float(min_p([0.01, 0.5])), 6)
    0.0199
    """
    values = np.asarray(p, dtype=np.float64)
    count = np.sum(~np.isnan(values), axis=axis)
    smallest = np.min(np.where(np.isnan(values), np.inf, values), axis=axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count > 0, -np.expm1(count * np.log1p(-np.minimum(smallest, 1.0))), np.nan)


def combine_ranks(p: xr.DataArray, method: Literal["cauchy", "min-p"] = "cauchy", dim: Hashable = RANK) -> xr.DataArray:
    """One p per head from one p per rank.

    Args:
        p: with a dim ``rank``.
        method: "cauchy", which holds whatever the dependence, or "min-p" (Šidák).
        dim: what is combined away.

    Returns:
        The same without that dim.

    Examples:
        >>> p = xr.DataArray([[0.001, 0.4, 0.9], [0.5, 0.6, 0.7]], dims=("head", "rank"))
        >>> combine_ranks(p).values.round(4)
        array([0.003 , 0.6073])
    """
    methods = {"cauchy": cauchy_p, "min-p": min_p}
    if method not in methods:
        raise StudyError(f"There is no method {method!r} to combine p-values. {did_you_mean(method, methods)}")
    return xr.apply_ufunc(methods[method], p, input_core_dims=[[dim]], keep_attrs=True)
