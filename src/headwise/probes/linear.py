"""The detector's classifier: PCA, then logistic regression, as one linear function of the features.

    PCA(min(512, features, answers)), no scaling; logistic regression, L2, C = 1, class_weight balanced

(Binkowski et al., arXiv 2502.17598.) Its value is the log-odds of "wrong" in a population where both classes are equally
common.

**PCA.** One that retains every direction is a rotation, so it is only computed where it drops something: above 512 answers,
from the training rows alone. Points come from ``projection``, in at most 768 coordinates.

**Fits.** The same classifier is needed on many subsets of rows (folds, sizes, topics); leaving a row out is giving it the
weight 0, so all subsets share every product with the matrix (`batched_logistic.solver`, here in float64 to `TOLERANCE`).
scikit-learn's solvers, one subset at a time, take 10 to 50 times as long.

Cost, on one core: twenty fits of 500 points in 500 coordinates 0.05-0.3 s, of 4,000 points in 512 about 1 s; where the PCA
drops directions, one eigendecomposition per training fold (0.2 s).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.probes.batched_logistic.parallel_map import single_torch_thread
from headwise.probes.batched_logistic.problems import BALANCED, make_points, make_problems
from headwise.probes.batched_logistic.solver import minimise
from headwise.probes.projection import principal
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]

CPU = torch.device("cpu")  # many small fits, one per core: on an H200 they took as long as on two cores
COMPONENTS = 512
TOLERANCE = 2e-9  # of the solver, in float64: probabilities are those of scikit-learn to 1e-6
_log = logging.getLogger(__name__)


class LinearScore(NamedTuple):
    """A linear function of the coordinates."""

    weights: Floats
    intercept: float
    converged: bool = True

    def __call__(self, points: Floats) -> Floats:
        """The log-odds of "wrong" of each point, to ten decimals: equal points are ties, wherever they are in the matrix."""
        return np.round(points @ self.weights + self.intercept, 10)


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
    problems = make_problems(labels[None], subsets, BALANCED, CPU, torch.float64)
    with single_torch_thread():
        table = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))[None]
        shifted = make_points(table, torch.from_numpy(subsets), standardise=False)
        found = minimise(shifted, problems, tolerance=TOLERANCE)
        if not bool(found.converged.all()):
            _log.info("%d of %d logistic regressions did not converge", int((~found.converged).sum()), len(subsets))
        intercepts = found.intercepts[0] - found.weights[0] @ shifted.mean[0]
    parts = (found.weights[0].numpy(), intercepts.tolist(), found.converged[0].tolist())
    return [LinearScore(*each) for each in zip(*parts, strict=True)]


def fit_within(
    points: Floats, labels: Labels, rows: Labels, subsets: Labels, *, components: int | None = COMPONENTS
) -> list[LinearScore]:
    """The regression on each subset of ``rows``, after one PCA of all ``rows``: for what is decided inside them."""
    if not pca_drops(points, rows, components):
        return fit_subsets(points, labels, subsets, components=None)
    mean = points[rows].mean(axis=0)
    with single_torch_thread():
        reduced, directions = principal(points[rows] - mean, components or COMPONENTS)
    fitted = fit_subsets(reduced, labels[rows], subsets[:, rows], components=None)
    weights = [directions @ linear.weights for linear in fitted]
    return [
        LinearScore(w, float(linear.intercept - mean @ w), linear.converged)
        for w, linear in zip(weights, fitted, strict=True)
    ]


def pca_drops(points: Floats, rows: Labels, components: int | None) -> bool:
    """Whether a PCA of these rows would drop a direction."""
    return components is not None and min(int(rows.sum()), points.shape[1]) > components
