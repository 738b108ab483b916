"""What the solver is given: the points of some cells, the problems to solve on them, and which problems share which matrix.

**Points without a matrix per fold.** A probe standardises with the mean and the scale of its training fold, so that every
fold has features of its own: z = (x - mean_f) / scale_f. No such matrix is needed. The free intercept absorbs any shift,
and a scale moves into the penalty: with x* = (x - mean) / scale of *all* rows and u the weight of x*, the weight of z is
w = u · scale_f / scale,

    w·z + c_f  =  u·x* + c,        |w|²  =  Σ_j ratio_fj² u_j²,        ratio_f = scale_f / scale

The problem of fold f on x* with the penalty ratio_f² is the problem on z, exactly; rows outside the fold do not influence
it, since x* is only another way to write the same function. So all folds share one matrix and each product with it. A
feature that is constant in a fold has no influence there: its ratio is infinite, its weight 0. Where the variance of a
fold is small next to its squared shift, so that float32 could not resolve it, moments are taken in float64.

**Problems.** A fold is a problem in which its own rows have weight 0. With balanced weights both classes of the training
rows weigh half of all, as with scikit-learn's ``class_weight="balanced"``.

**The batch.** The problems of a block form one list, cell by cell; what is done to every problem is one operation over the
list, and a solved problem leaves the list:

    product(vectors, matrices)[p]  =  vectors[p] @ matrices[the cell of p]

While every cell has the same number of problems, that is one batched product. On a CPU problems leave one by one, and then
each cell's product is taken by itself, at the same cost; on a GPU that would be slow, so there a cell leaves as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import DataError
from headwise.stats.blas import single_threaded_blas
from headwise.stats.validation import Labels

BALANCED = "balanced"
_RESOLVED = 1e-3  # of the squared shift: a variance above it is reliable in float32
_ROUNDING = 1e-12  # of the squared shift: a variance below it is rounding in float64


# ---- points ---------------------------------------------------------------------------------------------------------


class Points(NamedTuple):
    """The features of a block of cells; float32 or float64."""

    x: Tensor
    """(cell, row, feature): shifted, and scaled where the probes are to be standardised"""
    ratio: Tensor
    """(cell, fold, feature): weight of the fold's own features over the weight of ``x``; infinite: constant"""
    centre: Tensor
    """(cell, fold, feature): mean of ``x`` over the fold's training rows"""
    mean: Tensor
    """(cell, feature) float64"""
    scale: Tensor
    """(cell, feature) float64: the features as given are ``x * scale + mean``"""


def make_points(features: Tensor, trains: Tensor, *, standardise: bool) -> Points:
    """Features (cell, row, feature) for folds whose training rows are ``trains`` (fold, row)."""
    mean = features.mean(dim=1)  # (cell, feature)
    x = features - mean[:, None]
    if not standardise:
        ones = torch.ones_like(mean)
        return Points(x, ones[:, None].expand(-1, len(trains), -1), _means(x, trains), mean.double(), ones.double())
    means, deviations = _moments(x, torch.cat([torch.ones_like(trains[:1]), trains]))  # (cell, 1 + fold, feature)
    scale = torch.where(deviations[:, 0] > 0, deviations[:, 0], 1.0)
    x /= scale[:, None]
    ratio = torch.where(deviations[:, 1:] > 0, deviations[:, 1:] / scale[:, None], torch.inf)
    return Points(x, ratio, means[:, 1:] / scale[:, None], mean.double(), scale.double())


def _moments(x: Tensor, subsets: Tensor) -> tuple[Tensor, Tensor]:
    """(cell, subset, feature): mean and standard deviation of each subset of rows; 0 where it is constant."""
    means = _means(x, subsets)
    variance = (_means_of_squares(x, subsets) - means.square()).clamp(min=0)
    if bool((variance <= _RESOLVED * means.square()).any()):
        exact = x.double()
        means = _means(exact, subsets)
        variance = (_means_of_squares(exact, subsets) - means.square()).clamp(min=0)
    deviations = torch.where(variance <= _ROUNDING * means.square(), 0.0, variance.sqrt())
    return means.to(x.dtype), deviations.to(x.dtype)


def _means(x: Tensor, subsets: Tensor) -> Tensor:
    """(cell, subset, feature): mean over each subset (subset, row)."""
    return _averaging(subsets, x.dtype).expand(len(x), -1, -1) @ x


def _means_of_squares(x: Tensor, subsets: Tensor) -> Tensor:
    """The same of x²; cell by cell, since allocating memory for all squares takes as long as computing them."""
    averaging = _averaging(subsets, x.dtype)
    return torch.stack([averaging @ cell.square() for cell in x])


def _averaging(subsets: Tensor, dtype: torch.dtype) -> Tensor:
    """(subset, row): 1 / the size of the subset, or 0."""
    return subsets.to(dtype) / subsets.sum(dim=1, keepdim=True)


@single_threaded_blas
def gram_matrix(x: Tensor) -> Tensor:
    """X'X of every cell, (cell, row, column) -> (cell, column, column); on a CPU one triangle, and the other copied."""
    if x.device.type != "cpu":
        return x.mT @ x
    (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=x.numpy().dtype)
    halves = np.stack([syrk(1.0, cell.T, lower=1) for cell in x.numpy()])
    found = torch.from_numpy(halves)
    diagonal = found.diagonal(dim1=1, dim2=2).clone()
    found = found + found.mT
    found.diagonal(dim1=1, dim2=2).copy_(diagonal)
    return found


@single_threaded_blas
def solve_positive(matrices: Tensor, right: Tensor) -> Tensor:
    """The solutions w of A w = r for symmetric positive A (cell, a, a), which may be overwritten, and r (cell, set, a).

    On a CPU by the LAPACK of scipy, in place: torch's copies, and takes twice as long.
    """
    if matrices.device.type != "cpu":
        return torch.cholesky_solve(right.mT, torch.linalg.cholesky(matrices)).mT
    (posv,) = scipy.linalg.get_lapack_funcs(("posv",), dtype=matrices.numpy().dtype)
    found = right.clone()
    for matrix, own in zip(matrices.numpy(), found.numpy(), strict=True):
        _, _, info = posv(matrix.T, own.T, lower=1, overwrite_a=1, overwrite_b=1)
        if info:
            raise torch.linalg.LinAlgError(f"a matrix that has to be positive is not, from its row {info} on")
    return found


# ---- problems -------------------------------------------------------------------------------------------------------


class Problems(NamedTuple):
    """The problems of a cell, the same at every cell."""

    labels: Tensor
    """(problem, row), 1 for wrong"""
    weights: Tensor
    """(problem, row), 0 for rows that are left out"""
    folds: Tensor
    """(problem,): the fold whose training rows these are"""


def make_problems(
    labels: Labels,
    trains: Labels,
    weights: str | NDArray[np.float64] | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Problems:
    """Every set of ``labels`` (set, row) with the training rows of every fold, ``trains`` (fold, row); folds vary fastest."""
    if isinstance(weights, str) and weights != BALANCED:
        raise DataError(f"weights are None, {BALANCED!r} or one number per row, not {weights!r}")
    each = np.repeat(labels, len(trains), axis=0)  # (problem, row)
    rows = np.tile(trains, (len(labels), 1))
    row_weights = _balanced(each, rows) if isinstance(weights, str) else rows * (1.0 if weights is None else weights)
    return Problems(
        torch.from_numpy(each).to(device, dtype),
        torch.from_numpy(row_weights).to(device, dtype),
        torch.arange(len(trains)).repeat(len(labels)).to(device),
    )


def _balanced(labels: Labels, rows: Labels) -> NDArray[np.float64]:
    """(problem, row): both classes have the same sum, and all rows together their number."""
    weights = np.zeros(rows.shape)
    for kind in (rows & labels, rows & ~labels):
        weights += kind * (rows.sum(axis=1) / 2 / kind.sum(axis=1))[:, None]
    return weights


# ---- the batch ------------------------------------------------------------------------------------------------------


class ProblemBatch:
    """The list of unsolved problems: ``cells`` (problem,), rising, is the cell of each, one of ``count``."""

    def __init__(self, cells: Tensor, count: int):
        self.cells, self.count = cells, count
        sizes = torch.bincount(cells, minlength=count).tolist()
        self._even = min(sizes) == max(sizes)
        self._spans, start = [], 0
        for cell, size in enumerate(sizes):
            if size:
                self._spans.append((cell, start, start + size))
            start += size

    def product(self, vectors: Tensor, matrices: Tensor) -> Tensor:
        """(problem, a) with (cell, a, b) -> (problem, b)."""
        if self._even:
            return torch.bmm(vectors.view(self.count, -1, vectors.shape[1]), matrices).flatten(0, 1)
        out = vectors.new_empty(len(vectors), matrices.shape[2])
        for cell, start, stop in self._spans:
            torch.mm(vectors[start:stop], matrices[cell], out=out[start:stop])
        return out

    def mean(self, values: Tensor) -> Tensor:
        """(problem, a) -> (cell, a): over the problems of a cell; 0 where none is left."""
        total = values.new_zeros(self.count, values.shape[1]).index_add_(0, self.cells, values)
        return total / torch.bincount(self.cells, minlength=self.count).clamp(min=1)[:, None]

    def remaining(self, solved: Tensor) -> tuple[Tensor, Tensor]:
        """What stays when the ``solved`` problems leave: problems (problem,) bool, and cells (cell,) bool."""
        cells = torch.bincount(self.cells[~solved], minlength=self.count) > 0
        if _leave_singly(solved.device):
            return ~solved, torch.ones_like(cells)  # the matrices stay where they are
        return cells[self.cells], cells


def _leave_singly(device: torch.device) -> bool:
    return device.type == "cpu"
