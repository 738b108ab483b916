"""In which directions is the loss most curved? A low-rank sketch of X'DX, which preconditions the solver.

Activations vary a thousand times more in some directions than in others, and plain descent takes hundreds of steps.
Nyström's sketch (Frangella, Tropp, Udell, arXiv 2110.02820) finds the largest directions from two products with a few
vectors Ω, random ones at first. With D the curvature p (1 - p) of every row, a mean over the problems of a cell,

    Y = X'D X Ω,     X'DX ≈ Y (Ω'Y)^-1 Y'  =  V λ V'

The Hessian of a problem is about k X'DX + 1/C, k its own curvature over the mean; its inverse, in the sketch, is

    M^-1 g  =  g / (k λ_r + 1/C)  +  V [1 / (k λ + 1/C) - 1 / (k λ_r + 1/C)] V' g

with λ_r the smallest eigenvalue of the sketch (with half of it, two steps more). It only has to be roughly right: it changes
how fast the optimum is reached, not where it is. One sketch serves all problems of a cell. D changes on the way, so the
sketch is refreshed a few times, with Ω the directions of the last one: each refresh is also a step of a power iteration, and
the directions approach the largest ones, which saves more steps than a sketch of higher rank.

Cost: two products with RANK columns.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.probes.batched_logistic.problems import ProblemBatch

__all__ = ["RANK", "CurvatureSketch", "precondition", "sketch_curvature"]

RANK = 48
_SHIFT = 1e-6  # of the largest eigenvalue: keeps the small system regular; removed again from the eigenvalues


class CurvatureSketch(NamedTuple):
    """The largest directions of each cell."""

    vectors: Tensor
    """(cell, feature, rank), orthonormal"""
    values: Tensor
    """(cell, rank), largest first"""


def sketch_curvature(x: Tensor, curvature: Tensor, start: Tensor | None = None) -> CurvatureSketch:
    """The sketch of points (cell, row, feature) with ``curvature`` (cell, row).

    ``start`` (cell, feature, rank): the directions of an earlier sketch; None: random ones, from a fixed seed.
    """
    cells, rows, width = x.shape
    rank = min(RANK, rows, width)
    omega = _random_directions(width, rank).to(x).expand(cells, -1, -1) if start is None else start
    projected = x @ omega  # (cell, row, rank)
    weighted = projected * curvature[..., None]
    y = (weighted.mT @ x).mT.double()  # (cell, feature, rank)
    core = weighted.mT.double() @ projected.double()
    shift = _SHIFT * core.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None].clamp(min=1e-30)
    lower = torch.linalg.cholesky((core + core.mT) / 2 + shift * torch.eye(rank, dtype=core.dtype, device=x.device))
    half = torch.linalg.solve_triangular(lower.mT, y + shift * omega.double(), upper=True, left=False)
    values, rotation = torch.linalg.eigh(half.mT @ half)
    values, rotation = values.flip(1), rotation.flip(2)
    vectors = half @ rotation / values.clamp(min=1e-300).sqrt()[:, None]
    return CurvatureSketch(vectors.to(x.dtype), (values - shift[:, 0]).clamp(min=0).to(x.dtype))


def precondition(batch: ProblemBatch, vectors: Tensor, inverse: Tensor, gradient: Tensor) -> Tensor:
    """M^-1 of gradients (problem, feature); ``inverse`` (problem, rank): 1 / (k λ + 1/C); ``vectors`` (cell, ...)."""
    rest = inverse[:, -1:]
    inside = batch.product(gradient, vectors).mul_(inverse - rest)
    return batch.product(inside, vectors.mT).addcmul_(rest, gradient)


@cache
def _random_directions(width: int, rank: int) -> Tensor:
    """(feature, rank): random and orthonormal, the same ones each time."""
    return torch.linalg.qr(torch.randn(width, rank, generator=torch.Generator().manual_seed(0)))[0]
