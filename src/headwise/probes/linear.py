"""The detector's classifier: PCA, then logistic regression, as one linear function of the features.

    PCA(min(512, features, answers)), no scaling; logistic regression, L2, C = 1, class_weight balanced

(Binkowski et al., arXiv 2502.17598.) Its value is the log-odds of "wrong" in a population where both classes are equally
common.

**Projection.** n points lie in a space of at most n dims, however many columns they have. With the Gram matrix of the
centred features G = X X' = U Λ U', the points Z = U √Λ (n x n) have the same distances and angles. Whatever is invariant
to rotations and shifts gives the same result on Z as on X: PCA is, and so is a logistic regression with an L2 penalty and a
free intercept. So every fold, every k and every training size is fitted on n columns instead of 27,000. Test rows take part
in the projection, which carries no information from them to a training fold: any other rotation gives the same scores.
Coefficients return to the features by β = X' U Λ^-1/2 w. Directions with less than n · 2e-16 of the largest eigenvalue are
rounding and are dropped.

**PCA.** One that retains every direction is a rotation, so it is only computed where it drops something, above 512 answers.

**Fits.** The same classifier is needed on many subsets of rows (folds, sizes, topics); leaving a row out is giving it the
weight 0, so all subsets share every product with the matrix (`batched_logistic.solver`, here in float64 to `TOLERANCE`).
scikit-learn's solvers, one subset at a time, take 10 to 50 times as long.

Cost, on one core: projecting 500 x 27,000 takes 0.2 s (a full SVD for one training fold of 400: 1.1 s), 2,000 x 27,000
3.5 s; twenty fits of 500 points in 500 coordinates 0.05-0.3 s; where the PCA drops directions, one eigendecomposition per
subset (1,600 answers: 1 s).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.probes.batched_logistic.parallel_map import single_torch_thread
from headwise.probes.batched_logistic.problems import BALANCED, make_points, make_problems
from headwise.probes.batched_logistic.solver import minimise
from headwise.stats.blas import single_threaded_blas
from headwise.stats.validation import Labels

__all__ = ["COMPONENTS", "LinearScore", "Projection", "fit_linear", "fit_subsets", "fit_within", "project"]

Floats = NDArray[np.float64]

COMPONENTS = 512
TOLERANCE = 1e-10  # of the solver, in float64: probabilities are those of scikit-learn to 1e-6
_COLUMNS_PER_BLOCK = 4096  # held in float64 at a time
_log = logging.getLogger(__name__)


# ---- projection -----------------------------------------------------------------------------------------------------


class Projection(NamedTuple):
    """Points in fewer coordinates."""

    points: Floats
    """(example, coordinate)"""
    to_features: Callable[[Floats], Floats]
    """weights of the coordinates -> weights of the features"""
    mean: Floats
    """(feature,): the point that became 0"""


def project(table: NDArray[Any]) -> Projection:
    """The rows of a table (example, feature), exactly, in at most as many coordinates as there are rows."""
    return _principal(table, table.mean(axis=0, dtype=np.float64))


@single_threaded_blas
def _principal(table: NDArray[Any], mean: Floats, components: int | None = None) -> Projection:
    """The rows minus ``mean`` along their ``components`` directions of largest variance (all that are not rounding)."""
    rows, width = table.shape
    if width <= rows:
        centred = table - mean
        values, vectors = np.linalg.eigh(centred.T @ centred)
        vectors = vectors[:, _largest(values, components, rows)]
        return Projection(centred @ vectors, lambda weights: vectors @ weights, mean)
    gram = np.zeros((rows, rows))
    for start in range(0, width, _COLUMNS_PER_BLOCK):
        block = table[:, start : start + _COLUMNS_PER_BLOCK] - mean[start : start + _COLUMNS_PER_BLOCK]
        gram += block @ block.T
    values, vectors = np.linalg.eigh(gram)
    chosen = _largest(values, components, rows)
    vectors, lengths = vectors[:, chosen], np.sqrt(values[chosen])

    def to_features(weights: Floats) -> Floats:
        per_row = vectors @ (weights / lengths)
        per_row -= per_row.mean()  # the same as centring the rows, without a copy of them
        starts = range(0, width, _COLUMNS_PER_BLOCK)
        return np.concatenate([per_row @ table[:, i : i + _COLUMNS_PER_BLOCK].astype(np.float64) for i in starts])

    return Projection(vectors * lengths, to_features, mean)


def _largest(values: Floats, components: int | None, rows: int) -> NDArray[np.int64]:
    """Indices of the largest eigenvalues that are not rounding, largest first; at least one."""
    order = np.argsort(values)[::-1][:components]
    sound = order[values[order] > values[order[0]] * rows * np.finfo(np.float64).eps]
    return sound if len(sound) and values[sound[0]] > 0 else order[:1]


# ---- logistic regression --------------------------------------------------------------------------------------------


class LinearScore(NamedTuple):
    """A linear function of the coordinates."""

    weights: Floats
    intercept: float

    def __call__(self, points: Floats) -> Floats:
        """The log-odds of "wrong" of each point."""
        return points @ self.weights + self.intercept


def fit_linear(points: Floats, labels: Labels, *, components: int | None = COMPONENTS) -> LinearScore:
    """The classifier on all of these points."""
    return fit_subsets(points, labels, np.ones((1, len(labels)), dtype=bool), components=components)[0]


def fit_subsets(
    points: Floats, labels: Labels, subsets: Labels, *, components: int | None = COMPONENTS
) -> list[LinearScore]:
    """The classifier on each subset (subset, row); ``components=None`` never drops a direction."""
    if not len(subsets):
        return []
    if any(pca_drops(points, rows, components) for rows in subsets):
        return [fit_within(points, labels, rows, rows[None], components=components)[0] for rows in subsets]
    problems = make_problems(labels[None], subsets, BALANCED, torch.device("cpu"), torch.float64)
    with single_torch_thread():
        table = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))[None]
        shifted = make_points(table, torch.from_numpy(subsets), standardise=False)
        found = minimise(shifted, problems, tolerance=TOLERANCE)
        if not bool(found.converged.all()):
            _log.warning("%d of %d logistic regressions did not converge", int((~found.converged).sum()), len(subsets))
        intercepts = found.intercepts[0] - found.weights[0] @ shifted.mean[0]
    return [LinearScore(w, float(c)) for w, c in zip(found.weights[0].numpy(), intercepts, strict=True)]


def fit_within(
    points: Floats, labels: Labels, rows: Labels, subsets: Labels, *, components: int | None = COMPONENTS
) -> list[LinearScore]:
    """The regression on each subset of ``rows``, after one PCA of all ``rows``: for what is decided inside them."""
    if not pca_drops(points, rows, components):
        return fit_subsets(points, labels, subsets, components=None)
    own = points[rows]
    reduced = _principal(own, own.mean(axis=0), components)
    fitted = fit_subsets(reduced.points, labels[rows], subsets[:, rows], components=None)
    weights = [reduced.to_features(linear.weights) for linear in fitted]
    return [
        LinearScore(w, float(linear.intercept - reduced.mean @ w)) for w, linear in zip(weights, fitted, strict=True)
    ]


def pca_drops(points: Floats, rows: Labels, components: int | None) -> bool:
    """Whether a PCA of these rows would drop a direction."""
    return components is not None and min(int(rows.sum()), points.shape[1]) > components
