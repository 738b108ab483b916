"""What does a score mean as a probability? Platt scaling, learnt from scores of rows the detector was not fitted on.

    P(wrong) = 1 / (1 + exp(-(slope · score + offset)))

fitted by maximum likelihood on out-of-fold scores, with Platt's (1999) targets (n_wrong + 1) / (n_wrong + 2) and 1 /
(n_right + 2) instead of 1 and 0, which keep a perfect detector from claiming certainty. A logistic regression is fitted
with balanced classes and on many features, so its own probability is neither of this data's base rate nor modest; this
one is. Two numbers, because isotonic regression needs some thousand answers before it does better.

A slope below 0 would say "the detector has it backwards" on the strength of its own noise: then the slope is 0, and
every answer gets the base rate. This module does not know how common wrong answers are elsewhere: a probability holds
for data like that it was learnt on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from headwise.stats.validation import Labels

__all__ = ["Platt", "brier", "fit_platt"]

Floats = NDArray[np.float64]


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
    centre, spread = float(score.mean()), float(score.std()) or 1.0
    standard = (score - centre) / spread

    def loss(place: Floats) -> tuple[float, Floats]:
        z = place[0] * standard + place[1]
        error = (expit(z) - target) / len(z)
        return float(np.mean(np.logaddexp(0, z) - target * z)), np.array([error @ standard, error.sum()])

    start = np.array([0.0, logit(target.mean())])
    slope, offset = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    if slope <= 0:
        return Platt(0.0, float(start[1]))
    return Platt(float(slope / spread), float(offset - slope * centre / spread))


def brier(probability: Floats, labels: Labels) -> float:
    """The mean squared distance between probability and outcome: 0 is perfect, base rate alone gives b (1 - b)."""
    return float(np.mean(np.square(probability - labels)))
