"""The solver: many logistic regressions on shared points, by conjugate gradients with an exact line search.

For every cell and every problem of it (a fold, or a fold under other labels), with row weights s and penalty q² / C,

    minimise  Σ_i s_i [log(1 + exp(m_i)) - y_i m_i]  +  Σ_j q_j² u_j² / 2C,     m = (X - centre) u + c     (c is free)

A step, for all problems at once:

    1. gradient  g = (X - centre)'(s (σ(m) - y)) + q² u / C   one product with X, shared by all problems of a cell
    2. direction v = -M^-1 g + β v_before                  M: the cell's ``sketch``, in the fold's own features; β of
                                                           Hestenes and Stiefel
    3. a = (X - centre) v + v_c                            the other product
    4. the lowest point on the line: the root of Σ s (σ(m + t a) - y) a + (u + t v) q² v / C, which is rising in t;
       margins are known along the whole line, so that this needs no product

The function is strictly convex in u, so the optimum is unique, and scikit-learn's. A problem is done when its largest
gradient, over its own features, is at most ``tolerance`` times the sum of its weights: the meaning of scikit-learn's
``tol``. At 1e-5 coefficients are about 1e-3 from the optimum; at scikit-learn's default of 1e-4 about 1e-2. Done problems
stand still; cells of which all are done drop out.

Cost: two products with X a step; 35-50 steps for activations at a tolerance of 1e-4 (scikit-learn's lbfgs: 60-190).
float32 throughout: nothing is a difference of large numbers, since the loss itself is never taken.
This module does not know what a fold is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.probes.together.points import Points
from headwise.probes.together.problems import Problems
from headwise.probes.together.sketch import RANK, Sketch, sketch_of

__all__ = ["STEPS", "TOLERANCE", "Optimum", "minimise"]

TOLERANCE = 1e-5
STEPS = 1000
_AGAIN = 12  # the step before which a better sketch is made: curvatures have found their size by then
_LINE, _CLOSE = 20, 0.05  # tries on a line; how much of its slope may be left


class Optimum(NamedTuple):
    """The solved problems of a block of cells."""

    weights: Tensor
    """(cell, problem, feature): of the points"""
    intercepts: Tensor
    """(cell, problem)"""
    steps: Tensor
    """(cell, problem)"""
    converged: Tensor
    """(cell, problem) bool"""


@torch.no_grad()
def minimise(
    points: Points, problems: Problems, *, c: float = 1.0, tolerance: float = TOLERANCE, steps: int = STEPS
) -> Optimum:
    """Solve every problem at every cell."""
    ratio = points.ratio[:, problems.folds]  # (cell, problem, feature)
    limit = tolerance * problems.weights.sum(dim=1, keepdim=True)  # (problem, 1)
    whole = now = _begin(points.x, problems)
    cells = _Cells(
        points.x,
        points.centre[:, problems.folds],
        _penalty(ratio, c),
        1 / ratio,
        *_sketched(points.x, problems, now, RANK // 2),
    )
    left = torch.arange(len(points.x), device=points.x.device)
    for step in range(steps):
        if step == _AGAIN:
            cells = _Cells(*cells[:4], *_sketched(cells.x, problems, now, RANK))
        residual = problems.weights * (now.chance - problems.labels)
        gc = residual.sum(dim=2, keepdim=True)
        gradient = torch.baddbmm(
            cells.penalty * now.u - cells.centre * gc, residual, cells.x
        )  # (cell, problem, feature)
        own = gradient * cells.shrink  # with respect to the fold's own features
        reached = (own.abs() <= limit).all(dim=2, keepdim=True) & (gc.abs() <= limit)
        now = now._replace(done=now.done | reached)
        busy = ~now.done.all(dim=1)[:, 0]
        count = int(busy.sum())
        if count == 0:
            break
        if 4 * count <= 3 * len(left):  # carry on with fewer cells
            _put(whole, left, now)
            left, gradient, own, gc = left[busy], gradient[busy], own[busy], gc[busy]
            now, cells = _State(*(part[busy] for part in now)), _Cells(*(part[busy] for part in cells))
        now = _step(cells, problems, now, gradient, own, gc, 1 / c)
    _put(whole, left, now)
    intercepts = whole.c - _dot(points.centre[:, problems.folds], whole.u)
    return Optimum(whole.u, intercepts[..., 0], whole.steps[..., 0], whole.done[..., 0])


class _Cells(NamedTuple):
    """What stays while the problems of some cells are solved."""

    x: Tensor  # (cell, row, feature)
    centre: Tensor  # (cell, problem, feature)
    penalty: Tensor  # (cell, problem, feature)
    shrink: Tensor  # (cell, problem, feature): 1 / ratio
    vectors: Tensor  # (cell, feature, rank): the sketch
    values: Tensor  # (cell, 1, rank)
    bent: Tensor  # (cell, 1, 1): the sum of the curvature it was made with


def _penalty(ratio: Tensor, c: float) -> Tensor:
    """q² / C; 0 for constant features, whose weights stay 0 because their gradient is shrunk to 0."""
    return torch.where(ratio.isinf(), 0.0, ratio.square() / c)


def _sketched(x: Tensor, problems: Problems, now: _State, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sketch of a _Cells, as things stand."""
    curvature = (problems.weights * now.chance * (1 - now.chance)).mean(dim=1)  # (cell, row)
    return *sketch_of(x, curvature, rank), curvature.sum(dim=1)[:, None, None]


class _State(NamedTuple):
    """Where every problem stands."""

    u: Tensor  # (cell, problem, feature)
    c: Tensor  # (cell, problem, 1)
    margin: Tensor  # (cell, problem, row)
    chance: Tensor  # (cell, problem, row): σ(margin)
    v: Tensor  # (cell, problem, feature): the last direction
    vc: Tensor  # (cell, problem, 1)
    before: Tensor  # (cell, problem, feature): the last gradient
    before_c: Tensor  # (cell, problem, 1)
    steps: Tensor  # (cell, problem, 1)
    done: Tensor  # (cell, problem, 1) bool


def _begin(x: Tensor, problems: Problems) -> _State:
    """No weights, and the intercept that fits best alone."""
    wrong = (problems.weights * problems.labels).sum(dim=1)
    odds = (wrong / (problems.weights.sum(dim=1) - wrong)).log()
    c = odds[None, :, None].repeat(len(x), 1, 1)
    margin = c.repeat(1, 1, x.shape[1])
    zeros = x.new_zeros(len(x), len(odds), x.shape[2])
    none = torch.zeros_like(c)
    return _State(zeros, c, margin, margin.sigmoid(), zeros, none, zeros, none, none.long(), none.bool())


def _put(whole: _State, cells: Tensor, part: _State) -> None:
    """Write what was found for some cells back among all."""
    for name in ("u", "c", "steps", "done"):
        getattr(whole, name)[cells] = getattr(part, name)


def _step(
    cells: _Cells, problems: Problems, now: _State, gradient: Tensor, own: Tensor, gc: Tensor, ridge: float
) -> _State:
    """To the lowest point along the next direction; problems that are done stand still."""
    curvature = problems.weights * now.chance * (1 - now.chance)  # (cell, problem, row)
    total = curvature.sum(dim=2, keepdim=True)
    z = cells.shrink * Sketch(cells.vectors, cells.values).solve(own, total / cells.bent, ridge)
    v, vc = _direction(now, gradient, gc, z, gc / total.clamp(min=1e-12))
    along = torch.baddbmm(vc - _dot(cells.centre, v), v, cells.x.mT)  # (cell, problem, row)
    pull = cells.penalty * v
    t, chance = _lowest(
        _Line(now.margin, along, problems.weights * along, _dot(pull, now.u), _dot(pull, v)), problems.labels,
        _dot(gradient, v) + gc * vc, _dot(curvature * along, along),
    )  # fmt: skip
    here = (now.u + t * v, now.c + t * vc, now.margin + t * along, chance)
    return _State(*here, v, vc, gradient, gc, now.steps + ~now.done, now.done)


def _direction(now: _State, gradient: Tensor, gc: Tensor, z: Tensor, zc: Tensor) -> tuple[Tensor, Tensor]:
    """-z + β v, with the β of Hestenes and Stiefel where that is positive and leads down; 0 for what is done."""
    change, change_c = gradient - now.before, gc - now.before_c
    bent = _dot(now.v, change) + now.vc * change_c
    share = (_dot(z, change) + zc * change_c) / bent.clamp(min=1e-30)
    downhill = share * (_dot(gradient, now.v) + gc * now.vc) < _dot(gradient, z) + gc * zc
    share = torch.where((bent > 0) & (share > 0) & downhill, share, 0)
    goes = (~now.done).float()
    return goes * (share * now.v - z), goes * (share * now.vc - zc)


class _Line(NamedTuple):
    """A line through the margins of every problem."""

    margin: Tensor  # (cell, problem, row): where it begins
    along: Tensor  # what one unit of the direction adds
    weighed: Tensor  # the same times the row's weight
    pull: Tensor  # (cell, problem, 1): the penalty's slope at the beginning
    stiffness: Tensor  # and its curvature


def _lowest(line: _Line, labels: Tensor, slope: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """How far to go, and the chances there: Newton's steps, kept between points known to lie on either side.

    ``slope`` is that of the whole function at the beginning, ``curvature`` that of the data alone.
    """
    t = -slope / (curvature + line.stiffness).clamp(min=1e-30)
    low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
    enough = _CLOSE * slope.abs()
    for _ in range(_LINE):
        chance = torch.sigmoid(line.margin + t * line.along)
        slope = _dot(chance - labels, line.weighed) + line.pull + t * line.stiffness
        if bool((slope.abs() <= enough).all()):
            break
        bent = _dot(chance * (1 - chance) * line.along, line.weighed) + line.stiffness
        low, high = torch.where(slope < 0, t, low), torch.where(slope > 0, t, high)
        newton = t - slope / bent.clamp(min=1e-30)
        middle = torch.where(high.isinf(), 2 * t, (low + high) / 2)
        t = torch.where((newton > low) & (newton < high), newton, middle)
    return t, chance


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=2, keepdim=True)
