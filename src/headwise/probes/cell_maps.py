"""A map of probes: at each of many cells, can wrong answers be separated from right ones, and is that more than chance?

A cell is a position in the model (a layer and a token, a head) with one vector per answer. All cells see the same answers
in the same folds.

- AUROC: mean over folds of a regularised logistic probe on answers it has not seen, with the interval of
  `stats.auroc_by_fold`.
- Null: the same with labels permuted inside the folds, by one-step probes. Their AUROCs spread a little less than those of
  converged probes; the ratio is measured on some cells, with both, and corrected for. The null gives, per cell, how high
  chance alone goes (`null_high`, 95 %) and a p-value; and for the whole map how high the best cell of a map goes by chance
  (`best_high`), since the largest of hundreds is large by itself.
- p, q: `stats.shuffle_test`, all cells' standardised nulls pooled; q is Benjamini-Hochberg over the map, and nowhere below
  the rank of the whole map among the shuffled ones, at least 1 / (1 + shuffles).
- The best cell is chosen on the other folds, by probes that saw neither them nor the fold it is evaluated on, and scored on
  that fold: `nested`. The map's own maximum is not an unbiased estimate of anything.

**One-step probes.** A logistic probe (C = 1) on standardised activations Z takes one Newton step from 0, with a curvature k
that is the same for every row, to

    w = Z' α,   α = A (y - ȳ),   A = (k Z Z' + 1 1' + I)^-1          (the middle term leaves the intercept free)

and stops there: a ridge regression on the labels. At 0 k is 1/4; where a probe converges, p (1 - p) is much smaller. With
k = 0.03 the AUROCs of one step are near those of converged probes: on the default model's 465 answers (six tokens of layer
20, 20 shuffles; 30 layers at the exact answer) the correlation is 0.95 over shuffled labels and 0.97 over layers, with 1/4
it is 0.90 and 0.88. k was picked on those very answers, from 1/4, 0.05, 0.02, 0.005, 0.002 and 0.0005. A does not depend on
the labels, and leaving rows F out of the fit needs no new fit (the block form of leave-one-out):

    score of F without F  =  (y - ȳ)_F - (A_FF)^-1 α_F

So one inverse per cell gives the out-of-fold scores of any number of shuffled labels, which is the null, and of every pair
of folds left out together, which is what nested choice needs. On random labels the AUROC of such a probe is distributed as
that of the converged one (tested). What is reported for a cell is always the AUROC of the converged probe.

Cost: one Gram matrix and one inverse per cell, n x n; 500 rows x 576 columns: about 0.03 s on one core. Runs on the device
of its input, in float32 (float64 where the input is). Cells whose vectors are NaN (a layer without such a site) stay NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.probes.batched_logistic import fit_cells
from headwise.stats import Auroc, auroc_by_fold, shuffle_test
from headwise.stats.validation import Labels

__all__ = [
    "CellMap", "MapSignificance", "OneStepProbes", "concatenate", "device_auroc", "nested", "probe_cells", "significance",
    "standardise_rows",
]  # fmt: skip

CURVATURE = 0.03  # of the logistic loss
CONVERGED_SHUFFLES = 10  # that one cell of each call is fitted on to convergence
MIN_CALIBRATION_PAIRS = 20  # below which the spread of one-step probes is not corrected

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# ---- maps -----------------------------------------------------------------------------------------------------------


class CellMap(NamedTuple):
    """What was found at each cell; NaN where a cell was not measured."""

    score: Floats
    """(cell, row): log-odds of "wrong", out of fold"""
    value: Floats
    low: Floats
    high: Floats
    """(cell,): AUROC and the ends of its 95 % interval"""
    null: Floats
    """(cell, shuffle): AUROC with permuted labels"""
    inner: Floats
    """(fold, cell): AUROC on the other folds, by probes that never saw the fold"""
    pairs: Floats
    """(pair, 2): some cells' AUROC with permuted labels, by a one-step and by a converged probe"""


class MapSignificance(NamedTuple):
    """A map against permuted labels."""

    p: Floats
    q: Floats
    null_high: Floats
    """(cell,): 95 % of this cell's null lie below"""
    best_high: float
    """95 % of the nulls' best cells lie below"""
    best_p: float
    """share of nulls whose best cell is as good as the map's"""


def probe_cells(features: Tensor, wrong: Labels, fold_of: Ints, permuted: Labels | None = None) -> CellMap:
    """Probe every cell of `features` (cell, row, width); `permuted` (shuffle, row): labels for the null, if wanted."""
    cells, rows = features.shape[:2]
    folds, shuffles = int(fold_of.max()) + 1, 0 if permuted is None else len(permuted)
    found = CellMap(
        score=np.full((cells, rows), np.nan),
        value=np.full(cells, np.nan),
        low=np.full(cells, np.nan),
        high=np.full(cells, np.nan),
        null=np.full((cells, shuffles), np.nan),
        inner=np.full((folds, cells), np.nan),
        pairs=np.empty((0, 2)),
    )
    measured = torch.isfinite(features).all(dim=2).all(dim=1).cpu().numpy()
    if not measured.any():
        return found
    features = features[torch.as_tensor(measured, device=features.device)]
    found.score[measured] = fit_cells(features, wrong, fold_of).scores
    for cell in np.flatnonzero(measured):
        area, _ = auroc_by_fold(found.score[cell], wrong, fold_of)
        found.value[cell], found.low[cell], found.high[cell] = area.value, area.low, area.high
    if permuted is not None:
        found.null[measured], found.inner[:, measured] = _one_step_aurocs(features, wrong, fold_of, permuted)
        found = found._replace(pairs=_calibration_pairs(features, found.null[measured], fold_of, permuted))
    return found


def _calibration_pairs(features: Tensor, null: Floats, fold_of: Ints, permuted: Labels) -> Floats:
    """One cell with a few shuffles: AUROC of one-step and of converged probes."""
    cell = int(null.mean(axis=1).argsort()[len(null) // 2])  # the median one
    some = permuted[:CONVERGED_SHUFFLES]
    converged = fit_cells(features[cell : cell + 1], some, fold_of).auroc[:, 0].mean(axis=-1)
    return np.column_stack([null[cell, : len(some)], converged])


def _one_step_aurocs(features: Tensor, wrong: Labels, fold_of: Ints, permuted: Labels) -> tuple[Floats, Floats]:
    """Null (cell, shuffle) and inner AUROC (fold, cell)."""
    device = features.device
    probes = OneStepProbes(features, fold_of)
    sets = torch.as_tensor(permuted.T.copy(), device=device)  # (row, shuffle)
    null = device_auroc(probes.out_of_fold(sets), sets, probes.fold_of)
    labels = torch.as_tensor(wrong, device=device)
    inside = probes.inside(labels)
    inner = []
    for fold in range(probes.folds):
        others = [other for other in range(probes.folds) if other != fold]
        inner.append(device_auroc(inside[fold][..., None], labels[:, None], probes.fold_of, others)[:, 0])
    return null.cpu().numpy(), torch.stack(inner).cpu().numpy()


def concatenate(parts: list[CellMap]) -> CellMap:
    """Cells of several calls, one after the other."""
    fields = {name: [getattr(part, name) for part in parts] for name in CellMap._fields}
    return CellMap(*(np.concatenate(values, axis=1 if name == "inner" else 0) for name, values in fields.items()))


def significance(cells: CellMap) -> MapSignificance:
    """The map against its null."""
    measured = np.isfinite(cells.value)
    p, q, high = (np.full(measured.shape, np.nan) for _ in range(3))
    null = cells.null[measured]
    if not null.size:
        return MapSignificance(p, q, high, np.nan, np.nan)
    mean = null.mean(axis=1)
    null = mean[:, None] + _spread_ratio(cells.pairs) * (null - mean[:, None])
    p[measured], q[measured], _ = shuffle_test(cells.value[measured], null.T)
    high[measured] = np.quantile(null, 0.95, axis=1)
    best = null.max(axis=0)
    best_p = (1 + int((best >= cells.value[measured].max()).sum())) / (1 + len(best))
    return MapSignificance(p, q, high, float(np.quantile(best, 0.95)), best_p)


def _spread_ratio(pairs: Floats) -> float:
    """How much wider converged probes spread over shuffles than one-step probes; never less than 1."""
    if len(pairs) < MIN_CALIBRATION_PAIRS:
        return 1.0
    one_step, converged = pairs.std(axis=0, ddof=1)
    return max(1.0, float(converged / max(one_step, 1e-9)))


def nested(
    cells: CellMap, wrong: Labels, fold_of: Ints, allowed: Labels | None = None
) -> tuple[Auroc, Floats, list[int]]:
    """The best of the `allowed` cells, chosen without the fold it is evaluated on: AUROC, scores (row,), choice per fold."""
    inner = np.where(np.isfinite(cells.inner), cells.inner, -np.inf)
    if allowed is not None:
        inner = np.where(allowed, inner, -np.inf)
    chosen = [int(cell) for cell in inner.argmax(axis=1)]
    score = np.empty(len(wrong))
    for fold, cell in enumerate(chosen):
        score[fold_of == fold] = cells.score[cell, fold_of == fold]
    return auroc_by_fold(score, wrong, fold_of)[0], score, chosen


# ---- one-step probes ------------------------------------------------------------------------------------------------


class OneStepProbes:
    """One-step probes of many cells on the same rows. `features`: (cell, row, width)."""

    def __init__(self, features: Tensor, fold_of: Ints):
        z = standardise_rows(features)
        gram = torch.bmm(z, z.transpose(1, 2)).mul_(CURVATURE) + 1.0  # (cell, row, row)
        gram.diagonal(dim1=1, dim2=2).add_(1.0)
        self._inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        self.fold_of = torch.as_tensor(fold_of, device=features.device)
        self.folds = int(self.fold_of.max()) + 1

    def out_of_fold(self, labels: Tensor) -> Tensor:
        """Scores (cell, row, label set) of every row by a probe that was fitted without its fold; labels (row, set)."""
        scores = torch.empty((len(self._inverse), *labels.shape), dtype=self._inverse.dtype, device=labels.device)
        target, dual = self._fit(labels)
        for fold in range(self.folds):
            self._leave_out(self.fold_of == fold, target, dual, scores)
        return scores

    def inside(self, labels: Tensor) -> Tensor:
        """Scores (outer fold, cell, row) by probes that saw neither the outer fold nor the row's own; labels (row,).

        NaN inside the outer fold.
        """
        cells, rows = self._inverse.shape[:2]
        found = torch.full((self.folds, cells, rows), torch.nan, dtype=self._inverse.dtype, device=labels.device)
        target, dual = self._fit(labels[:, None])
        both = torch.empty((cells, rows, 1), dtype=self._inverse.dtype, device=labels.device)
        for one, other in combinations(range(self.folds), 2):
            self._leave_out((self.fold_of == one) | (self.fold_of == other), target, dual, both)
            for outer, inner in ((one, other), (other, one)):
                own = self.fold_of == inner
                found[outer][:, own] = both[:, own, 0]
        return found

    def _fit(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        target = labels.to(self._inverse.dtype)
        target = target - target.mean(dim=0)
        return target, self._inverse @ target  # (row, set), (cell, row, set)

    def _leave_out(self, rows: Tensor, target: Tensor, dual: Tensor, into: Tensor) -> None:
        index = rows.nonzero()[:, 0]
        block = self._inverse[:, index][:, :, index]  # symmetric and positive: of an inverse that is
        lower = torch.linalg.cholesky(block)  # MKL's LU, which `solve` takes, fails now and then with several threads
        into[:, index] = target[index] - torch.cholesky_solve(dual[:, index], lower)


def standardise_rows(features: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1 over the rows; a column that never changes is 0."""
    z = features if features.dtype == torch.float64 else features.float()
    z = z - z.mean(dim=1, keepdim=True)
    deviation = z.square().mean(dim=1, keepdim=True).sqrt()
    return z / torch.where(deviation > 1e-12, deviation, torch.inf)


def device_auroc(scores: Tensor, labels: Tensor, fold_of: Tensor, folds: Iterable[int] | None = None) -> Tensor:
    """AUROC, mean over folds: scores (..., row, set), labels (row, set) -> (..., set).

    `stats.auroc_rows` on the device of the scores, where a null of thousands of label sets lies; equal scores count in the
    order in which they are sorted.

    >>> labels = torch.tensor([[True], [False], [True], [False]])
    >>> device_auroc(torch.tensor([[[3.0], [1.0], [0.0], [2.0]]]), labels, torch.tensor([0, 0, 1, 1])).tolist()
    [[0.5]]
    """
    values = []
    for fold in sorted(set(fold_of.tolist())) if folds is None else folds:
        own = fold_of == fold
        order = scores[..., own, :].argsort(dim=-2)
        ordered = labels[own].expand(order.shape).gather(-2, order)  # labels from the lowest score up
        below = (~ordered).cumsum(dim=-2)
        pairs = (below * ordered).sum(dim=-2).double()
        positives = labels[own].sum(dim=0)
        values.append(pairs / (positives * (~labels[own]).sum(dim=0)))
    return torch.stack(values).mean(dim=0)
