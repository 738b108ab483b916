"""One feature set as a fitted detector holds it: which part of it was chosen, and a weight for every number of that
part.

    contribution of the block to the log-odds = Σ (x - mean) · weights

Beside the fitted numbers it keeps the names of the dims, so that it can say which head a weight belongs to, and refuse
features of another shape. It takes lists longer than its own k (the first k are used).

This module does not know how the weights were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK
from headwise.core.errors import DataError
from headwise.probes.features import Choice, columns, select
from headwise.stats.validation import as_named

__all__ = ["Block"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """A fitted feature set."""

    dims: tuple[str, ...]
    """names of the dims of ``mean`` and ``weights``, the example left out and the choice made"""
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
                what = f"{self.choice} ranks a head" if self.kind == "k" else f"layer {self.choice}"
                raise DataError(f"The detector reads {what} of {name!r}, but the features have {size}; measure more.")
            array = select(array, self.kind, self.choice)
        dims = tuple(str(dim) for dim in array.dims if dim != EXAMPLE)
        if array.shape[1:] != self.mean.shape or dims != self.dims:
            raise DataError(
                f"The detector was fitted on {name!r} of {_shape(self.dims, self.mean.shape)}, but these features "
                f"have {_shape(dims, array.shape[1:])}; measure them with the same model and the same settings."
            )
        table = columns(array, name)
        return ((table - self.mean.ravel()) * self.weights.ravel()).reshape(array.shape)

    def per_head(self, terms: Floats) -> Floats:
        """(example, layer, head): the terms summed over all but layer and head."""
        over = tuple(place + 1 for place, dim in enumerate(self.dims) if dim not in (LAYER, HEAD))
        summed = terms.sum(axis=over)
        return summed if self.dims.index(LAYER) < self.dims.index(HEAD) else summed.swapaxes(1, 2)


def _shape(dims: tuple[str, ...], shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size} {dim}" for dim, size in zip(dims, shape, strict=True)) or "one number"
