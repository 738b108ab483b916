"""In which directions does the loss bend most? A sketch of X'DX, which makes hard problems easy.

Activations vary a thousand times more in some directions than in others, and a descent that does not know this takes
hundreds of steps. Nyström's sketch (Frangella, Tropp, Udell, arXiv 2110.02820) finds the largest directions from two
products with a few vectors Ω, random ones at first. With D the curvature p (1 - p) of every row, a mean over the problems
of a cell,

    Y = X'D X Ω,     X'DX ≈ Y (Ω'Y)^-1 Y'  =  V λ V'

The Hessian of a problem is about k X'DX + 1/C, k its own curvature over the mean; its inverse, in the sketch, is

    M^-1 g  =  g / (k λ_r + 1/C)  +  V [1 / (k λ + 1/C) - 1 / (k λ_r + 1/C)] V' g

with λ_r the smallest eigenvalue of the sketch (with half of it, two steps more). It only has to be roughly right: it
changes how fast the optimum is reached, not where it is. One sketch serves all problems of a cell. D changes on the way, so
a sketch is made anew now and then, with Ω the directions of the last one: each time that is also a step of a power
iteration, and the directions come nearer to the largest ones, which spares more steps than a sketch of more directions does.

Cost: two products with RANK columns. This module does not know what is minimised.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.probes.together.shares import Shares

__all__ = ["RANK", "Sketch", "sketch_of", "solve"]

RANK = 48
_SHIFT = 1e-6  # of the largest eigenvalue: what keeps the small system regular; removed again from the eigenvalues


class Sketch(NamedTuple):
    """The largest directions of each cell."""

    vectors: Tensor
    """(cell, feature, rank) float32, orthonormal"""
    values: Tensor
    """(cell, rank) float32, largest first"""


def sketch_of(x: Tensor, curvature: Tensor, start: Tensor | None = None) -> Sketch:
    """The sketch of points (cell, row, feature) with ``curvature`` (cell, row).

    ``start`` (cell, feature, rank): the directions of a sketch made before; None: random ones, from a fixed seed.
    """
    cells, rows, width = x.shape
    rank = min(RANK, rows, width)
    omega = _directions(width, rank).to(x.device).expand(cells, -1, -1) if start is None else start
    ahead = x @ omega  # (cell, row, rank)
    bent = ahead * curvature[..., None]
    y = (bent.mT @ x).mT.double()  # (cell, feature, rank)
    core = bent.mT.double() @ ahead.double()
    shift = _SHIFT * core.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None].clamp(min=1e-30)
    lower = torch.linalg.cholesky((core + core.mT) / 2 + shift * torch.eye(rank, dtype=core.dtype, device=x.device))
    half = torch.linalg.solve_triangular(lower.mT, y + shift * omega.double(), upper=True, left=False)
    values, turn = torch.linalg.eigh(half.mT @ half)
    values, turn = values.flip(1), turn.flip(2)
    vectors = half @ turn / values.clamp(min=1e-300).sqrt()[:, None]
    return Sketch(vectors.float(), (values - shift[:, 0]).clamp(min=0).float())


def solve(shares: Shares, vectors: Tensor, inverse: Tensor, gradient: Tensor) -> Tensor:
    """M^-1 of gradients (problem, feature); ``inverse`` (problem, rank): 1 / (k λ + 1/C); ``vectors`` (cell, ...)."""
    rest = inverse[:, -1:]
    inside = shares.product(gradient, vectors).mul_(inverse - rest)
    return shares.product(inside, vectors.mT).addcmul_(rest, gradient)


@cache
def _directions(width: int, rank: int) -> Tensor:
    """(feature, rank): random and orthonormal, the same ones each time."""
    return torch.linalg.qr(torch.randn(width, rank, generator=torch.Generator().manual_seed(0)))[0]
