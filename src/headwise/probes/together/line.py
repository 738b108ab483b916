"""The lowest point along a line, for many logistic regressions at once.

Along a direction every margin is m + t a, known for all t without a product with the features. The slope

    Σ_i s_i (σ(m_i + t a_i) - y_i) a_i  +  pull + t stiffness

is rising in t, so that its root is the lowest point. Newton's steps, kept between points known to lie on either side,
until no more than a fifth of the first slope is left: a closer root saves no step, and one try will mostly do.

This module does not know features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Line", "Reached", "dot"]

_TRIES, _CLOSE = 20, 0.2  # tries on a line; how much of its slope may be left


class Reached(NamedTuple):
    """Where each problem stands, seen from its rows: (problem, row)."""

    margin: Tensor
    residual: Tensor
    """s (p - y), p = σ(margin)"""
    curvature: Tensor
    """s p (1 - p)"""

    @classmethod
    def at(cls, margin: Tensor, weights: Tensor, aim: Tensor) -> Reached:
        """``weights`` s and ``aim`` -s y, (problem, row)."""
        chance = torch.sigmoid(margin)
        share = weights * chance
        return cls(margin, share + aim, share.addcmul_(share, chance, value=-1))


class Line(NamedTuple):
    """A direction for every problem; numbers are (problem, 1)."""

    along: Tensor
    """(problem, row): what one unit of the direction adds to the margins"""
    slope: Tensor
    """of the whole function, where the line begins"""
    pull: Tensor
    """the penalty's part of it"""
    stiffness: Tensor
    """the penalty's curvature along the line"""

    def lowest(self, begin: Reached, weights: Tensor, aim: Tensor) -> tuple[Tensor, Reached, Tensor]:
        """How far to go (problem, 1), what is reached there, and the slope left."""
        t = -self.slope / self._bent(begin)
        low: Tensor | None = None
        enough = _CLOSE * self.slope.abs()
        for tries in range(_TRIES):
            there = Reached.at(torch.addcmul(begin.margin, t, self.along), weights, aim)
            slope = dot(there.residual, self.along) + self.pull + t * self.stiffness
            if tries == _TRIES - 1 or bool((slope.abs() <= enough).all()):
                break
            if low is None:
                low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
            low, high = torch.where(slope < 0, t, low), torch.where(slope > 0, t, high)
            newton = t - slope / self._bent(there)
            middle = torch.where(high.isinf(), 2 * t, (low + high) / 2)
            t = torch.where((newton > low) & (newton < high), newton, middle)
        return t, there, slope

    def _bent(self, there: Reached) -> Tensor:
        """(problem, 1): the curvature along the line."""
        return (dot(there.curvature * self.along, self.along) + self.stiffness).clamp_(min=1e-30)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(problem, 1): of two vectors a problem."""
    return (a * b).sum(dim=1, keepdim=True)
