"""The classifier of the method sheet, on points: PCA, then logistic regression, as one linear function.

    PCA(min(512, features, answers)), no scaling; logistic regression, L2, C = 1, class_weight balanced

(Binkowski et al., arXiv 2502.17598.) A PCA that keeps every direction is a rotation, which an L2 penalty does not see:
it is only done where it drops something, above 512 answers. The result is a weight a coordinate and an intercept; its
value is the log-odds of "wrong", in a world where both classes are equally common (class_weight balanced).

The same classifier is wanted on many subsets of rows (folds, sizes, topics), so that is what is asked for: all at once
(``logistic``). Cost: where the PCA drops something, one eigendecomposition a subset (1,600 answers: 1 s).
This module does not know what the subsets are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.probes.components import principal
from headwise.probes.logistic import logistic
from headwise.stats.validation import Labels

__all__ = ["COMPONENTS", "Linear", "drops", "fit", "fit_subsets", "fit_within"]

Floats = NDArray[np.float64]

COMPONENTS = 512


class Linear(NamedTuple):
    """A linear function of the coordinates."""

    weights: Floats
    intercept: float

    def __call__(self, points: Floats) -> Floats:
        """The log-odds of "wrong" of each point."""
        return points @ self.weights + self.intercept


def fit(points: Floats, labels: Labels, *, components: int | None = COMPONENTS) -> Linear:
    """The sheet's classifier on these points, all of them."""
    return fit_subsets(points, labels, np.ones((1, len(labels)), dtype=bool), components=components)[0]


def fit_subsets(
    points: Floats, labels: Labels, subsets: Labels, *, components: int | None = COMPONENTS
) -> list[Linear]:
    """The sheet's classifier on each subset (subset, row); ``components=None`` never drops a direction."""
    if not len(subsets):
        return []
    if not any(drops(points, rows, components) for rows in subsets):
        weights, intercepts = logistic(points, labels, balanced(labels, subsets))
        return [Linear(w, float(c)) for w, c in zip(weights.T, intercepts, strict=True)]
    return [fit_within(points, labels, rows, rows[None], components=components)[0] for rows in subsets]


def fit_within(
    points: Floats, labels: Labels, rows: Labels, subsets: Labels, *, components: int | None = COMPONENTS
) -> list[Linear]:
    """The regression on each subset of ``rows``, after one PCA of all ``rows``: for what is decided inside them."""
    if not drops(points, rows, components):
        return fit_subsets(points, labels, subsets, components=None)
    own = points[rows]
    mean = own.mean(axis=0)
    turned = principal(own, mean, components)
    weights, intercepts = logistic(turned.points, labels[rows], balanced(labels[rows], subsets[:, rows]))
    back = [turned.back(w) for w in weights.T]
    return [Linear(w, float(c - mean @ w)) for w, c in zip(back, intercepts, strict=True)]


def drops(points: Floats, rows: Labels, components: int | None) -> bool:
    """Whether a PCA of these rows would drop a direction."""
    return components is not None and min(int(rows.sum()), points.shape[1]) > components


def balanced(labels: Labels, subsets: Labels) -> Floats:
    """(row, subset): weights that give both classes of a subset the same sum; 0 outside it."""
    weights = np.zeros(subsets.T.shape)
    for kind in (labels, ~labels):
        mine = subsets & kind
        weights += (mine * (subsets.sum(axis=1) / 2 / mine.sum(axis=1))[:, None]).T
    return weights
