"""The rows of the table of detectors, each a Dataset with the one entry of ``detector`` it is about.

This module does not know which rows there are: ``table`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, EXAMPLE, FOLD, LAYER, RANK, SIZE
from headwise.core.errors import DataError
from headwise.probes.calibration import brier, fit_platt
from headwise.probes.components import coordinates
from headwise.probes.crossvalidation import CrossValidated, cross_validate, precision_recall
from headwise.probes.curves import scores_by_layer, scores_by_size
from headwise.probes.features import Choice, choices, columns, select, usual, what_to_choose
from headwise.probes.published import paper
from headwise.probes.stacking import stack
from headwise.probes.transfer import transfer
from headwise.stats import auroc, auroc_by_fold
from headwise.stats.validation import Labels

__all__ = ["Ring", "Supervised", "as_score", "combined", "details", "joined", "supervised", "unsupervised"]

Floats = NDArray[np.float64]


class Ring(NamedTuple):
    """What all rows share: the answers and how they are divided."""

    labels: Labels
    fold_of: NDArray[np.int64]
    inner: int
    seed: int
    groups: NDArray[np.int64] | None
    components: int | None


class Supervised(NamedTuple):
    """A feature set, judged."""

    row: xr.Dataset
    judged: CrossValidated
    points: Floats
    """the coordinates of the usual choice"""
    kind: Choice
    usual: int
    notes: list[str]


def supervised(array: xr.DataArray, name: str, ring: Ring, *, ks: Sequence[int]) -> Supervised:
    """The sheet's detector on a feature set, its k or layer chosen inside the training folds; the sweep; the paper's
    way.
    """
    kind, offered = what_to_choose(array), choices(array, name, ks)
    points = {choice: coordinates(columns(select(array, kind, choice), name)).points for choice in offered}
    judged = cross_validate(
        points.items(), ring.labels, ring.fold_of,
        inner=ring.inner, seed=ring.seed, groups=ring.groups, components=ring.components,
    )  # fmt: skip
    row = _judged_row(name, judged, ring)
    if kind:
        row["chosen"] = ((DETECTOR, FOLD), np.array([judged.chosen], dtype=np.float64))
        curve, dim = ("by_k", RANK) if kind == "k" else ("by_layer", LAYER)
        row = row.merge(_curve(name, curve, dim, judged.sweep, ring))
    published = paper(points.items(), ring.labels, seed=ring.seed)
    row = row.assign(
        paper=(DETECTOR, [published.auroc]),
        paper_low=(DETECTOR, [published.low]),
        paper_high=(DETECTOR, [published.high]),
        paper_choice=(DETECTOR, [float(published.choice) if kind else np.nan]),
    )
    missing = sorted(set(ks) - set(offered)) if kind == "k" else []
    notes = [f"{name}: no k of {', '.join(map(str, missing))}: some text is shorter"] if missing else []
    default = usual(kind, offered)
    return Supervised(row, judged, points[default], kind, default, notes)


def details(
    array: xr.DataArray, name: str, entry: Supervised, ring: Ring, sizes: Sequence[int], topics: Any, least: int
) -> xr.Dataset:
    """Curves over layers and training sizes, and transfer between topics, at the usual choice."""
    labels, fold_of = ring.labels, ring.fold_of
    found = _curve(name, "by_size", SIZE, scores_by_size(entry.points, labels, fold_of, sizes, seed=ring.seed), ring)
    if LAYER in array.dims and entry.kind != "layer":  # a sweep over layers has been made already
        part = select(array, entry.kind, entry.usual)
        found = found.merge(_curve(name, "by_layer", LAYER, scores_by_layer(part, name, labels, fold_of), ring))
    if topics is not None:
        moved = transfer(
            entry.points, labels, topics, folds=len(np.unique(fold_of)), seed=ring.seed, least=least, groups=ring.groups
        )
        moved = moved.rename(auroc="transfer", low="transfer_low", high="transfer_high").drop_vars(
            ["n_wrong", "n_right"]
        )
        found = found.merge(moved.expand_dims({DETECTOR: [name]}))
    return found


def combined(
    name: str,
    members: Sequence[str],
    judged: Mapping[str, CrossValidated],
    numbers: Mapping[str, Floats],
    ring: Ring,
) -> xr.Dataset:
    """Several rows weighed together, by weights learnt inside the training folds."""
    blocks = [judged[member] for member in members if member in judged]
    scores = [numbers[member] for member in members if member in numbers]
    both = stack(
        blocks, scores, ring.labels, ring.fold_of, inner=ring.inner, seed=ring.seed, groups=ring.groups
    )  # fmt: skip
    return _judged_row(name, both, ring)


def unsupervised(name: str, scores: Floats, ring: Ring) -> xr.Dataset:
    """A score that was not learnt."""
    return _row(name, scores, ring, learnt=False)


def as_score(scores: Any, name: str, rows: int) -> Floats:
    """One finite number an answer, or a DataError."""
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (rows,):
        raise DataError(
            f"The score {name!r} has the shape {values.shape}, but one number for each of {rows} answers is needed."
        )
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values)
        raise DataError(
            f"The score {name!r} is not a number for {int(bad.sum())} of {rows} answers (first: row "
            f"{int(np.argmax(bad))}); leave these answers out."
        )
    return values


def joined(parts: Sequence[xr.Dataset], ring: Ring) -> xr.Dataset:
    """All rows as one Dataset, in the order they came, NaN where a row has nothing; and the answers they are about."""
    names = list(dict.fromkeys(str(name) for part in parts for name in part[DETECTOR].values))
    table = xr.merge(parts, join="outer", compat="no_conflicts").sel({DETECTOR: names})
    return table.assign_coords(wrong=(EXAMPLE, ring.labels), fold_of=(EXAMPLE, ring.fold_of))


def _row(name: str, score: Floats, ring: Ring, *, learnt: bool) -> xr.Dataset:
    area, per_fold = auroc_by_fold(score, ring.labels, ring.fold_of, learnt=learnt, groups=ring.groups)
    return xr.Dataset(
        {
            "auroc": (DETECTOR, [float(area.value)]),
            "auroc_low": (DETECTOR, [float(area.low)]),
            "auroc_high": (DETECTOR, [float(area.high)]),
            "pooled": (DETECTOR, [float(auroc(score, ring.labels).value)]),
            "fold_auroc": ((DETECTOR, FOLD), per_fold[None]),
            "score": ((DETECTOR, EXAMPLE), score[None]),
        },
        coords={DETECTOR: [name], FOLD: np.arange(len(per_fold))},
    )


def _judged_row(name: str, judged: CrossValidated, ring: Ring) -> xr.Dataset:
    labels = ring.labels
    probability = np.empty(len(labels))
    for place, fold in enumerate(np.unique(ring.fold_of)):
        train = ring.fold_of != fold
        probability[~train] = fit_platt(judged.inner[place, train], labels[train])(judged.score[~train])
    precision, recall = precision_recall(judged.score, labels)
    return _row(name, judged.score, ring, learnt=True).assign(
        precision=(DETECTOR, [precision]),
        recall=(DETECTOR, [recall]),
        brier=(DETECTOR, [brier(probability, labels)]),
        probability=((DETECTOR, EXAMPLE), probability[None]),
    )


def _curve(row: str, name: str, dim: str, scores: Mapping[int, Floats], ring: Ring) -> xr.Dataset:
    """AUROC and interval of several scores, along a dim whose coordinate are their names."""
    areas = [auroc_by_fold(score, ring.labels, ring.fold_of, groups=ring.groups)[0] for score in scores.values()]
    ends = {"": [a.value for a in areas], "_low": [a.low for a in areas], "_high": [a.high for a in areas]}
    return xr.Dataset(
        {f"{name}{end}": ((DETECTOR, dim), np.array([values], dtype=np.float64)) for end, values in ends.items()},
        coords={DETECTOR: [row], dim: list(scores)},
    )
