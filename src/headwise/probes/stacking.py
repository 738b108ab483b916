"""Models on top of out-of-fold scores: the stacker that combines detectors, and Platt scaling to a probability.

Both learn only from scores of rows that a detector was not fitted on: from the others a stacker would learn to trust the
block that overfits most, and a calibration would learn to be overconfident.

**Stacker** (Wolpert, Neural Networks 5, 1992). Each block of features (spectral, lookback, entropy) has its own detector; a
logistic regression weighs their scores and plain numbers such as the mean log-probability::

    score = Σ_b  w_b (score_b - m_b) / s_b  +  Σ_c  w_c (number_c - m_c) / s_c  +  w_0

Every input is scaled by its standard deviation in the training rows, so that a block counts by what it tells and not by its
unit or its number of columns. There are as many weights as blocks, so an uninformative block costs little; that it can cost
something is why combinations are compared on the outer folds, with a paired interval (`stats.delong_test`). Both levels are
linear, so the whole is one linear function of all features (`detector.Detector` uses that).

**Platt scaling** (Platt 1999, in Advances in Large Margin Classifiers):

    P(wrong) = 1 / (1 + exp(-(slope · score + offset)))

by maximum likelihood, with the targets (n_wrong + 1) / (n_wrong + 2) and 1 / (n_right + 2) instead of 1 and 0, which keep a
perfect detector from claiming certainty. The detector's own probability assumes balanced classes and is overconfident; this
one has the base rate of the data it was learnt on. Two parameters, because isotonic regression needs some thousand answers
before it does better; two parameters and soft targets are also why scipy's BFGS fits it and not the batched solver. A
negative slope would invert the detector on the strength of its own noise: then the slope is 0, and every answer gets the
base rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from headwise.probes.crossvalidation import CrossValidated, inner_folds
from headwise.probes.linear import LinearScore, fit_linear
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Stacker(NamedTuple):
    """A meta-classifier: scaled inputs, then a linear function."""

    centre: Floats
    scale: Floats
    linear: LinearScore

    def __call__(self, inputs: Floats) -> Floats:
        """The log-odds of "wrong" from inputs (example, block)."""
        return self.linear((inputs - self.centre) / self.scale)


def fit_stacker(inputs: Floats, labels: Labels) -> Stacker:
    """Weigh inputs (example, block)."""
    centre, scale = inputs.mean(axis=0), inputs.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return Stacker(centre, scale, fit_linear((inputs - centre) / scale, labels))


def stacked_out_of_fold(inputs: Floats, labels: Labels, fold_of: Ints) -> Floats:
    """Scores of the stacker for rows it was not fitted on."""
    score = np.empty(len(labels))
    for fold in np.unique(fold_of):
        test = fold_of == fold
        score[test] = fit_stacker(inputs[~test], labels[~test])(inputs[test])
    return score


def cross_validate_stack(
    blocks: Sequence[CrossValidated],
    numbers: Sequence[Floats],
    labels: Labels,
    fold_of: Ints,
    *,
    inner: int = 3,
    seed: int = 0,
    groups: Ints | None = None,
) -> CrossValidated:
    """Evaluate the combination of detectors that were evaluated on the same folds, and of plain numbers (example,)."""
    folds = np.unique(fold_of)
    score = np.empty(len(labels))
    inner_score = np.full((len(folds), len(labels)), np.nan)
    outer = np.stack([block.score for block in blocks] + list(numbers), axis=1)  # (example, block)
    for index, fold in enumerate(folds):
        train = fold_of != fold
        inputs = np.stack([block.inner[index] for block in blocks] + list(numbers), axis=1)[train]
        score[~train] = fit_stacker(inputs, labels[train])(outer[~train])
        inner_fold_of = inner_folds(labels, train, inner=inner, seed=seed + 1 + int(fold), groups=groups)
        inner_score[index, train] = stacked_out_of_fold(inputs, labels[train], inner_fold_of)
    return CrossValidated(score, inner_score, [0] * len(folds), {0: score})


class Platt(NamedTuple):
    """Score to probability."""

    slope: float
    offset: float

    def __call__(self, score: Floats) -> Floats:
        """The probability of "wrong"."""
        return expit(self.slope * np.asarray(score) + self.offset)


def fit_platt(score: Floats, labels: Labels) -> Platt:
    """The calibration of these out-of-fold scores."""
    n_wrong, n_right = labels.sum(), (~labels).sum()
    target = np.where(labels, (n_wrong + 1) / (n_wrong + 2), 1 / (n_right + 2))
    centre, scale = float(score.mean()), float(score.std()) or 1.0
    standard = (score - centre) / scale

    def loss(parameters: Floats) -> tuple[float, Floats]:
        z = parameters[0] * standard + parameters[1]
        error = (expit(z) - target) / len(z)
        return float(np.mean(np.logaddexp(0, z) - target * z)), np.array([error @ standard, error.sum()])

    start = np.array([0.0, logit(target.mean())])
    slope, offset = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    if slope <= 0:
        return Platt(0.0, float(start[1]))
    return Platt(float(slope / scale), float(offset - slope * centre / scale))


def brier(probability: Floats, labels: Labels) -> float:
    """Brier's score, mean (probability - outcome)²: 0 is perfect, the base rate b alone gives b (1 - b)."""
    return float(np.mean(np.square(probability - labels)))
