"""A map of probes: at each of many cells, can wrong answers be told from correct ones, and is that more than chance?

A cell is a place in the model (a layer and a token, a head) with one vector an answer. All cells see the same answers in
the same folds.

- AUROC: mean over folds of a regularised logistic probe on answers it has not seen, with the interval of
  `auroc.auroc_by_fold`.
- Null: the same with labels dealt out anew inside the folds, by one-step probes (`one_step`). Their AUROCs spread a
  little less than those of converged probes; how much less is measured on some cells, with both, and made good. The null
  gives, for each cell, how high chance alone goes (`null_high`, 95 %) and a p-value; and for the whole map how high the
  best cell of a map goes by chance (`best_high`), since the largest of hundreds is large by itself.
- p: how often a null cell lies as far above its own mean, in its own deviations, all cells' nulls pooled; so p can be
  as small as 1 / (cells x shuffles) though the shuffles are few. q: Benjamini-Hochberg over the map.
- The best cell is chosen on the other folds, by probes that saw neither them nor the fold it is judged on, and scored on
  that fold: `nested`. The map's own maximum is not a fair estimate of anything.

Cells whose vectors are NaN (a layer that has no such site) stay NaN. This module does not know layers nor tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.probes.one_step import OneStep, area
from headwise.probes.together import fit_cells
from headwise.stats import Auroc, auroc_by_fold, benjamini_hochberg
from headwise.stats.validation import Labels

__all__ = ["Cells", "Chance", "chance", "nested", "probe_cells", "stack"]

CONVERGED = 10  # shuffles that one cell of each call is fitted on to the end
LEAST_PAIRS = 20

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Cells(NamedTuple):
    """What was found at each cell; NaN where a cell was not measured."""

    score: Floats
    """(cell, row): log-odds of "wrong", out of fold"""
    value: Floats
    low: Floats
    high: Floats
    """(cell,): AUROC and the ends of its 95 % interval"""
    null: Floats
    """(cell, shuffle): AUROC with shuffled labels"""
    inner: Floats
    """(fold, cell): AUROC on the other folds, by probes that never saw the fold"""
    pairs: Floats
    """(pair, 2): some cells' AUROC with shuffled labels, by a one-step and by a converged probe"""


class Chance(NamedTuple):
    """What a map is worth against shuffled labels."""

    p: Floats
    q: Floats
    null_high: Floats
    """(cell,): 95 % of this cell's null lie below"""
    best_high: float
    """95 % of the nulls' best cells lie below"""
    best_p: float
    """share of nulls whose best cell is as good as the map's"""


def probe_cells(features: Tensor, wrong: Labels, fold_of: Ints, dealt: Labels | None = None) -> Cells:
    """Probe every cell of `features` (cell, row, width); `dealt` (shuffle, row) are shuffled labels, if wanted."""
    cells, rows = features.shape[:2]
    folds, shuffles = int(fold_of.max()) + 1, 0 if dealt is None else len(dealt)
    found = Cells(
        score=np.full((cells, rows), np.nan),
        value=np.full(cells, np.nan),
        low=np.full(cells, np.nan),
        high=np.full(cells, np.nan),
        null=np.full((cells, shuffles), np.nan),
        inner=np.full((folds, cells), np.nan),
        pairs=np.empty((0, 2)),
    )
    there = torch.isfinite(features).all(dim=2).all(dim=1).cpu().numpy()
    if not there.any():
        return found
    measured = features[torch.as_tensor(there, device=features.device)]
    found.score[there] = fit_cells(measured, wrong, fold_of).scores
    for cell in np.flatnonzero(there):
        one, _ = auroc_by_fold(found.score[cell], wrong, fold_of)
        found.value[cell], found.low[cell], found.high[cell] = one.value, one.low, one.high
    if dealt is not None:
        found.null[there], found.inner[:, there] = _quick(measured, wrong, fold_of, dealt)
        found = found._replace(pairs=_pairs(measured, found.null[there], fold_of, dealt))
    return found


def _pairs(features: Tensor, null: Floats, fold_of: Ints, dealt: Labels) -> Floats:
    """One cell with a few shuffles, fitted to the end: beside what one step gave."""
    cell = int(null.mean(axis=1).argsort()[len(null) // 2])  # one of the middle
    few = dealt[:CONVERGED]
    slow = fit_cells(features[cell : cell + 1], few, fold_of).auroc[:, 0].mean(axis=-1)
    return np.column_stack([null[cell, : len(few)], slow])


def _quick(features: Tensor, wrong: Labels, fold_of: Ints, dealt: Labels) -> tuple[Floats, Floats]:
    """Null (cell, shuffle) and inner AUROC (fold, cell), by one-step probes."""
    device = features.device
    step = OneStep(features, fold_of)
    sets = torch.as_tensor(dealt.T.copy(), device=device)  # (row, shuffle)
    null = area(step.out_of_fold(sets), sets, step.fold_of)
    labels = torch.as_tensor(wrong, device=device)
    inside = step.inside(labels)
    inner = [
        area(inside[fold][..., None], labels[:, None], step.fold_of, [f for f in range(step.folds) if f != fold])[:, 0]
        for fold in range(step.folds)
    ]
    return null.cpu().numpy(), torch.stack(inner).cpu().numpy()


def stack(parts: list[Cells]) -> Cells:
    """Cells of several calls, one after the other."""
    return Cells(*(np.concatenate(values, axis=1 if name == "inner" else 0) for name, values in _by_field(parts)))


def _by_field(parts: list[Cells]) -> list[tuple[str, list[Floats]]]:
    return [(name, [getattr(part, name) for part in parts]) for name in Cells._fields]


def chance(cells: Cells) -> Chance:
    """The map against its null."""
    there = np.isfinite(cells.value)
    p, high = np.full(there.shape, np.nan), np.full(there.shape, np.nan)
    null = cells.null[there]
    if not null.size:
        return Chance(p, p.copy(), high, np.nan, np.nan)
    mean = null.mean(axis=1)
    null = mean[:, None] + _spread(cells.pairs) * (null - mean[:, None])
    deviation = np.maximum(null.std(axis=1, ddof=1), 1e-9)
    pooled = np.sort(((null - mean[:, None]) / deviation[:, None]).ravel())
    seen = (cells.value[there] - mean) / deviation
    p[there] = (1 + len(pooled) - np.searchsorted(pooled, seen, side="left")) / (1 + len(pooled))
    high[there] = np.quantile(null, 0.95, axis=1)
    best = null.max(axis=0)
    best_p = (1 + int((best >= cells.value[there].max()).sum())) / (1 + len(best))
    return Chance(p, benjamini_hochberg(p), high, float(np.quantile(best, 0.95)), best_p)


def _spread(pairs: Floats) -> float:
    """How much wider converged probes spread over shuffles than one-step probes; never less than 1."""
    if len(pairs) < LEAST_PAIRS:
        return 1.0
    quick, slow = pairs.std(axis=0, ddof=1)
    return max(1.0, float(slow / max(quick, 1e-9)))


def nested(
    cells: Cells, wrong: Labels, fold_of: Ints, allowed: Labels | None = None
) -> tuple[Auroc, Floats, list[int]]:
    """The best of the `allowed` cells, chosen without the fold it is judged on: AUROC, scores (row,), choice a fold."""
    inner = np.where(np.isfinite(cells.inner), cells.inner, -np.inf)
    if allowed is not None:
        inner = np.where(allowed, inner, -np.inf)
    chosen = [int(place) for place in inner.argmax(axis=1)]
    score = np.empty(len(wrong))
    for fold, cell in enumerate(chosen):
        score[fold_of == fold] = cells.score[cell, fold_of == fold]
    return auroc_by_fold(score, wrong, fold_of)[0], score, chosen
