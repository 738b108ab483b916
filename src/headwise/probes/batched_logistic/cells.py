"""One probe per cell and fold: how well does each layer and token separate wrong answers from right ones?

    fits = fit_cells(features, wrong, folds)

``features`` (cell, row, feature): activations of the same rows at many positions of the model. A probe is a logistic
regression with an L2 penalty (C = 1, the intercept free), on features standardised by its training rows alone. Every row is
scored by the probe of the fold that did not see it. Several label sets at once, (set, row), share all work on the features:
that is what a permutation null needs.

The probes of a cell share its matrix whatever the fold (``problems``), so no fold has a matrix, or a Gram matrix, of its
own: with standardised features each fold's Gram matrix would be another one, and making it would cost more than the fit.
With more features than rows the weights stay in the span of the rows by themselves.

Cost: docs/benchmarks.md has what benchmarks/probes.py measured on the default model's whole map. Blocks of cells are
fitted in parallel (``parallel_map``). Memory: one block of cells at a time; the features are read block by block, so that an
array on disk will do.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import DataError
from headwise.probes.batched_logistic.parallel_map import parallel_map
from headwise.probes.batched_logistic.problems import Points, make_points, make_problems
from headwise.probes.batched_logistic.solver import MAX_STEPS, TOLERANCE, Optimum, minimise
from headwise.stats import auroc_rows
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_log = logging.getLogger(__name__)
_BLOCK_BYTES = {
    "cpu": 9 * 2**19,
    "cuda": 2**32,
}  # bytes of features in a block: what a cache holds; a part of a GPU's memory


class CellFits(NamedTuple):
    """Probes of many cells. With several label sets, every array has the dim (set,) first."""

    scores: Floats
    """(cell, row): log-odds of "wrong" from the probe that did not see the row"""
    auroc: Floats
    """(cell, fold): on the fold's own rows"""
    steps: Ints
    """(cell, fold): of the solver"""
    converged: Labels
    """(cell, fold)"""
    coefficients: NDArray[np.float32] | None
    """(cell, fold, feature), where asked for: of the features as they were given"""
    intercepts: Floats | None
    """(cell, fold), where asked for"""


def fit_cells(
    features: Any,
    wrong: Any,
    folds: Any,
    *,
    standardise: bool = True,
    c: float = 1.0,
    weights: str | Floats | None = None,
    coefficients: bool = False,
    device: str | torch.device | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
    gram: Tensor | None = None,
) -> CellFits:
    """Fit and evaluate a probe at every cell of ``features`` (cell, row, feature).

    ``wrong``: True for wrong answers, (row,) or (set, row). ``folds``: the fold of every row. ``weights``: None,
    "balanced" to give both classes the same weight, or the weight of every row. ``device``: where to work; None is where the
    features are. ``gram`` (cell, feature, feature): the products of standardised columns over all rows, where they are known.
    """
    labels = np.atleast_2d(np.asarray(wrong, dtype=bool))  # (set, row)
    fold_of = np.unique(np.asarray(folds), return_inverse=True)[1]
    _check(features, labels, fold_of)
    device = torch.device(device if device is not None else getattr(features, "device", "cpu"))
    trains = fold_of != np.arange(fold_of.max() + 1)[:, None]  # (fold, row)
    problems = make_problems(labels, trains, weights, device)
    train_rows = torch.from_numpy(trains).to(device)

    def fit(cells: slice) -> tuple[Any, ...]:
        points = make_points(_load(features, cells, device), train_rows, standardise=standardise)
        known = None if gram is None else gram[cells].to(device)
        found = minimise(points, problems, c=c, tolerance=tolerance, max_steps=max_steps, gram=known)
        return _evaluate(points, found, labels, trains, coefficients=coefficients)

    parts = parallel_map(fit, _blocks(tuple(features.shape), len(problems.labels), device), device)
    joined: list[Any] = [None if part[0] is None else np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
    whole = CellFits(*joined)
    if not whole.converged.all():
        failed = int((~whole.converged).sum())
        _log.warning("%d of %d probes did not converge in %d steps", failed, whole.converged.size, max_steps)
    if np.ndim(wrong) == 1:
        joined = [None if part is None else part[0] for part in joined]
    return CellFits(*joined)


def _evaluate(points: Points, found: Optimum, labels: Labels, trains: Labels, *, coefficients: bool) -> tuple[Any, ...]:
    """The parts of a CellFits for some cells, with the dim (set,) first."""
    cells, sets, folds = len(points.x), len(labels), len(trains)
    margins = torch.baddbmm(found.intercepts[..., None], found.weights, points.x.mT)  # (cell, problem, row)
    margins = margins.view(cells, sets, folds, -1)
    own = torch.from_numpy(np.argmin(trains, axis=0)).to(margins.device)  # (row,): the fold that did not see it
    scores = margins.gather(2, own.expand(cells, sets, 1, -1))[:, :, 0].transpose(0, 1).double().cpu().numpy()
    area = np.empty((sets, cells, folds))
    for number, wrong in enumerate(labels):
        for fold, train in enumerate(trains):
            area[number, :, fold] = auroc_rows(scores[number][:, ~train], wrong[~train])
    steps, converged = (_by_set(part, sets).cpu().numpy() for part in (found.steps, found.converged))
    if not coefficients:
        return scores, area, steps, converged, None, None
    raw = found.weights.double() / points.scale[:, None]
    shift = found.intercepts.double() - (raw * points.mean[:, None]).sum(dim=2)
    return (
        scores, area, steps, converged,
        _by_set(raw.float(), sets).cpu().numpy(), _by_set(shift, sets).cpu().numpy(),
    )  # fmt: skip


def _by_set(values: Tensor, sets: int) -> Tensor:
    """(cell, problem, ...) -> (set, cell, fold, ...)."""
    return values.view(len(values), sets, -1, *values.shape[2:]).transpose(0, 1)


def _blocks(shape: tuple[int, ...], problems: int, device: torch.device) -> list[slice]:
    """The cells, some at a time."""
    cells, rows, width = shape
    bytes_per_cell = 4 * (rows * width + problems * (8 * width + 8 * rows))
    largest = max(1, _BLOCK_BYTES.get(device.type, _BLOCK_BYTES["cpu"]) // bytes_per_cell)
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    count = min(largest, -(-cells // workers))
    return [slice(start, start + count) for start in range(0, cells, count)]


def _load(features: Any, cells: slice, device: torch.device) -> Tensor:
    """Some cells on the device; a DataError where a value is not a number."""
    part = features[cells]
    part = part if isinstance(part, Tensor) else torch.from_numpy(np.ascontiguousarray(part))
    part = part.to(device).float()
    bad = ~part.sum(dim=2).isfinite()
    if bool(bad.any()):
        cell, row = (int(index[0]) for index in torch.nonzero(bad, as_tuple=True))
        raise DataError(
            f"activations hold values that are not numbers, the first in cell {cells.start + cell}, row {row}; leave out "
            "rows that have no such token, and load the model with dtype=float32 if it overflows"
        )
    return part


# ---- checks ---------------------------------------------------------------------------------------------------------


def _check(features: Any, labels: Labels, fold_of: Ints) -> None:
    shape = tuple(features.shape)
    if len(shape) != 3 or 0 in shape:
        raise DataError(f"features are (cell, row, feature) and not empty, but have the shape {shape}")
    if labels.ndim != 2 or labels.shape[1] != shape[1] or fold_of.shape != (shape[1],):
        raise DataError(
            f"there are {shape[1]} rows, labels of the shape {labels.shape} and folds of the shape {fold_of.shape}; give "
            "one label (or one in each set of labels) and one fold for every row"
        )
    if fold_of.max() == 0:
        raise DataError("all rows are in one fold, so that none is left to be tested on; give at least two folds")
    for number, wrong in enumerate(labels):
        for fold in range(fold_of.max() + 1):
            own = wrong[fold_of == fold]
            for what, rows in (("is tested on", own), ("is trained on", wrong[fold_of != fold])):
                if rows.all() or not rows.any():
                    which = "wrong" if rows.all() else "right"
                    of = f" under label set {number + 1}" if len(labels) > 1 else ""
                    raise DataError(
                        f"fold {fold + 1}{of} {what} {len(rows)} answers that are all {which}, so there is nothing to "
                        "tell apart; use stratified folds, fewer folds, or questions of another difficulty"
                    )
