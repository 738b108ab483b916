"""Feature sets: what was measured on each answer, and the fitted weights of each number.

A feature set is an xarray.DataArray with the dim ``example`` (anywhere), or a plain array with examples first, whose other
dims are guessed (`stats.validation.as_named`). What can be chosen about it follows from its dims: with ``rank``, how many
of the sorted list (k); with ``layer`` and ``width`` but no ``head`` (a hidden state), which layer; otherwise nothing.

An eigenvalue that does not exist, because the text is shorter than k, is NaN. A detector cannot use it, so such k are not
available; a NaN anywhere else is refused.

A fitted block holds the choice and a weight for every number of the chosen part:

    contribution of the block to the log-odds = Σ (x - mean) · weights
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, WIDTH
from headwise.core.errors import DataError
from headwise.probes.projection import Projection, growing_points, project
from headwise.stats.validation import as_named

Floats = NDArray[np.float64]

Choice = Literal["k", "layer", ""]
"""What can be chosen about a feature set: how many ranks, which layer, or nothing"""

KS = (5, 10, 25, 50, 100)  # the sweep of the paper


def as_feature_sets(feature_sets: Mapping[str, Any], rows: int | None = None) -> dict[str, xr.DataArray]:
    """Several feature sets, each with named dims and all of the same examples."""
    arrays = {name: as_named(values) for name, values in feature_sets.items()}
    for name, array in arrays.items():
        rows = array.sizes[EXAMPLE] if rows is None else rows
        if array.sizes[EXAMPLE] != rows:
            raise DataError(
                f"{name!r} has {array.sizes[EXAMPLE]} examples, but {rows} were expected; give the same rows."
            )
    return arrays


def choice_kind(features: xr.DataArray) -> Choice:
    """What can be chosen about this feature set."""
    if RANK in features.dims:
        return "k"
    return "layer" if LAYER in features.dims and WIDTH in features.dims and HEAD not in features.dims else ""


def choices(features: xr.DataArray, name: str, ks: Sequence[int] = KS) -> list[int]:
    """What there is to choose from, smallest first: the k that exist in every example, or the layers; else [0]."""
    kind = choice_kind(features)
    if kind == "layer":
        return list(range(features.sizes[LAYER]))
    if kind == "":
        return [0]
    others = tuple(axis for axis, dim in enumerate(features.dims) if dim != RANK)
    complete = np.isfinite(features.values).all(axis=others)  # (rank,)
    longest = len(complete) if complete.all() else int(np.argmin(complete))
    if longest == 0:
        raise DataError(
            f"The feature set {name!r} has no rank that is a number in every example; leave out those without it."
        )
    return sorted({k for k in ks if k <= longest}) or [longest]


def default_choice(kind: Choice, available: Sequence[int]) -> int:
    """What is taken where nothing is chosen: the largest k, the middle layer. Fixed beforehand, so it cannot leak."""
    return available[len(available) // 2] if kind == "layer" else max(available)


def select(features: xr.DataArray, kind: Choice, choice: int) -> xr.DataArray:
    """The chosen part of a feature set: the first k ranks, or one layer."""
    if kind == "k":
        return features.isel({RANK: slice(0, choice)})
    return features.isel({LAYER: choice}) if kind == "layer" else features


def as_table(features: xr.DataArray, name: str) -> NDArray[Any]:
    """(example, column): all other dims flattened in their order; refuses what is not a number."""
    table = features.values.reshape(features.sizes[EXAMPLE], -1)
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise DataError(
            f"The feature set {name!r} is not a number in {int(bad.sum())} of {len(table)} examples (first: row "
            f"{int(np.argmax(bad))}); leave these examples out, or measure them again in float32."
        )
    return table


def choice_points(
    features: xr.DataArray,
    name: str,
    available: Sequence[int],
    coordinates: int | None = None,
    done: Callable[[], object] = lambda: None,
) -> list[tuple[int, Projection | Callable[[], Projection]]]:
    """Every choice and its projection, or what computes it: the k share their products."""
    kind = choice_kind(features)
    if kind == "k":
        parts = [features.isel({RANK: slice(*ends)}) for ends in pairwise([0, *available])]
        grown = growing_points([as_table(part, name) for part in parts], coordinates, done)
        sets = [parts[: index + 1] for index in range(len(parts))]
        return [(k, _in_order(found, own)) for k, found, own in zip(available, grown, sets, strict=True)]

    def projected(choice: int) -> Projection:
        return project(as_table(select(features, kind, choice), name), coordinates)

    return [(choice, partial(projected, choice)) for choice in available]


def _in_order(found: Projection, parts: Sequence[xr.DataArray]) -> Projection:
    """A projection of the columns of several parts, one part after the other, as one of all their ranks side by side."""

    def joined(values: Floats) -> Floats:
        ends = np.cumsum([part[0].size for part in parts])[:-1]
        shaped = [own.reshape(part.shape[1:]) for own, part in zip(np.split(values, ends), parts, strict=True)]
        return np.concatenate(shaped, axis=parts[0].dims.index(RANK) - 1).ravel()

    return Projection(found.points, lambda weights: joined(found.to_features(weights)), joined(found.mean))


def with_noise(features: xr.DataArray, level: float, *, seed: int = 0) -> xr.DataArray:
    """The features with normal noise added, to test how robust a detector is.

    Args:
        features: (example, ...).
        level: of the noise, in units of each feature's own standard deviation over examples.
        seed: of the noise.

    Returns:
        As many features.

    Examples:
        >>> features = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=("example", "feature"))
        >>> bool((with_noise(features, 0.0) == features).all()), bool((with_noise(features, 0.1) == features).any())
        (True, False)
    """
    noise = np.random.default_rng(seed).standard_normal(features.shape)
    deviation = features.std(EXAMPLE)
    return features + level * deviation * xr.DataArray(noise, dims=features.dims)


@dataclass(frozen=True)
class FittedBlock:
    """One feature set of a fitted detector. Takes lists longer than its own k (the first k are used)."""

    dims: tuple[str, ...]
    """names of the dims of ``mean`` and ``weights``: without the example, after the choice"""
    kind: Choice
    """what was chosen about it"""
    choice: int
    """the k or the layer that was chosen"""
    mean: Floats
    weights: Floats

    @property
    def has_heads(self) -> bool:
        """Whether its numbers belong to heads."""
        return LAYER in self.dims and HEAD in self.dims

    def terms(self, features: Any, name: str) -> Floats:
        """(example, ...): what every number adds to the log-odds; a DataError where the features do not fit."""
        array = as_named(features)
        if self.kind and (RANK if self.kind == "k" else LAYER) in array.dims:
            size = array.sizes[RANK if self.kind == "k" else LAYER]
            if size < self.choice + (self.kind == "layer"):
                what = f"{self.choice} ranks per head" if self.kind == "k" else f"layer {self.choice}"
                raise DataError(f"The detector reads {what} of {name!r}, but the features have {size}; measure more.")
            array = select(array, self.kind, self.choice)
        dims = tuple(str(dim) for dim in array.dims if dim != EXAMPLE)
        if array.shape[1:] != self.mean.shape or dims != self.dims:
            raise DataError(
                f"The detector was fitted on {name!r} of {_shape(self.dims, self.mean.shape)}, but these features "
                f"have {_shape(dims, array.shape[1:])}; measure them with the same model and the same settings."
            )
        table = as_table(array, name)
        return ((table - self.mean.ravel()) * self.weights.ravel()).reshape(array.shape)

    def per_head(self, terms: Floats) -> Floats:
        """(example, layer, head): the terms summed over all but layer and head."""
        over = tuple(axis + 1 for axis, dim in enumerate(self.dims) if dim not in (LAYER, HEAD))
        summed = terms.sum(axis=over)
        return summed if self.dims.index(LAYER) < self.dims.index(HEAD) else summed.swapaxes(1, 2)


def _shape(dims: tuple[str, ...], shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size} {dim}" for dim, size in zip(dims, shape, strict=True)) or "one number"
