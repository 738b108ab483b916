"""The logistic solver of the package: many regressions on shared points, by conjugate gradients with an exact line search.

For every cell and every problem of it (a fold, or a fold under other labels), with row weights s and the fold's own
features Z = (X - centre) / q, which is never formed,

    minimise  Σ_i s_i [log(1 + exp(m_i)) - y_i m_i]  +  |w|² / 2C,     m = Z w + c     (c is free)

A step, for all problems at once:

    1. gradient  g = Z'(s (σ(m) - y)) + w / C              one product with X, shared by all problems of a cell
    2. direction v = -M^-1 g + β v_before                  M: preconditioner of the cell; β of Hestenes and Stiefel
    3. a = Z v + v_c                                       the other product
    4. the lowest point along v                            no product: the margins m + t a are known for every t

The slope along a line, Σ_i s_i (σ(m_i + t a_i) - y_i) a_i + the penalty's, rises with t, so its root is the lowest point:
Newton's steps, kept between bounds, until a fifth of the first slope is left. A more exact root saves no step, and one
trial usually suffices.

The function is strictly convex in w, so the optimum is unique, and scikit-learn's. A problem is solved when its largest
gradient, over its own features, is at most ``tolerance`` times the sum of its weights: the meaning of scikit-learn's
``tol``. At 1e-5 coefficients are about 1e-3 from the optimum; at scikit-learn's default of 1e-4 about 1e-2. The solver
works in the precision of the points: maps of activations in float32 to 1e-5 (the loss itself, a difference of large
numbers, is never computed), detectors in float64 to 1e-10 (``probes.logistic``).

Cost: two products with X per step, 35-50 steps for activations at a tolerance of 1e-5 (scikit-learn's lbfgs: 60-190 at
1e-4, each for one problem). On a CPU half of the time goes into products, a fifth into sketches, and the rest into some
sixty small operations per step. Steps on 48 cells of the default model's map (800 rows x 576 features, C = 1, 5 folds),
with a sketch made at the start and before steps 4 and 12: 53 (rank 32), 47 (40), 45 (48), 41 (64), 40 (80); a sketch of
rank 48 costs as much as four steps. Against scikit-learn one by one on twenty subsets of 500 points in 500 coordinates
(float64, one core): 0.05-0.3 s against 1.2-4.1 s (lbfgs) and 2.6-6.3 s (newton-cholesky); Newton's method with
conjugate gradients for all subsets at once, which was used before, took 0.05-0.36 s.

What did not help: starting every fold at the fit of all rows, or at the eighth step of a descent on the mean of the folds;
BFGS updates of any memory; each fold's own curvature within the sketch; a first sketch of every fourth row; β of Dai and
Yuan or Polak and Ribière; products by oneDNN. Newton's steps with each fold's own Hessian would be few, but the matrices of
one such step are 2 GFLOP, five times all the products here.

The preconditioner is a low-rank sketch of X'DX: in which directions is the loss most curved? Activations vary a thousand
times more in some directions than in others, and plain descent takes hundreds of steps.
Nyström's sketch (Frangella, Tropp, Udell, arXiv 2110.02820) finds the largest directions from two products with a few
vectors Ω, random ones at first. With D the curvature p (1 - p) of every row, a mean over the problems of a cell,

    Y = X'D X Ω,     X'DX ≈ Y (Ω'Y)^-1 Y'  =  V λ V'

The Hessian of a problem is about k X'DX + 1/C, k its own curvature over the mean; its inverse, in the sketch, is

    M^-1 g  =  g / (k λ_r + 1/C)  +  V [1 / (k λ + 1/C) - 1 / (k λ_r + 1/C)] V' g

with λ_r the smallest eigenvalue of the sketch (with half of it, two steps more). It only has to be roughly right: it changes
how fast the optimum is reached, not where it is. One sketch serves all problems of a cell. D changes on the way, so the
sketch is refreshed a few times, with Ω the directions of the last one: each refresh is also a step of a power iteration, and
the directions approach the largest ones, which saves more steps than a sketch of higher rank. It costs two products with
RANK columns.

With many more rows than columns the whole matrix is better: k X'X / n + 1/C, with the curvature spread evenly over the rows,
has nearly the Hessian's directions, and 14 steps do instead of 46 (4,000 rows x 576 features, five folds; 6 instead of 46 with
shuffled labels). X'X costs as much as two sketches, and is not needed twice: one-step probes of the same cells have it
(`probes.one_step`). Where a problem leaves out more than half of the rows it does not stand for them, and the sketch remains.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from headwise.probes.batched_logistic.problems import Points, ProblemBatch, Problems, gram_matrix

TOLERANCE = 1e-5
MAX_STEPS = 1000
_REFRESH_STEPS = (4, 12)  # before which the sketch is refreshed: curvatures change most at first
_SOLVED = -1.0
_COMPACTION_RATIO = 0.9  # when at most this share of a list is unsolved, the solved problems are removed from it
_MAX_LINE_TRIALS = 20
_ROWS_PER_COLUMN = 3  # above which X'X pays
_LINE_SLOPE_LEFT = 0.2  # how much of the slope may be left at the end of a line search


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
    points: Points,
    problems: Problems,
    *,
    c: float = 1.0,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
    gram: Tensor | None = None,
) -> Optimum:
    """Solve every problem at every cell; ``gram`` (cell, feature, feature): X'X, where it is known already."""
    data, state, x = _all_problems(points, problems, tolerance), _initial_state(points, problems), points.x
    found = _Solutions(
        state.w.clone(), state.c.clone(), torch.full_like(data.number, max_steps), torch.zeros_like(data.number)
    )
    gram = _worthwhile_gram(x, problems) if gram is None else gram
    sketch = _sketch(x, data, state) if gram is None else _inverse(gram, data, state, 1 / c)
    for step in range(max_steps):
        if step in _REFRESH_STEPS:
            sketch = sketch.refreshed(x, data, state, 1 / c)
        gradient = _gradient(x, data, state, 1 / c)
        solved = gradient.largest <= data.limit
        if bool(solved.any()):
            _store(found, data, state, solved[:, 0], step)
            data = _mark_solved(data, solved)
            stays, cells = data.batch.remaining(data.limit[:, 0] == _SOLVED)
            count = int(stays.sum())
            if count == 0:
                break
            if count <= _COMPACTION_RATIO * len(stays):
                x = x if bool(cells.all()) else x[cells]
                data, state, sketch = _compact(data, stays, cells), state.select(stays), sketch.select(stays, cells)
                gradient = _Gradient(*(part[stays] for part in gradient))
        state = _step(x, data, sketch, state, gradient, 1 / c)
    else:
        _store(found, data, state, data.limit[:, 0] != _SOLVED)
    shape = (len(points.x), len(problems.labels))
    weights = found.w.view(*shape, -1) / points.ratio[:, problems.folds]
    intercepts = found.c.view(shape) - (points.centre[:, problems.folds] * weights).sum(dim=2)
    return Optimum(weights, intercepts, found.steps.view(shape), found.converged.view(shape) > 0)


# ---- the list of problems -------------------------------------------------------------------------------------------


class _SolverState(NamedTuple):
    """What stays constant while problems are solved; one row per problem."""

    batch: ProblemBatch
    number: Tensor  # (problem,): among all problems of the block
    limit: Tensor  # (problem, 1): the largest gradient of a solved problem; _SOLVED once it is solved
    active: Tensor  # (problem, 1): 1, or 0 for what is solved and stands still
    weights: Tensor  # (problem, row): s
    target: Tensor  # (problem, row): -s y
    centre: Tensor  # (problem, feature): over q
    shrink: Tensor  # (problem, feature): 1 / q


def _all_problems(points: Points, problems: Problems, tolerance: float) -> _SolverState:
    cells, each = len(points.x), len(problems.labels)
    ratio = points.ratio[:, problems.folds].flatten(0, 1)
    number = torch.arange(cells * each, device=ratio.device)
    weights = problems.weights.repeat(cells, 1)
    return _SolverState(
        batch=ProblemBatch(number // each, cells),
        number=number,
        limit=tolerance * weights.sum(dim=1, keepdim=True),
        active=torch.ones_like(weights[:, :1]),
        weights=weights,
        target=-weights * problems.labels.repeat(cells, 1),
        centre=points.centre[:, problems.folds].flatten(0, 1) / ratio,
        shrink=1 / ratio,
    )


def _mark_solved(data: _SolverState, solved: Tensor) -> _SolverState:
    """The same list; the problems ``solved`` (problem, 1) stand still."""
    limit = torch.where(solved, _SOLVED, data.limit)
    return data._replace(limit=limit, active=(limit != _SOLVED).to(limit.dtype))


def _compact(data: _SolverState, stays: Tensor, cells: Tensor) -> _SolverState:
    """The list without the problems that do not stay; ``cells`` are those that do."""
    new_index = cells.cumsum(dim=0) - 1  # (cell,)
    batch = ProblemBatch(new_index[data.batch.cells[stays]], int(cells.sum()))
    return _SolverState(batch, *(part[stays] for part in data[1:]))


class _Solutions(NamedTuple):
    """Where the problems of the block ended."""

    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    steps: Tensor  # (problem,)
    converged: Tensor  # (problem,): 1 or 0


def _store(found: _Solutions, data: _SolverState, state: _State, which: Tensor, step: int | None = None) -> None:
    """Write down the state of some problems, and the ``step`` before which they converged, if they did."""
    number = data.number[which]
    found.w[number], found.c[number] = state.w[which], state.c[which]
    if step is not None:
        found.steps[number], found.converged[number] = step, 1


# ---- a step ---------------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where every problem of the list stands."""

    rows: MarginState
    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    v: Tensor  # (problem, feature): the last direction
    vc: Tensor  # (problem, 1)
    last_w: Tensor  # (problem, feature): the last gradient
    last_c: Tensor  # (problem, 1)
    slope: Tensor  # (problem, 1): along the last direction, at the end of the line search
    slope_rise: Tensor  # (problem, 1): by how much that slope had risen on the way

    def select(self, stays: Tensor) -> _State:
        return _State(MarginState(*(part[stays] for part in self.rows)), *(part[stays] for part in self[1:]))


def _initial_state(points: Points, problems: Problems) -> _State:
    """No weights, and the intercept that fits best alone."""
    weights, labels = (part.repeat(len(points.x), 1) for part in (problems.weights, problems.labels))
    target = -weights * labels
    wrong = -target.sum(dim=1, keepdim=True)
    c = (wrong / (weights.sum(dim=1, keepdim=True) - wrong)).log()
    zeros, none = c.new_zeros(len(c), points.x.shape[2]), torch.zeros_like(c)
    rows = MarginState.at(c.expand(weights.shape), weights, target)
    return _State(rows, zeros, c, zeros, none, zeros, none, none, none)


class _Preconditioner(Protocol):
    """An approximate inverse of the Hessian of each problem."""

    def select(self, stays: Tensor, cells: Tensor) -> Self:
        """For the problems and cells that stay."""
        ...

    def refreshed(self, x: Tensor, data: _SolverState, state: _State, ridge: float) -> Self:
        """Made again where the problems stand now."""
        ...

    def applied(self, data: _SolverState, total: Tensor, gradient: Tensor, ridge: float) -> Tensor:
        """M^-1 of gradients (problem, feature); ``total`` (problem, 1): curvature of all rows."""
        ...


class _Inverse(NamedTuple):
    """The inverse of k X'X / n + 1/C of each cell, k the mean total curvature of its problems."""

    gram: Tensor  # (cell, feature, feature): X'X / n
    inverse: Tensor  # (cell, feature, feature)

    def select(self, stays: Tensor, cells: Tensor) -> _Inverse:
        return self if bool(cells.all()) else _Inverse(self.gram[cells], self.inverse[cells])

    def refreshed(self, x: Tensor, data: _SolverState, state: _State, ridge: float) -> _Inverse:
        total = data.batch.mean(state.rows.curvature.sum(dim=1, keepdim=True))
        hessian = self.gram * total[:, :, None].clamp(min=1e-12)
        hessian.diagonal(dim1=1, dim2=2).add_(ridge)
        return _Inverse(self.gram, torch.cholesky_inverse(torch.linalg.cholesky(hessian)))

    def applied(self, data: _SolverState, total: Tensor, gradient: Tensor, ridge: float) -> Tensor:
        return data.batch.product(gradient * data.active, self.inverse)


def _inverse(gram: Tensor, data: _SolverState, state: _State, ridge: float) -> _Inverse:
    return _Inverse(gram / state.rows.margin.shape[1], gram).refreshed(gram, data, state, ridge)


def _worthwhile_gram(x: Tensor, problems: Problems) -> Tensor | None:
    """X'X where it costs less than the steps that it saves, and stands for the rows of every problem; else None."""
    rows, width = x.shape[1:]
    smallest = (problems.weights > 0).sum(dim=1).amin()
    return gram_matrix(x) if rows > _ROWS_PER_COLUMN * width and bool(2 * smallest >= rows) else None


class _Sketch(NamedTuple):
    """The curvature sketch of each cell, made where its problems stood."""

    vectors: Tensor  # (cell, feature, rank)
    values: Tensor  # (problem, rank): over the total curvature of the rows at that time

    def select(self, stays: Tensor, cells: Tensor) -> _Sketch:
        return _Sketch(self.vectors if bool(cells.all()) else self.vectors[cells], self.values[stays])

    def refreshed(self, x: Tensor, data: _SolverState, state: _State, ridge: float) -> _Sketch:
        return _sketch(x, data, state, self.vectors)

    def applied(self, data: _SolverState, total: Tensor, gradient: Tensor, ridge: float) -> Tensor:
        inverse = data.active / (total * self.values).add_(ridge)
        return precondition(data.batch, self.vectors, inverse, gradient)


def _sketch(x: Tensor, data: _SolverState, state: _State, start: Tensor | None = None) -> _Sketch:
    curvature = data.batch.mean(state.rows.curvature)  # (cell, row)
    vectors, values = sketch_curvature(x, curvature, start)
    return _Sketch(vectors, (values / curvature.sum(dim=1, keepdim=True).clamp(min=1e-30))[data.batch.cells])


class _Gradient(NamedTuple):
    """The gradient of every problem of the list."""

    w: Tensor  # (problem, feature)
    c: Tensor  # (problem, 1)
    largest: Tensor  # (problem, 1)


def _gradient(x: Tensor, data: _SolverState, state: _State, ridge: float) -> _Gradient:
    c = state.rows.residual.sum(dim=1, keepdim=True)
    w = data.batch.product(state.rows.residual, x).mul_(data.shrink)
    w.addcmul_(data.centre, c, value=-1).add_(state.w, alpha=ridge)
    return _Gradient(w, c, torch.maximum(w.abs().amax(dim=1, keepdim=True), c.abs()))


def _step(
    x: Tensor, data: _SolverState, sketch: _Preconditioner, state: _State, gradient: _Gradient, ridge: float
) -> _State:
    """To the lowest point along the next direction."""
    total = state.rows.curvature.sum(dim=1, keepdim=True)
    z = sketch.applied(data, total, gradient.w, ridge)
    v, vc, slope = _direction(state, gradient, z, data.active * gradient.c / total.clamp_(min=1e-12))
    along = data.batch.product(v * data.shrink, x.mT).add_(vc - _dot(data.centre, v))  # (problem, row)
    line = Line(along, slope, ridge * _dot(v, state.w), ridge * _dot(v, v))
    t, rows, slope_left = line.lowest(state.rows, data.weights, data.target)
    w, c = torch.addcmul(state.w, t, v), torch.addcmul(state.c, t, vc)
    return _State(rows, w, c, v, vc, gradient.w, gradient.c, slope_left, slope_left - slope)


def _direction(state: _State, gradient: _Gradient, z: Tensor, zc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-z + β v, with the β of Hestenes and Stiefel where that is positive and leads down; and the slope along it."""
    down = _dot(gradient.w, z) + gradient.c * zc
    change = down - _dot(state.last_w, z) - state.last_c * zc  # z' (change of the gradient)
    beta = (change / state.slope_rise).clamp_(min=0)
    beta = torch.where(beta * state.slope < down, beta, 0)  # also 0 where the slope did not rise: beta is NaN then
    return (beta * state.v).sub_(z), beta * state.vc - zc, beta * state.slope - down


# ---- the line search ------------------------------------------------------------------------------------------------


class MarginState(NamedTuple):
    """Where each problem stands, seen from its rows: (problem, row)."""

    margin: Tensor
    residual: Tensor
    """s (p - y), p = σ(margin)"""
    curvature: Tensor
    """s p (1 - p)"""

    @classmethod
    def at(cls, margin: Tensor, weights: Tensor, target: Tensor) -> MarginState:
        """``weights`` s and ``target`` -s y, (problem, row)."""
        probability = torch.sigmoid(margin)
        share = weights * probability
        return cls(margin, share + target, share.addcmul_(share, probability, value=-1))


class Line(NamedTuple):
    """A direction for every problem; numbers are (problem, 1)."""

    along: Tensor
    """(problem, row): what one unit of the direction adds to the margins"""
    slope: Tensor
    """of the whole function, where the line begins"""
    penalty_slope: Tensor
    """the penalty's part of it"""
    penalty_curvature: Tensor
    """the penalty's curvature along the line"""

    def lowest(self, begin: MarginState, weights: Tensor, target: Tensor) -> tuple[Tensor, MarginState, Tensor]:
        """How far to go (problem, 1), the state there, and the slope that is left."""
        t = -self.slope / self._curvature(begin)
        low: Tensor | None = None
        tolerated = _LINE_SLOPE_LEFT * self.slope.abs()
        for trial in range(_MAX_LINE_TRIALS):
            there = MarginState.at(torch.addcmul(begin.margin, t, self.along), weights, target)
            slope = _dot(there.residual, self.along) + self.penalty_slope + t * self.penalty_curvature
            if trial == _MAX_LINE_TRIALS - 1 or bool((slope.abs() <= tolerated).all()):
                break
            if low is None:
                low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
            low, high = torch.where(slope < 0, t, low), torch.where(slope > 0, t, high)
            newton = t - slope / self._curvature(there)
            middle = torch.where(high.isinf(), 2 * t, (low + high) / 2)
            t = torch.where((newton > low) & (newton < high), newton, middle)
        return t, there, slope

    def _curvature(self, there: MarginState) -> Tensor:
        """(problem, 1): along the line."""
        return (_dot(there.curvature * self.along, self.along) + self.penalty_curvature).clamp_(min=1e-30)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(problem, 1): of two vectors per problem."""
    return (a * b).sum(dim=1, keepdim=True)
