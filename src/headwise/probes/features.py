"""What was measured on each answer: an array whose first dim is the example and whose other dims have names.

A feature set is an xarray.DataArray with the dim ``example`` (anywhere), or a plain array with examples first, whose
other dims are then guessed from their number::

    (example,)                      one score
    (example, feature)              a vector
    (example, layer, head)          one number a head, such as the mean log diagonal
    (example, layer, head, rank)    a sorted list a head, such as the Laplacian eigenvalues, largest first

What can be chosen about a feature set follows from its dims: with ``rank``, how many of the list (k); with ``layer``
and ``width`` but no ``head`` (a hidden state), which layer; otherwise nothing.

NaN: an eigenvalue that does not exist, because the text is shorter than k, is NaN. A detector cannot use it, so such
k are not on offer; a NaN anywhere else is refused.

This module does not know what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, WIDTH
from headwise.core.errors import DataError
from headwise.stats.validation import as_named

__all__ = [
    "KS",
    "Choice",
    "all_named",
    "choices",
    "columns",
    "select",
    "usual",
    "what_to_choose",
    "with_noise",
]

Choice = Literal["k", "layer", ""]
"""What can be chosen about a feature set: how many ranks, which layer, or nothing"""

KS = (5, 10, 25, 50, 100)  # the sweep of the paper


def what_to_choose(features: xr.DataArray) -> Choice:
    """What can be chosen about this feature set."""
    if RANK in features.dims:
        return "k"
    return "layer" if LAYER in features.dims and WIDTH in features.dims and HEAD not in features.dims else ""


def choices(features: xr.DataArray, name: str, ks: Sequence[int] = KS) -> list[int]:
    """What there is to choose from, smallest first: the k that exist in every example, or the layers; else [0]."""
    kind = what_to_choose(features)
    if kind == "layer":
        return list(range(features.sizes[LAYER]))
    if kind == "":
        return [0]
    others = tuple(place for place, dim in enumerate(features.dims) if dim != RANK)
    complete = np.isfinite(features.values).all(axis=others)  # (rank,)
    most = len(complete) if complete.all() else int(np.argmin(complete))
    if most == 0:
        raise DataError(
            f"The feature set {name!r} has no rank that is a number in every example; leave out those without it."
        )
    return sorted({k for k in ks if k <= most}) or [most]


def select(features: xr.DataArray, kind: Choice, choice: int) -> xr.DataArray:
    """The part of a feature set that a choice keeps: the first k ranks, or one layer."""
    if kind == "k":
        return features.isel({RANK: slice(0, choice)})
    return features.isel({LAYER: choice}) if kind == "layer" else features


def columns(features: xr.DataArray, name: str) -> NDArray[Any]:
    """One row an example, all else in columns (order of the dims); refuses what is not a number."""
    table = features.values.reshape(features.sizes[EXAMPLE], -1)
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise DataError(
            f"The feature set {name!r} is not a number in {int(bad.sum())} of {len(table)} examples (first: row "
            f"{int(np.argmax(bad))}); leave these examples out, or measure them again in float32."
        )
    return table


def with_noise(features: xr.DataArray, level: float, *, seed: int = 0) -> xr.DataArray:
    """The features with noise added: how robust are they?

    Args:
        features: (example, ...).
        level: of normal noise, in each feature's own spread over examples.
        seed: of the noise.

    Returns:
        As many features.

    Examples:
        >>> features = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=("example", "feature"))
        >>> bool((with_noise(features, 0.0) == features).all()), bool((with_noise(features, 0.1) == features).any())
        (True, False)
    """
    noise = np.random.default_rng(seed).standard_normal(features.shape)
    spread = features.std(EXAMPLE)
    return features + level * spread * xr.DataArray(noise, dims=features.dims)


def all_named(feature_sets: Mapping[str, Any], rows: int | None = None) -> dict[str, xr.DataArray]:
    """Several feature sets, each with named dims and all of the same examples."""
    arrays = {name: as_named(values) for name, values in feature_sets.items()}
    for name, array in arrays.items():
        rows = array.sizes[EXAMPLE] if rows is None else rows
        if array.sizes[EXAMPLE] != rows:
            raise DataError(
                f"{name!r} has {array.sizes[EXAMPLE]} examples, but {rows} were expected; give the same rows."
            )
    return arrays


def usual(kind: Choice, offered: Sequence[int]) -> int:
    """What is taken where nothing is chosen: the largest k, the middle layer. Fixed beforehand, so it cannot leak."""
    return offered[len(offered) // 2] if kind == "layer" else max(offered)
