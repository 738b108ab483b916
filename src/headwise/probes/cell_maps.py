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

Cost: that of one-step probes (`one_step`), whose products the converged probes share. Runs on the device of its input, in
float32 (float64 where the input is). Cells whose vectors are NaN (a layer without such a site) stay NaN.
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
from headwise.probes.one_step import OneStepProbes, device_auroc, device_auroc_within, inner_auroc, rounded
from headwise.stats import Auroc, auroc_by_fold, shuffle_test
from headwise.stats.permutation import permuted_labels
from headwise.stats.stratified import auroc_within, informative
from headwise.stats.validation import Labels

CONVERGED_SHUFFLES = 10  # that one cell of each call is fitted on to convergence
_BLOCK_BYTES = {"cpu": 2**24, "cuda": 2**30}  # of cells that are worked on together
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
        arrays["score"] = arrays["score"].astype(np.float32)  # what probes compute
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
    features: Tensor,
    wrong: Labels,
    fold_of: Ints,
    permuted: Labels | None = None,
    strata: Strata | None = None,
    *,
    parts: int = 1,
) -> CellMap:
    """Probe every cell of `features` (cell, row, width).

    `permuted` (shuffle, row): labels for the null, if wanted; `strata`: for the map within strata, if wanted. `parts`: one cell
    of each of so many equal parts, such as the layers, is fitted to convergence with permuted labels.
    """
    cells, rows = features.shape[:2]
    found = CellMap.empty(cells, rows, 0 if permuted is None else len(permuted), int(fold_of.max()) + 1)
    if strata is not None:
        found = found._replace(within=CellMap.empty(cells, rows, len(strata.permuted), int(strata.fold_of.max()) + 1))
    measured = np.flatnonzero([bool(torch.stack(cell.aminmax()).isfinite().all()) for cell in features])
    size = _BLOCK_BYTES["cuda" if features.is_cuda else "cpu"] // (4 * features[0].numel()) if len(measured) else 0
    for start in range(0, len(measured), max(1, size)):
        block = measured[start : start + max(1, size)]
        _probe_block(found, block, _cells(features, block), wrong, fold_of, permuted, strata)
    if not len(measured):
        return found
    _fill_areas(found, measured, auroc_by_fold(found.score[measured].T, wrong, fold_of)[0])
    if found.within is not None and strata is not None:
        score = rounded(found.within.score[measured])
        _fill_areas(found.within, measured, auroc_within(score.T, wrong, strata.of, inflation=strata.inflation))
    if permuted is not None:
        found = found._replace(pairs=_calibration_pairs(features, found, measured, fold_of, permuted, parts))
    return found


def _cells(features: Tensor, cells: Ints) -> Tensor:
    """Some cells, in float32 at least; a view where they lie next to each other and are that already."""
    together = cells[-1] - cells[0] == len(cells) - 1
    index = slice(cells[0], cells[-1] + 1) if together else torch.as_tensor(cells, device=features.device)
    some = features[index]
    return some if some.dtype == torch.float64 else some.float()


def _fill_areas(found: CellMap, cells: Ints, area: Auroc) -> None:
    found.value[cells], found.low[cells], found.high[cells] = area.value, area.low, area.high


def _probe_block(
    found: CellMap,
    cells: Ints,
    features: Tensor,
    wrong: Labels,
    fold_of: Ints,
    permuted: Labels | None,
    strata: Strata | None,
) -> None:
    """Fill in some cells."""
    divisions = [fold_of] if strata is None else [fold_of, strata.fold_of]
    probes = None if permuted is None and strata is None else OneStepProbes(features, *divisions)
    gram = None if probes is None else probes.gram
    found.score[cells] = fit_cells(features, wrong, fold_of, gram=gram).scores
    if probes is not None and permuted is not None:
        found.null[cells], found.inner[:, cells] = _one_step_aurocs(probes, wrong, permuted)
    if probes is not None and strata is not None and found.within is not None:
        _fill_within(found.within, cells, probes, wrong, strata)


def _fill_within(found: CellMap, cells: Ints, probes: OneStepProbes, wrong: Labels, strata: Strata) -> None:
    """Of one-step probes, in the division of the strata: the second."""
    labels = torch.as_tensor(wrong, device=probes.fold_of.device)
    sets = torch.as_tensor(np.vstack([wrong, strata.permuted]).T.copy(), device=labels.device)
    scores = probes.out_of_fold(sets, 1)
    found.score[cells] = scores[..., 0].cpu().numpy()
    found.null[cells] = device_auroc_within(scores[..., 1:], sets[:, 1:], strata.of).cpu().numpy()
    fold_of = torch.as_tensor(strata.fold_of, device=labels.device)
    found.inner[:, cells] = inner_auroc(probes.inside(labels, 1), labels, fold_of, strata.of).cpu().numpy()


def _calibration_pairs(
    features: Tensor, found: CellMap, measured: Ints, fold_of: Ints, permuted: Labels, parts: int
) -> Floats:
    """One cell of each part with a few shuffles: AUROC of one-step and of converged probes."""
    some, mean = permuted[:CONVERGED_SHUFFLES], found.null.mean(axis=1)
    inside = [measured[measured * parts // len(features) == part] for part in range(parts)]
    chosen = np.array([own[mean[own].argsort()[len(own) // 2]] for own in inside if len(own)])  # the median ones
    converged = fit_cells(_cells(features, chosen), some, fold_of).auroc.mean(axis=-1)  # (shuffle, cell)
    return np.column_stack([found.null[chosen, : len(some)].ravel(), converged.T.ravel()])


def _one_step_aurocs(probes: OneStepProbes, wrong: Labels, permuted: Labels) -> tuple[Floats, Floats]:
    """Null (cell, shuffle) and inner AUROC (fold, cell)."""
    device = probes.fold_of.device
    sets = torch.as_tensor(permuted.T.copy(), device=device)  # (row, shuffle)
    null = device_auroc(probes.out_of_fold(sets), sets, probes.fold_of)
    labels = torch.as_tensor(wrong, device=device)
    inner = inner_auroc(probes.inside(labels), labels, probes.fold_of)
    return null.cpu().numpy(), inner.cpu().numpy()


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
