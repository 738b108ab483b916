"""The solver: many logistic regressions on shared points, by conjugate gradients with an exact line search.

For every cell and every problem of it (a fold, or a fold under other labels), with row weights s and the fold's own
features Z = (X - centre) / q, of which no matrix is made,

    minimise  Σ_i s_i [log(1 + exp(m_i)) - y_i m_i]  +  |w|² / 2C,     m = Z w + c     (c is free)

A step, for all problems at once:

    1. gradient  g = Z'(s (σ(m) - y)) + w / C              one product with X, shared by all problems of a cell
    2. direction v = -M^-1 g + β v_before                  M: the cell's ``sketch``; β of Hestenes and Stiefel
    3. a = Z v + v_c                                       the other product
    4. the lowest point on that ``line``, which needs no product

The function is strictly convex in w, so the optimum is unique, and scikit-learn's. A problem is done when its largest
gradient, over its own features, is at most ``tolerance`` times the sum of its weights: the meaning of scikit-learn's
``tol``. At 1e-5 coefficients are about 1e-3 from the optimum; at scikit-learn's default of 1e-4 about 1e-2. What is done
leaves the list (``shares``).

Cost: two products with X a step, 35-50 steps for activations at a tolerance of 1e-5 (scikit-learn's lbfgs: 60-190 at
1e-4, each for one problem). On a CPU half of the time goes into products, a fifth into sketches, and the rest into some
sixty small operations a step. What matters, in steps of a plain copy of this descent in float64, on two cells of the default
model's map (800 rows x 576 features, C = 1, 5 folds):

    a sketch from random directions, of rank 64 or 128        63 to 72
    made anew three times, from the directions of the last    50 (rank 64), 49 (rank 48), 59 (rank 32)
    the very eigenvectors of the mean over folds, rank 64     45, and of each fold's own 37, but who has them is done
    the whole matrix X'DX of step 12, a mean over folds       more than with its sketch: curvatures change too much

and of this one, on 48 cells of that map, with a sketch made at the start and before steps 4 and 12: 53 (rank 32), 47 (40),
45 (48), 41 (64), 40 (80); a sketch of rank 48 costs as much as four steps, so that 40 to 64 are about as quick.

What does not pay: to start every fold at the fit of all rows (the optima of folds lie half of their length or more from it),
or at the eighth step of one descent on the mean of the folds (5 steps fewer, no quicker); BFGS updates of any memory (as many
steps); each fold's own curvature within the sketch's directions, however often renewed (no fewer); a first sketch of every
fourth row (2 steps more); β of Dai and Yuan (3 more) or Polak and Ribière (as many); products by oneDNN, plain or packed
(up to twice as quick alone, but not where matrices come from the cache that both cores share). Newton's steps with each
fold's own matrix would be few, but the matrices of one such step are 2 GFLOP, five times all the products here.
float32 throughout: nothing is a difference of large numbers, since the loss itself is never taken.
This module does not know what a fold is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.probes.together.line import Line, Reached, dot
from headwise.probes.together.points import Points
from headwise.probes.together.problems import Problems
from headwise.probes.together.shares import Shares
from headwise.probes.together.sketch import sketch_of, solve

__all__ = ["STEPS", "TOLERANCE", "Optimum", "minimise"]

TOLERANCE = 1e-5
STEPS = 1000
_AGAIN = (4, 12)  # the steps before which a better sketch is made: curvatures change most at first
_DONE = -1.0
_LEAVE = 0.9  # of the problems of a list: when no more than so many are left, the others go


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
    listed, now, x = _listed(points, problems, tolerance), _begin(points, problems), points.x
    found = _Found(now.w.clone(), now.c.clone(), torch.full_like(listed.place, steps), torch.zeros_like(listed.place))
    bend = _bend(x, listed, now)
    for step in range(steps):
        if step in _AGAIN:
            bend = _bend(x, listed, now, bend.vectors)
        slopes = _slopes(x, listed, now, 1 / c)
        fresh = slopes.largest <= listed.limit
        if bool(fresh.any()):
            _keep(found, listed, now, fresh[:, 0], step)
            listed = _without(listed, fresh)
            stays, cells = listed.shares.without(listed.limit[:, 0] == _DONE)
            count = int(stays.sum())
            if count == 0:
                break
            if count <= _LEAVE * len(stays):
                x = x if bool(cells.all()) else x[cells]
                listed, now, bend = _fewer(listed, stays, cells), _taken(now, stays), _kept(bend, stays, cells)
                slopes = _Slopes(*(part[stays] for part in slopes))
        now = _step(x, listed, bend, now, slopes, 1 / c)
    else:
        _keep(found, listed, now, listed.limit[:, 0] != _DONE)
    return _optimum(found, points, problems)


# ---- the list of problems -------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """What stays while problems are solved; a row a problem."""

    shares: Shares
    place: Tensor  # (problem,): among all problems of the block
    limit: Tensor  # (problem, 1): the largest gradient of a solved problem; _DONE once it is solved
    goes: Tensor  # (problem, 1): 1, or 0 for what is done and stands still
    weights: Tensor  # (problem, row): s
    aim: Tensor  # (problem, row): -s y
    centre: Tensor  # (problem, feature): over q
    shrink: Tensor  # (problem, feature): 1 / q


def _listed(points: Points, problems: Problems, tolerance: float) -> _Listed:
    """All problems of all cells."""
    cells, each = len(points.x), len(problems.labels)
    ratio = points.ratio[:, problems.folds].flatten(0, 1)
    place = torch.arange(cells * each, device=ratio.device)
    weights = problems.weights.repeat(cells, 1)
    return _Listed(
        shares=Shares(place // each, cells),
        place=place,
        limit=tolerance * weights.sum(dim=1, keepdim=True),
        goes=torch.ones_like(weights[:, :1]),
        weights=weights,
        aim=-weights * problems.labels.repeat(cells, 1),
        centre=points.centre[:, problems.folds].flatten(0, 1) / ratio,
        shrink=1 / ratio,
    )


def _without(listed: _Listed, fresh: Tensor) -> _Listed:
    """The same list; the problems ``fresh`` (problem, 1) are done."""
    limit = torch.where(fresh, _DONE, listed.limit)
    return listed._replace(limit=limit, goes=(limit != _DONE).float())


def _fewer(listed: _Listed, stays: Tensor, cells: Tensor) -> _Listed:
    """The list without the problems that do not stay; ``cells`` are those that do."""
    among = cells.cumsum(dim=0) - 1  # (cell,): where a cell stands then
    shares = Shares(among[listed.shares.cells[stays]], int(cells.sum()))
    return _Listed(shares, *(part[stays] for part in listed[1:]))


class _Found(NamedTuple):
    """Where the problems of the block ended."""

    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    steps: Tensor  # (problem,)
    done: Tensor  # (problem,): 1 or 0


def _keep(found: _Found, listed: _Listed, now: _State, which: Tensor, step: int | None = None) -> None:
    """Write down where some problems of the list stand, and the ``step`` before which they converged, if they did."""
    place = listed.place[which]
    found.w[place], found.c[place] = now.w[which], now.c[which]
    if step is not None:
        found.steps[place], found.done[place] = step, 1


def _optimum(found: _Found, points: Points, problems: Problems) -> Optimum:
    shape = (len(points.x), len(problems.labels))
    weights = found.w.view(*shape, -1) / points.ratio[:, problems.folds]
    intercepts = found.c.view(shape) - (points.centre[:, problems.folds] * weights).sum(dim=2)
    return Optimum(weights, intercepts, found.steps.view(shape), found.done.view(shape) > 0)


# ---- a step ---------------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where every problem of the list stands."""

    rows: Reached
    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    v: Tensor  # (problem, feature): the last direction
    vc: Tensor  # (problem, 1)
    before: Tensor  # (problem, feature): the last gradient
    before_c: Tensor  # (problem, 1)
    slope: Tensor  # (problem, 1): along the last direction, where it was left
    bent: Tensor  # (problem, 1): by how much that slope had risen on the way


def _begin(points: Points, problems: Problems) -> _State:
    """No weights, and the intercept that fits best alone."""
    weights, labels = (part.repeat(len(points.x), 1) for part in (problems.weights, problems.labels))
    aim = -weights * labels
    wrong = -aim.sum(dim=1, keepdim=True)
    c = (wrong / (weights.sum(dim=1, keepdim=True) - wrong)).log()
    zeros, none = c.new_zeros(len(c), points.x.shape[2]), torch.zeros_like(c)
    return _State(Reached.at(c.expand(weights.shape), weights, aim), zeros, c, zeros, none, zeros, none, none, none)


def _taken(now: _State, stays: Tensor) -> _State:
    return _State(Reached(*(part[stays] for part in now.rows)), *(part[stays] for part in now[1:]))


class _Bend(NamedTuple):
    """How the loss bends: the sketch of each cell, made where its problems stood."""

    vectors: Tensor  # (cell, feature, rank)
    values: Tensor  # (problem, rank): over the curvature of the rows in all, then


def _bend(x: Tensor, listed: _Listed, now: _State, start: Tensor | None = None) -> _Bend:
    curvature = listed.shares.mean(now.rows.curvature)  # (cell, row)
    vectors, values = sketch_of(x, curvature, start)
    return _Bend(vectors, (values / curvature.sum(dim=1, keepdim=True).clamp(min=1e-30))[listed.shares.cells])


def _kept(bend: _Bend, stays: Tensor, cells: Tensor) -> _Bend:
    return _Bend(bend.vectors if bool(cells.all()) else bend.vectors[cells], bend.values[stays])


class _Slopes(NamedTuple):
    """The gradient of every problem of the list."""

    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    largest: Tensor  # (problem, 1)


def _slopes(x: Tensor, listed: _Listed, now: _State, ridge: float) -> _Slopes:
    c = now.rows.residual.sum(dim=1, keepdim=True)
    w = listed.shares.product(now.rows.residual, x).mul_(listed.shrink)
    w.addcmul_(listed.centre, c, value=-1).add_(now.w, alpha=ridge)
    return _Slopes(w, c, torch.maximum(w.abs().amax(dim=1, keepdim=True), c.abs()))


def _step(x: Tensor, listed: _Listed, bend: _Bend, now: _State, slopes: _Slopes, ridge: float) -> _State:
    """To the lowest point along the next direction."""
    total = now.rows.curvature.sum(dim=1, keepdim=True)
    z = solve(listed.shares, bend.vectors, listed.goes / (total * bend.values).add_(ridge), slopes.w)
    v, vc, slope = _direction(now, slopes, z, listed.goes * slopes.c / total.clamp_(min=1e-12))
    along = listed.shares.product(v * listed.shrink, x.mT).add_(vc - dot(listed.centre, v))  # (problem, row)
    line = Line(along, slope, ridge * dot(v, now.w), ridge * dot(v, v))
    t, rows, rest = line.lowest(now.rows, listed.weights, listed.aim)
    w, c = torch.addcmul(now.w, t, v), torch.addcmul(now.c, t, vc)
    return _State(rows, w, c, v, vc, slopes.w, slopes.c, rest, rest - slope)


def _direction(now: _State, slopes: _Slopes, z: Tensor, zc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-z + β v, with the β of Hestenes and Stiefel where that is positive and leads down; and the slope along it."""
    down = dot(slopes.w, z) + slopes.c * zc
    turned = down - dot(now.before, z) - now.before_c * zc  # z' (change of the gradient)
    share = (turned / now.bent).clamp_(min=0)
    share = torch.where(share * now.slope < down, share, 0)  # 0 as well where nothing bent: that is no number
    return (share * now.v).sub_(z), share * now.vc - zc, share * now.slope - down
