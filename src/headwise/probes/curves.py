"""Where does a detector's knowledge sit, and how much data does it need? Out-of-fold scores by layer and by size.

- by layer: the sheet's detector on the features of one layer alone, against all layers together;
- by size: fitted on the first m training answers of each fold, in a seeded random order that keeps the share of wrong
  answers, tested on the whole test fold. A curve that still rises at its end asks for more questions.

Nothing is chosen here: k is the largest on offer, so the curves cannot leak. The PCA of the sheet is left out: the same
up to 512 answers, and hardly different above. They are to look at; a layer that looks best here was found on test folds
and its number is optimistic.

Cost: a fit a fold for each point of a curve. This module does not know what is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import LAYER
from headwise.probes.classifier import fit_subsets
from headwise.probes.components import coordinates
from headwise.probes.crossvalidation import out_of_fold
from headwise.probes.features import columns
from headwise.stats.validation import Labels

__all__ = ["scores_by_layer", "scores_by_size"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def scores_by_layer(features: xr.DataArray, name: str, labels: Labels, fold_of: Ints) -> dict[int, Floats]:
    """Layer -> out-of-fold scores of a detector that sees only this layer."""
    return {
        layer: out_of_fold(
            coordinates(columns(features.isel({LAYER: layer}), name)).points, labels, fold_of, components=None
        )
        for layer in range(features.sizes[LAYER])
    }


def scores_by_size(
    points: Floats, labels: Labels, fold_of: Ints, sizes: Sequence[int], *, seed: int = 0
) -> dict[int, Floats]:
    """Size -> out-of-fold scores of a detector fitted on so many answers; sizes no training fold has are left out."""
    folds = np.unique(fold_of)
    fewest = min(int((fold_of != fold).sum()) for fold in folds)
    usable = [size for size in sizes if size <= fewest]
    scores = {size: np.empty(len(labels)) for size in usable}
    subsets = np.zeros((len(folds), len(usable), len(labels)), dtype=bool)
    for place, fold in enumerate(folds):
        order = _evenly(np.flatnonzero(fold_of != fold), labels, np.random.default_rng([seed, int(fold)]))
        for column, size in enumerate(usable):
            subsets[place, column, order[:size]] = True
    linears = iter(fit_subsets(points, labels, subsets.reshape(-1, len(labels)), components=None))
    for fold in folds:
        test = fold_of == fold
        for size in usable:
            scores[size][test] = next(linears)(points[test])
    return scores


def _evenly(rows: Ints, labels: Labels, random: np.random.Generator) -> Ints:
    """The rows in random order, such that every beginning has about the same share of wrong answers."""
    places = np.empty(len(rows))
    for kind in (True, False):
        own = np.flatnonzero(labels[rows] == kind)
        places[own] = (random.permutation(len(own)) + 0.5) / len(own)
    return rows[np.argsort(places, kind="stable")]
