"""Do several kinds of evidence together know more than the best of them?

A combined detector in two storeys. Below, each block of features (spectral, lookback, entropy) has its own detector of
the sheet; above, a logistic regression weighs their scores and plain numbers such as the mean log-probability::

    score = Σ_b  w_b (score_b - m_b) / s_b  +  Σ_c  w_c (number_c - m_c) / s_c  +  w_0

Every input is scaled by its spread in the training rows, so that a block counts by what it tells and not by its unit or
its number of columns. The upper storey learns only from inner out-of-fold scores (Wolpert 1992): from the scores of
rows that a block was fitted on it would learn to trust the block that overfits most. It has as many weights as there
are blocks, so an uninformative block costs little; that it can cost something is why the comparison is made on the
outer folds, with a paired interval (``auroc.compare``).

Both storeys are linear, so the whole is one linear function of all features (``detector.Detector`` uses that). Cost: a
few small fits. This module does not know which blocks it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.probes.classifier import Linear, fit
from headwise.probes.crossvalidation import CrossValidated, inner_folds
from headwise.stats.validation import Labels

__all__ = ["Storey", "fit_storey", "stack"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Storey(NamedTuple):
    """The upper storey: scaled inputs, then a linear function."""

    centre: Floats
    spread: Floats
    linear: Linear

    def __call__(self, inputs: Floats) -> Floats:
        """The log-odds of "wrong" from inputs (example, block)."""
        return self.linear((inputs - self.centre) / self.spread)


def fit_storey(inputs: Floats, labels: Labels) -> Storey:
    """Weigh inputs (example, block)."""
    centre, spread = inputs.mean(axis=0), inputs.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return Storey(centre, spread, fit((inputs - centre) / spread, labels))


def stack(
    blocks: Sequence[CrossValidated],
    numbers: Sequence[Floats],
    labels: Labels,
    fold_of: Ints,
    *,
    inner: int = 3,
    seed: int = 0,
    groups: Ints | None = None,
) -> CrossValidated:
    """Judge the combination of detectors that were judged on the same folds, and of plain numbers (example,)."""
    folds = np.unique(fold_of)
    score = np.empty(len(labels))
    learnt = np.full((len(folds), len(labels)), np.nan)
    outer = np.stack([block.score for block in blocks] + list(numbers), axis=1)  # (example, block)
    for place, fold in enumerate(folds):
        train = fold_of != fold
        below = np.stack([block.inner[place] for block in blocks] + list(numbers), axis=1)[train]
        score[~train] = fit_storey(below, labels[train])(outer[~train])
        ring = inner_folds(labels, train, inner=inner, seed=seed + 1 + int(fold), groups=groups)
        learnt[place, train] = out_of_fold_storey(below, labels[train], ring)
    return CrossValidated(score, learnt, [0] * len(folds), {0: score})


def out_of_fold_storey(inputs: Floats, labels: Labels, fold_of: Ints) -> Floats:
    """Scores of the upper storey for rows it was not fitted on."""
    score = np.empty(len(labels))
    for fold in np.unique(fold_of):
        test = fold_of == fold
        score[test] = fit_storey(inputs[~test], labels[~test])(inputs[test])
    return score
