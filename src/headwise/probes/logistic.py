"""Many regularised logistic regressions on the same points at once: one for each way to weigh the rows.

Cross-validation fits the same classifier again and again on overlapping rows of one matrix. Leaving a row out is giving
it the weight 0, so all fits share every product with the matrix: for fit b

    minimise  Σ_i s_ib [log(1 + exp(m_ib)) - y_i m_ib] + |w_b|² / 2,     m = Z w_b + c_b     (C = 1, c_b is free)

by Newton's method for all b together. A step solves (Z' D_b Z + 1) v = -gradient by conjugate gradients with the
diagonal as preconditioner; in principal coordinates Z' Z is diagonal, so a few of them are enough. A step is halved
until the loss falls, as for any convex function. Fits that are done drop out.

The optimum is unique, so it is scikit-learn's (``LogisticRegression(C=1)``), reached more tightly than its lbfgs does.
Cost: twenty fits (5 outer, 15 inner folds) of 500 points in 500 coordinates take 0.03-0.25 s on one core, five times
less than scikit-learn one by one. This module does not know what a fold is.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from headwise.stats.blas import single_threaded_blas
from headwise.stats.validation import Labels

__all__ = ["logistic"]

Floats = NDArray[np.float64]

_log = logging.getLogger(__name__)
_TOLERANCE = 1e-10  # twice what the last step could still gain (Newton's decrement): no unit, whatever the scale
_NEWTON, _GRADIENTS, _HALVINGS = 100, 250, 40


@single_threaded_blas
def logistic(points: Floats, labels: Labels, weights: Floats) -> tuple[Floats, Floats]:
    """Weights (coordinate, fit) and intercepts (fit,) for row weights (row, fit)."""
    z = np.column_stack([points, np.ones(len(points))])  # (row, coordinate + 1)
    squares = np.square(z)
    penalty = np.ones((z.shape[1], 1))
    penalty[-1] = 0
    y = labels.astype(np.float64)[:, None]

    def loss(margin: Floats, w: Floats, s: Floats) -> Floats:
        return np.sum(s * (np.logaddexp(0, margin) - y * margin), axis=0) + np.sum(penalty * w * w, axis=0) / 2

    best = np.zeros((z.shape[1], weights.shape[1]))
    margins = np.zeros(weights.shape)
    left = np.arange(weights.shape[1])
    for _ in range(_NEWTON):
        w, s, margin = best[:, left], weights[:, left], margins[:, left]
        chance = expit(margin)
        gradient = z.T @ (s * (chance - y)) + penalty * w
        step, along = _newton_step(z, squares, s * chance * (1 - chance), penalty, gradient, s.sum(axis=0))
        before, slope = loss(margin, w, s), np.sum(gradient * step, axis=0)
        length = np.ones(len(left))
        for _ in range(_HALVINGS):
            rises = (
                loss(margin + length * along, w + length * step, s) > before + 1e-4 * length * slope + 1e-13 * before
            )
            if not rises.any():
                break
            length[rises] /= 2
        best[:, left], margins[:, left] = w + length * step, margin + length * along
        left = left[-slope > _TOLERANCE]
        if not len(left):
            break
    else:
        _log.warning("%d of %d logistic regressions did not converge", len(left), weights.shape[1])
    return best[:-1], best[-1]


def _newton_step(
    z: Floats, squares: Floats, curvature: Floats, penalty: Floats, gradient: Floats, total: Floats
) -> tuple[Floats, Floats]:
    """Minus the inverse Hessian times the gradient, by conjugate gradients, and what it does to the margins."""
    diagonal = squares.T @ curvature + penalty + 1e-12
    step, along = np.zeros_like(gradient), np.zeros_like(curvature)
    residual = -gradient
    scaled = residual / diagonal
    direction = scaled
    energy = np.sum(residual * scaled, axis=0)
    aim = np.minimum(0.01, np.sqrt(energy / total)) * energy  # more exact as the optimum comes near
    for _ in range(_GRADIENTS):
        forward = z @ direction
        bent = z.T @ (curvature * forward) + penalty * direction
        pace = energy / np.maximum(np.sum(direction * bent, axis=0), 1e-300)
        step, along, residual = step + pace * direction, along + pace * forward, residual - pace * bent
        scaled = residual / diagonal
        next_energy = np.sum(residual * scaled, axis=0)
        if (next_energy <= aim).all():
            break
        direction = scaled + next_energy / np.maximum(energy, 1e-300) * direction
        energy = next_energy
    return step, along
