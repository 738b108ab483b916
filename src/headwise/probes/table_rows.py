"""The rows of the detector table, each a Dataset with one entry of ``detector``. Which rows there are is up to ``table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, EXAMPLE, FOLD, LAYER, RANK, SIZE
from headwise.core.errors import DataError
from headwise.core.schema import with_interval
from headwise.probes.crossvalidation import (
    CrossValidated,
    Done,
    cross_validate,
    out_of_fold,
    paper_protocol,
    points_of,
    precision_recall,
)  # fmt: skip
from headwise.probes.features import Choice, choice_kind, choice_points, choices, default_choice, select
from headwise.probes.generalisation import scores_by_layer, scores_by_size, transfer
from headwise.probes.projection import coordinates_for
from headwise.probes.stacking import brier, cross_validate_stack, fit_platt, stacked_out_of_fold
from headwise.stats import auroc, auroc_by_fold
from headwise.stats.stratified import auroc_within
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]
NOT_KNOWN = (float("nan"),) * 3


class FoldContext(NamedTuple):
    """What all rows share: the labels and the nested folds."""

    labels: Labels
    fold_of: NDArray[np.int64]
    inner: int
    seed: int
    groups: NDArray[np.int64] | None
    components: int | None
    strata: NDArray[np.int64] | None = None
    """of questions that are alike"""
    strata_fold_of: NDArray[np.int64] | None = None
    """folds of whole strata; None: there are too few strata"""
    done: Done = lambda: None
    """called after each step of the work, which `steps` counts"""


class Supervised(NamedTuple):
    """A feature set, evaluated."""

    row: xr.Dataset
    evaluated: CrossValidated
    points: Floats
    """the coordinates of the default choice"""
    within: Floats | None
    """scores by detectors that saw no answer of the stratum, at the default choice; None without strata"""
    kind: Choice
    choice: int
    notes: list[str]


def supervised(
    array: xr.DataArray, name: str, context: FoldContext, *, ks: Sequence[int], target: Labels | None = None
) -> Supervised:
    """The detector on a feature set, its k or layer chosen inside the training folds; the sweep; the paper's protocol.

    With a ``target`` it is fitted to these flags instead of the labels, and everything is chosen by them.
    """
    fitted_to = context.labels if target is None else target
    kind, available = choice_kind(array), choices(array, name, ks)
    smallest = len(context.labels) - int(np.bincount(context.fold_of).max())
    candidates = choice_points(array, name, available, coordinates_for(smallest, context.components), context.done)
    evaluated = cross_validate(
        candidates, fitted_to, context.fold_of,
        inner=context.inner, seed=context.seed, groups=context.groups, components=context.components,
        published=target is None, done=context.done,
    )  # fmt: skip
    default = default_choice(kind, available)
    points, within = points_of(dict(candidates)[default]), None
    if context.strata_fold_of is not None:
        within = out_of_fold(points, fitted_to, context.strata_fold_of, components=context.components)
    row = _evaluated_row(name, evaluated, within, context)
    if kind:
        row["chosen"] = ((DETECTOR, FOLD), np.array([evaluated.chosen], dtype=np.float64))
        curve, dim = ("by_k", RANK) if kind == "k" else ("by_layer", LAYER)
        row = row.merge(_curve(name, curve, dim, evaluated.sweep, context))
    if target is None:
        published = paper_protocol(evaluated.paper)
        row = row.assign(
            **with_interval("paper", [published.auroc], [published.low], [published.high], dims=DETECTOR),
            paper_choice=(DETECTOR, [float(published.choice) if kind else np.nan]),
        )
    missing = sorted(set(ks) - set(available)) if kind == "k" else []
    notes = [f"{name}: no k of {', '.join(map(str, missing))}: some text is shorter"] if missing else []
    return Supervised(row, evaluated, points, within, kind, default, notes)


def steps(array: xr.DataArray, name: str, ks: Sequence[int], detailed: bool) -> int:
    """How many steps of about the same cost a feature set has."""
    kind, available = choice_kind(array), choices(array, name, ks)
    curves = 2 + (array.sizes[LAYER] if LAYER in array.dims and kind != "layer" else 0)
    return len(available) * (3 if kind == "k" else 1) + (curves if detailed else 0)


def details(
    array: xr.DataArray,
    name: str,
    entry: Supervised,
    context: FoldContext,
    sizes: Sequence[int],
    topics: Any,
    min_per_class: int,
) -> xr.Dataset:
    """Curves over layers and training sizes, and transfer between topics, at the default choice."""
    labels, fold_of = context.labels, context.fold_of
    found = _curve(
        name, "by_size", SIZE, scores_by_size(entry.points, labels, fold_of, sizes, seed=context.seed), context
    )
    context.done()
    if LAYER in array.dims and entry.kind != "layer":  # otherwise the sweep is over layers already
        part = select(array, entry.kind, entry.choice)
        scores = scores_by_layer(part, name, labels, fold_of, done=context.done)
        found = found.merge(_curve(name, "by_layer", LAYER, scores, context))
    if topics is not None:
        between = transfer(
            entry.points,
            labels,
            topics,
            folds=len(np.unique(fold_of)),
            seed=context.seed,
            min_per_class=min_per_class,
            groups=context.groups,
        )
        between = between.rename(auroc="transfer", low="transfer_low", high="transfer_high").drop_vars(
            ["n_wrong", "n_right"]
        )
        found = found.merge(between.expand_dims({DETECTOR: [name]}))
    context.done()
    return found


def combined(
    name: str,
    members: Sequence[str],
    entries: Mapping[str, Supervised],
    numbers: Mapping[str, Floats],
    context: FoldContext,
) -> xr.Dataset:
    """Several rows stacked, with weights learnt inside the training folds."""
    blocks = [entries[member].evaluated for member in members if member in entries]
    scores = [numbers[member] for member in members if member in numbers]
    stacked = cross_validate_stack(
        blocks, scores, context.labels, context.fold_of, inner=context.inner, seed=context.seed, groups=context.groups
    )  # fmt: skip
    apart = [entries[member].within for member in members if member in entries]
    known = [score for score in apart if score is not None]
    within = None
    if context.strata_fold_of is not None and len(known) == len(apart):
        inputs = np.stack([*known, *scores], axis=1)
        within = stacked_out_of_fold(inputs, context.labels, context.strata_fold_of)
    return _evaluated_row(name, stacked, within, context)


def unsupervised(name: str, scores: Floats, context: FoldContext, *, learnt: bool = False) -> xr.Dataset:
    """A score that learnt no label; ``learnt``: it learnt something else, from the other folds."""
    return _row(name, scores, scores, context, learnt=learnt)


def as_score(scores: Any, name: str, rows: int) -> Floats:
    """One finite number per answer, or a DataError."""
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


def joined(parts: Sequence[xr.Dataset], context: FoldContext) -> xr.Dataset:
    """All rows as one Dataset, in their order, NaN where a variable does not apply; and the labels and folds of the answers."""
    names = list(dict.fromkeys(str(name) for part in parts for name in part[DETECTOR].values))
    table = xr.merge(parts, join="outer", compat="no_conflicts").sel({DETECTOR: names})
    return table.assign_coords(wrong=(EXAMPLE, context.labels), fold_of=(EXAMPLE, context.fold_of))


def _row(name: str, score: Floats, within: Floats | None, context: FoldContext, *, learnt: bool) -> xr.Dataset:
    """``within``: the score to compare within strata."""
    area, per_fold = auroc_by_fold(score, context.labels, context.fold_of, learnt=learnt, groups=context.groups)
    alike: dict[str, Any] = {}
    if context.strata is not None:
        inside = NOT_KNOWN if within is None else _within(within, context, area.inflation)
        alike = with_interval("auroc_within", *([value] for value in inside), dims=DETECTOR)
    return xr.Dataset(
        {
            **alike,
            **with_interval("auroc", [float(area.value)], [float(area.low)], [float(area.high)], dims=DETECTOR),
            "pooled": (DETECTOR, [float(auroc(score, context.labels).value)]),
            "fold_auroc": ((DETECTOR, FOLD), per_fold[None]),
            "score": ((DETECTOR, EXAMPLE), score[None]),
        },
        coords={DETECTOR: [name], FOLD: np.arange(len(per_fold))},
    )


def _within(score: Floats, context: FoldContext, inflation: float) -> tuple[float, float, float]:
    """AUROC over pairs of the same stratum, and its interval.

    Answers of a stratum are in one fold of ``strata_fold_of``, so one detector that saw none of them scores them all. Over
    folds that divide a stratum it would not do: where more of its other answers are wrong, fewer of a fold's own are, and a
    score that knows the topic alone has an AUROC of .23 within topic x difficulty (492 answers in 72 strata), not .5.
    """
    assert context.strata is not None
    area = auroc_within(score, context.labels, context.strata, groups=context.groups, inflation=inflation)
    return float(area.value), float(area.low), float(area.high)


def _evaluated_row(name: str, evaluated: CrossValidated, within: Floats | None, context: FoldContext) -> xr.Dataset:
    labels = context.labels
    probability = np.empty(len(labels))
    for index, fold in enumerate(np.unique(context.fold_of)):
        train = context.fold_of != fold
        probability[~train] = fit_platt(evaluated.inner[index, train], labels[train])(evaluated.score[~train])
    precision, recall = precision_recall(evaluated.score, labels)
    return _row(name, evaluated.score, within, context, learnt=True).assign(
        precision=(DETECTOR, [precision]),
        recall=(DETECTOR, [recall]),
        brier=(DETECTOR, [brier(probability, labels)]),
        probability=((DETECTOR, EXAMPLE), probability[None]),
    )


def _curve(row: str, name: str, dim: str, scores: Mapping[int, Floats], context: FoldContext) -> xr.Dataset:
    """AUROC and interval of several scores, along a dim whose coordinates are their names."""
    areas = [
        auroc_by_fold(score, context.labels, context.fold_of, groups=context.groups)[0] for score in scores.values()
    ]
    ends = [[area.value, area.low, area.high] for area in areas]
    parts = np.array(ends, dtype=np.float64).reshape(-1, 3).T  # (part, score); there may be no score
    curve = with_interval(name, *parts[:, None], dims=(DETECTOR, dim))
    return xr.Dataset(curve, coords={DETECTOR: [row], dim: list(scores)})
