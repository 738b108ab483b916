"""The solver: many logistic regressions on shared points, by conjugate gradients with an exact line search.

For every cell and every problem of it (a fold, or a fold under other labels), with row weights s and penalty q² / C,

    minimise  Σ_i s_i [log(1 + exp(m_i)) - y_i m_i]  +  Σ_j q_j² u_j² / 2C,     m = (X - centre) u + c     (c is free)

A step, for all problems at once:

    1. gradient  g = (X - centre)'(s (σ(m) - y)) + q² u / C   one product with X, shared by all problems of a cell
    2. direction v = -M^-1 g + β v_before                  M: the cell's ``sketch``, in the fold's own features; β of
                                                           Hestenes and Stiefel
    3. a = (X - centre) v + v_c                            the other product
    4. the lowest point on that ``line``, which needs no product

The function is strictly convex in u, so the optimum is unique, and scikit-learn's. A problem is done when its largest
gradient, over its own features, is at most ``tolerance`` times the sum of its weights: the meaning of scikit-learn's
``tol``. At 1e-5 coefficients are about 1e-3 from the optimum; at scikit-learn's default of 1e-4 about 1e-2. What is done
leaves the list (``shares``).

Cost: two products with X a step, 40-55 steps for activations at a tolerance of 1e-5 (scikit-learn's lbfgs: 60-190 at
1e-4, each for one problem). On a CPU a product takes as long as the matrix takes to come from the cache. What matters, in
steps of a plain copy of this descent in float64, on two cells of the default model's map
(800 rows x 576 features, C = 1, 5 folds):

    a sketch from random directions, of rank 64 or 128        63 to 72
    made anew three times, from the directions of the last    50 (rank 64), 49 (rank 48), 59 (rank 32)
    the very eigenvectors of the mean over folds, rank 64     45, and of each fold's own 37, but who has them is done
    the whole matrix X'DX of step 12, a mean over folds       more than with its sketch: curvatures change too much

What does not pay: to start every fold at the fit of all rows (the optima of folds lie half of their length or more from it);
BFGS updates of any memory (as many steps); matrices packed by oneDNN (products twice as quick alone, but two copies in the
cache: no gain on two cores). Newton's steps with each fold's own matrix would be few, but the matrices of one
such step are 2 GFLOP, five times all the products here.
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
_AGAIN = (3, 10)  # the steps before which a better sketch is made: curvatures change most at first
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
    listed, now, x = _listed(points, problems, c, tolerance), _begin(points, problems), points.x
    found = _Found(now.u.clone(), now.c.clone(), torch.full_like(listed.place, steps), torch.zeros_like(listed.place))
    bend = _bend(x, listed, now)
    for step in range(steps):
        if step in _AGAIN:
            bend = _bend(x, listed, now, bend.vectors)
        slopes = _slopes(x, listed, now)
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
    centre: Tensor  # (problem, feature)
    penalty: Tensor  # (problem, feature): q² / C
    shrink: Tensor  # (problem, feature): 1 / ratio


def _listed(points: Points, problems: Problems, c: float, tolerance: float) -> _Listed:
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
        centre=points.centre[:, problems.folds].flatten(0, 1),
        penalty=torch.where(ratio.isinf(), 0.0, ratio.square() / c),  # a constant feature's weight stays 0 by `shrink`
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

    u: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    steps: Tensor  # (problem,)
    done: Tensor  # (problem,): 1 or 0


def _keep(found: _Found, listed: _Listed, now: _State, which: Tensor, step: int | None = None) -> None:
    """Write down where some problems of the list stand, and the ``step`` before which they converged, if they did."""
    place = listed.place[which]
    found.u[place], found.c[place] = now.u[which], now.c[which]
    if step is not None:
        found.steps[place], found.done[place] = step, 1


def _optimum(found: _Found, points: Points, problems: Problems) -> Optimum:
    shape = (len(points.x), len(problems.labels))
    weights = found.u.view(*shape, -1)
    intercepts = found.c.view(shape) - (points.centre[:, problems.folds] * weights).sum(dim=2)
    return Optimum(weights, intercepts, found.steps.view(shape), found.done.view(shape) > 0)


# ---- a step ---------------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where every problem of the list stands."""

    rows: Reached
    u: Tensor  # (problem, feature)
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
    curvature = listed.shares.mean(now.rows.curvature(listed.weights))  # (cell, row)
    vectors, values = sketch_of(x, curvature, start)
    return _Bend(vectors, (values / curvature.sum(dim=1, keepdim=True).clamp(min=1e-30))[listed.shares.cells])


def _kept(bend: _Bend, stays: Tensor, cells: Tensor) -> _Bend:
    return _Bend(bend.vectors if bool(cells.all()) else bend.vectors[cells], bend.values[stays])


class _Slopes(NamedTuple):
    """The gradient of every problem of the list."""

    u: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    own: Tensor  # (problem, feature): with respect to the fold's own features
    largest: Tensor  # (problem, 1)


def _slopes(x: Tensor, listed: _Listed, now: _State) -> _Slopes:
    c = now.rows.residual.sum(dim=1, keepdim=True)
    u = listed.shares.product(now.rows.residual, x)
    u.addcmul_(listed.penalty, now.u).addcmul_(listed.centre, c, value=-1)
    own = u * listed.shrink
    return _Slopes(u, c, own, torch.maximum(own.abs().amax(dim=1, keepdim=True), c.abs()))


def _step(x: Tensor, listed: _Listed, bend: _Bend, now: _State, slopes: _Slopes, ridge: float) -> _State:
    """To the lowest point along the next direction."""
    shares, curvature = listed.shares, now.rows.curvature(listed.weights)
    total = curvature.sum(dim=1, keepdim=True)
    z = solve(shares, bend.vectors, total * bend.values, slopes.own, ridge).mul_(listed.shrink).mul_(listed.goes)
    v, vc, slope = _direction(now, slopes, z, listed.goes * slopes.c / total.clamp(min=1e-12))
    along = shares.product(v, x.mT).add_(vc - dot(listed.centre, v))  # (problem, row)
    pull = listed.penalty * v
    line = Line(along, slope, dot(pull, now.u), dot(pull, v))
    t, rows, rest = line.lowest(now.rows, curvature, listed.weights, listed.aim)
    u, c = torch.addcmul(now.u, t, v), torch.addcmul(now.c, t, vc)
    return _State(rows, u, c, v, vc, slopes.u, slopes.c, rest, rest - slope)


def _direction(now: _State, slopes: _Slopes, z: Tensor, zc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-z + β v, with the β of Hestenes and Stiefel where that is positive and leads down; and the slope along it."""
    down = dot(slopes.u, z) + slopes.c * zc
    turned = down - dot(now.before, z) - now.before_c * zc  # z' (change of the gradient)
    share = (turned / now.bent).clamp_(min=0)
    share = torch.where((now.bent > 0) & (share * now.slope < down), share, 0)
    return (share * now.v).sub_(z), share * now.vc - zc, share * now.slope - down
