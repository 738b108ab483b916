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
- Within strata (`Strata`: such as the topic of the question): the same map, in which only answers of the same stratum are
  compared, `CellMap.within`. Here a fold holds whole strata, so that every comparison is between scores of one probe, and of
  one that saw no answer of that stratum. With folds that divide strata it would be biased: a wrong answer left out makes its
  stratum look better to the probe that scores it, which is enough to push AUROC within strata far *below* 0.5. Values and
  null are both of one-step probes, with labels permuted within strata; so observed and permuted maps are exchangeable.

What one-step probes are, and why their null is that of converged ones: `one_step`. What is reported for a cell of the plain
map is always the AUROC of the converged probe.

Cost: one Gram matrix and one inverse per cell, n x n; 500 rows x 576 columns: about 0.03 s on one core. Runs on the device
of its input, in float32 (float64 where the input is). Cells whose vectors are NaN (a layer without such a site) stay NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import DataError
from headwise.probes.batched_logistic.cells import fit_cells
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.one_step import OneStepProbes, device_auroc, device_auroc_within, rounded
from headwise.stats import Auroc, auroc_by_fold, shuffle_test
from headwise.stats.permutation import permuted_labels
from headwise.stats.stratified import auroc_within, informative
from headwise.stats.validation import Labels

CONVERGED_SHUFFLES = 10  # that one cell of each call is fitted on to convergence
MIN_CALIBRATION_PAIRS = 20  # below which the spread of one-step probes is not corrected

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# ---- maps -----------------------------------------------------------------------------------------------------------


class Strata(NamedTuple):
    """Answers that are alike in what should not count, and what is needed to compare only those of the same stratum."""

    of: Ints
    """(row,): the stratum of every answer, from 0"""
    fold_of: Ints
    """(row,): folds that hold whole strata"""
    permuted: Labels
    """(shuffle, row): labels permuted within strata"""

    @property
    def inflation(self) -> float:
        """Of the variance of an AUROC of out-of-fold scores (`stats.auroc_by_fold`)."""
        folds = int(self.fold_of.max()) + 1
        return 1 + folds / (folds - 1)

    @classmethod
    def make(cls, strata: Ints, wrong: Labels, *, folds: int, shuffles: int, seed: int) -> Strata | None:
        """None where fewer than two strata have both classes, so that there is nothing to compare within or fit without."""
        of = np.unique(strata, return_inverse=True)[1].astype(np.int64)
        if len(np.unique(of[informative(wrong, of)])) < 2:
            return None
        permuted = permuted_labels(wrong, of, sets=shuffles, seed=seed)
        for count in range(min(folds, int(of.max()) + 1), 1, -1):
            try:
                return cls(of, assign_folds(wrong, folds=count, seed=seed, groups=of), permuted)
            except DataError:  # a fold of one class
                continue
        return None


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
    within: CellMap | None = None
    """the same within strata, by one-step probes; None where there are no strata"""

    @classmethod
    def empty(cls, cells: int, rows: int, shuffles: int, folds: int) -> CellMap:
        """Nothing measured."""
        names = ("score", "value", "low", "high", "null", "inner")
        shapes = ((cells, rows), (cells,), (cells,), (cells,), (cells, shuffles), (folds, cells))
        arrays: dict[str, Any] = {name: np.full(shape, np.nan) for name, shape in zip(names, shapes, strict=True)}
        return cls(**arrays, pairs=np.empty((0, 2)))


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


def probe_cells(
    features: Tensor, wrong: Labels, fold_of: Ints, permuted: Labels | None = None, strata: Strata | None = None
) -> CellMap:
    """Probe every cell of `features` (cell, row, width).

    `permuted` (shuffle, row): labels for the null, if wanted; `strata`: for the map within strata, if wanted.
    """
    cells, rows = features.shape[:2]
    found = CellMap.empty(cells, rows, 0 if permuted is None else len(permuted), int(fold_of.max()) + 1)
    measured = torch.isfinite(features).all(dim=2).all(dim=1).cpu().numpy()
    if strata is not None:
        within = CellMap.empty(cells, rows, len(strata.permuted), int(strata.fold_of.max()) + 1)
        found = found._replace(within=within)
    if not measured.any():
        return found
    features = features[torch.as_tensor(measured, device=features.device)]
    found.score[measured] = fit_cells(features, wrong, fold_of).scores
    for cell in np.flatnonzero(measured):
        area, _ = auroc_by_fold(found.score[cell], wrong, fold_of)
        found.value[cell], found.low[cell], found.high[cell] = area.value, area.low, area.high
    if permuted is None and strata is None:
        return found
    probes = OneStepProbes(features, fold_of)
    if permuted is not None:
        found.null[measured], found.inner[:, measured] = _one_step_aurocs(probes, wrong, permuted)
        found = found._replace(pairs=_calibration_pairs(features, found.null[measured], fold_of, permuted))
    if strata is not None and found.within is not None:
        _fill_within(found.within, measured, probes.with_folds(strata.fold_of), wrong, strata)
    return found


def _fill_within(found: CellMap, measured: Labels, probes: OneStepProbes, wrong: Labels, strata: Strata) -> None:
    labels = torch.as_tensor(wrong, device=probes.fold_of.device)
    score = probes.out_of_fold(labels[:, None])[..., 0].double().cpu().numpy()
    area = auroc_within(rounded(score).T, wrong, strata.of, inflation=strata.inflation)
    found.score[measured], found.value[measured] = score, area.value
    found.low[measured], found.high[measured] = area.low, area.high
    sets = torch.as_tensor(strata.permuted.T.copy(), device=labels.device)
    found.null[measured] = device_auroc_within(probes.out_of_fold(sets), sets, strata.of).cpu().numpy()
    for fold, inside in enumerate(probes.inside(labels)):
        rows = strata.fold_of != fold
        found.inner[fold, measured] = (
            device_auroc_within(inside[:, rows, None], labels[rows, None], strata.of[rows])[:, 0].cpu().numpy()
        )


def _calibration_pairs(features: Tensor, null: Floats, fold_of: Ints, permuted: Labels) -> Floats:
    """One cell with a few shuffles: AUROC of one-step and of converged probes."""
    cell = int(null.mean(axis=1).argsort()[len(null) // 2])  # the median one
    some = permuted[:CONVERGED_SHUFFLES]
    converged = fit_cells(features[cell : cell + 1], some, fold_of).auroc[:, 0].mean(axis=-1)
    return np.column_stack([null[cell, : len(some)], converged])


def _one_step_aurocs(probes: OneStepProbes, wrong: Labels, permuted: Labels) -> tuple[Floats, Floats]:
    """Null (cell, shuffle) and inner AUROC (fold, cell)."""
    device = probes.fold_of.device
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
    names = [name for name in CellMap._fields if name != "within"]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=1 if name == "inner" else 0)
        for name in names
    }
    joined = CellMap(**arrays)
    within = [part.within for part in parts if part.within is not None]
    return joined._replace(within=concatenate(within)) if within else joined


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
    cells: CellMap, wrong: Labels, fold_of: Ints, allowed: Labels | None = None, *, strata: Strata | None = None
) -> tuple[Auroc, Floats, list[int]]:
    """The best of the `allowed` cells, chosen without the fold it is evaluated on: AUROC, scores (row,), choice per fold.

    With `strata`, `cells` is a map within strata (`CellMap.within`), `fold_of` that of the strata.
    """
    inner = np.where(np.isfinite(cells.inner), cells.inner, -np.inf)
    if allowed is not None:
        inner = np.where(allowed, inner, -np.inf)
    chosen = [int(cell) for cell in inner.argmax(axis=1)]
    score = np.empty(len(wrong))
    for fold, cell in enumerate(chosen):
        score[fold_of == fold] = cells.score[cell, fold_of == fold]
    if strata is not None:
        return auroc_within(rounded(score), wrong, strata.of, inflation=strata.inflation), score, chosen
    return auroc_by_fold(score, wrong, fold_of)[0], score, chosen
