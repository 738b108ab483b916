"""Where does a detector's information sit, how much data does it need, and does it transfer to other topics?

- by layer: the detector on the features of one layer alone, against all layers together;
- by size: fitted on the first m training answers of each fold, in a seeded random order that preserves the share of wrong
  answers, tested on the whole test fold. A curve that still rises at its end asks for more questions;
- transfer between topics:

      transfer[a, b] = AUROC on topic b of the detector fitted on all answers of topic a
      transfer[a, a] = cross-validated inside topic a (never fitted on its test rows)
      transfer["others", b] = fitted on every topic but b

  The last row is the most reliable: it has nearly all the data, and none of the topic. A topic with fewer than
  ``min_per_class`` answers of a class is neither fitted on alone nor tested on: NaN. ``group_topics`` merges small topics
  first. Intervals are DeLong's, within the tested topic: they are about this detector, and other answers to it. Other
  training answers would have given another detector, which separates the tested answers a little by luck; with ``refits``
  the interval covers that too, by the jackknife: the variance over detectors refitted without one part of the training rows,

      var = var DeLong + (K - 1) / K Σ_k (A_without k - mean)²

Nothing is chosen here: k is the largest available, so the curves cannot leak. The PCA is left out: the same up to 512
answers, and nearly so above. A layer that looks best here was found on test folds, and its number is optimistic.

Cost: one fit per fold for each point of a curve, about seven fits per topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import LAYER, OTHERS, TOPIC, TRAINED_ON
from headwise.core.errors import DataError
from headwise.probes.crossvalidation import Done, assign_folds, out_of_fold, sweep
from headwise.probes.features import as_table
from headwise.probes.linear import LinearScore, fit_subsets
from headwise.probes.projection import LANDMARKS, project
from headwise.stats import Auroc, auroc, auroc_by_fold, auroc_rows
from headwise.stats.auroc import auroc_interval, influence_variance
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_PER_CLASS_IN_GROUP = 25  # answers of each class in a group of topics


# ---- curves ---------------------------------------------------------------------------------------------------------


def scores_by_layer(
    features: xr.DataArray, name: str, labels: Labels, fold_of: Ints, *, done: Done = lambda: None
) -> dict[int, Floats]:
    """Layer -> out-of-fold scores of a detector that sees only this layer."""

    def points(layer: int) -> Floats:
        table = as_table(features.isel({LAYER: layer}), name)
        narrow = table.shape[1] <= min(len(table), LANDMARKS)  # then a fit on the columns costs less than turning them
        return table - table.mean(axis=0, dtype=np.float64) if narrow else project(table).points

    layers = [(layer, partial(points, layer)) for layer in range(features.sizes[LAYER])]
    return sweep(layers, labels, fold_of, done=done)


def scores_by_size(
    points: Floats, labels: Labels, fold_of: Ints, sizes: Sequence[int], *, seed: int = 0
) -> dict[int, Floats]:
    """Size -> out-of-fold scores of a detector fitted on so many answers; sizes no training fold has are left out."""
    folds = np.unique(fold_of)
    smallest = min(int((fold_of != fold).sum()) for fold in folds)
    usable = [size for size in sizes if size <= smallest]
    scores = {size: np.empty(len(labels)) for size in usable}
    subsets = np.zeros((len(folds), len(usable), len(labels)), dtype=bool)
    for row, fold in enumerate(folds):
        order = _stratified_order(np.flatnonzero(fold_of != fold), labels, np.random.default_rng([seed, int(fold)]))
        for column, size in enumerate(usable):
            subsets[row, column, order[:size]] = True
    linears = iter(fit_subsets(points, labels, subsets.reshape(-1, len(labels)), components=None))
    for fold in folds:
        test = fold_of == fold
        for size in usable:
            scores[size][test] = next(linears)(points[test])
    return scores


def _stratified_order(rows: Ints, labels: Labels, generator: np.random.Generator) -> Ints:
    """The rows in random order, such that every beginning has about the same share of wrong answers."""
    keys = np.empty(len(rows))
    for kind in (True, False):
        own = np.flatnonzero(labels[rows] == kind)
        keys[own] = (generator.permutation(len(own)) + 0.5) / len(own)
    return rows[np.argsort(keys, kind="stable")]


# ---- topics ---------------------------------------------------------------------------------------------------------


def as_topics(topics: Any, rows: int) -> NDArray[np.str_]:
    """One topic per answer, at least two of them, or a DataError."""
    found = np.asarray(topics).astype(str)
    if found.shape != (rows,):
        raise DataError(f"There are {rows} answers but {found.size} topics; give one topic per answer.")
    names = sorted(set(found.tolist()))
    if OTHERS in names or len(names) < 2:
        raise DataError(
            f"Transfer needs at least two topics, none of them called {OTHERS!r}; found {', '.join(names)}."
        )
    return found


def transfer(
    points: Floats,
    labels: Labels,
    topics: Any,
    *,
    folds: int = 5,
    seed: int = 0,
    min_per_class: int = 10,
    groups: Ints | None = None,
    refits: int = 0,
) -> xr.Dataset:
    """``auroc``, ``low``, ``high`` with dims (trained_on, topic), and ``n_wrong``, ``n_right`` of each topic.

    With ``refits`` (10, for instance) the intervals cover the choice of training answers as well.
    """
    topic_of = as_topics(topics, len(labels))
    names = sorted(set(topic_of.tolist()))
    rows = {name: topic_of == name for name in names}
    counts = {name: (int(labels[own].sum()), int((~labels[own]).sum())) for name, own in rows.items()}
    large = [name for name in names if min(counts[name]) >= min_per_class]
    found = np.full((3, len(names) + 1, len(names)), np.nan)

    def enter(trained_on: int, name: str, area: Auroc) -> None:
        found[:, trained_on, names.index(name)] = area.value, area.low, area.high

    without = [name for name in large if min(labels[~rows[name]].sum(), (~labels[~rows[name]]).sum()) >= min_per_class]
    trained = [*(rows[name] for name in large), *(~rows[name] for name in without)]
    subsets = [_with_refits(train, labels, groups, refits, seed) for train in trained]
    fits = iter(fit_subsets(points, labels, np.concatenate(subsets), components=None) if subsets else [])
    detectors = [[next(fits) for _ in subset] for subset in subsets]  # each on all its rows, then the refits

    def area(detector: Sequence[LinearScore], name: str) -> Auroc:
        test = rows[name]
        return _area([linear(points[test]) for linear in detector], labels[test], _renumbered(groups, test))

    for name, detector in zip(large, detectors[: len(large)], strict=True):
        for other in large:
            if other != name:
                enter(names.index(name), other, area(detector, other))
        own = rows[name]
        own_groups = _renumbered(groups, own)
        fold_of = assign_folds(labels[own], folds=min(folds, *counts[name]), seed=seed, groups=own_groups)
        score = out_of_fold(points[own], labels[own], fold_of, components=None)
        enter(names.index(name), name, auroc_by_fold(score, labels[own], fold_of, groups=own_groups)[0])
    for name, detector in zip(without, detectors[len(large) :], strict=True):
        enter(len(names), name, area(detector, name))
    return xr.Dataset(
        {key: ((TRAINED_ON, TOPIC), found[index]) for index, key in enumerate(("auroc", "low", "high"))}
        | {key: (TOPIC, [counts[name][index] for name in names]) for index, key in enumerate(("n_wrong", "n_right"))},
        coords={TRAINED_ON: [*names, OTHERS], TOPIC: names},
    )


def _with_refits(train: Labels, labels: Labels, groups: Ints | None, refits: int, seed: int) -> Labels:
    """(1 + refit, row): the training rows, then the same without one part of them."""
    if not refits:
        return train[None]
    parts = min(refits, int(labels[train].sum()), int((~labels[train]).sum()))
    part_of = np.full(len(labels), -1)
    part_of[train] = assign_folds(labels[train], folds=parts, seed=seed, groups=_renumbered(groups, train))
    return np.stack([train, *(train & (part_of != part) for part in range(parts))])


def _area(scores: Sequence[Floats], labels: Labels, groups: Ints | None) -> Auroc:
    """The AUROC of the first score; the others, of refitted detectors, widen its interval."""
    whole = auroc(scores[0], labels, groups=groups)
    if len(scores) == 1:
        return whole
    again = auroc_rows(np.stack(scores[1:]), labels)
    variance = influence_variance(whole.influence, groups) + (len(again) - 1) * float(again.var())
    low, high = auroc_interval(whole.value, variance, int(min(labels.sum(), (~labels).sum())))
    return whole._replace(low=low, high=high)


def _renumbered(groups: Ints | None, rows: Labels) -> Ints | None:
    return None if groups is None else np.unique(groups[rows], return_inverse=True)[1]


def group_topics(
    topics: NDArray[np.str_], vectors: Floats, wrong: Labels, min_per_class: int = MIN_PER_CLASS_IN_GROUP
) -> list[str]:
    """The name of each answer's group of topics; topics too small to fit a probe on join the most similar ones.

    Every topic is a group; while some group has fewer than ``min_per_class`` answers of a class and there are more than
    two groups, the smallest joins the group whose mean vector (`vectors`: (row, width), of the questions as the model
    represents them) has the largest cosine with its own. Which groups join is decided by the vectors, when to stop by
    the counts; no answer's own label counts. A group is named by its topics.
    """
    centred = vectors - vectors.mean(axis=0)
    groups = {name: np.array(topics == name) for name in sorted(set(topics.tolist()))}

    def smaller_class(rows: Labels) -> int:
        return int(min((wrong & rows).sum(), (~wrong & rows).sum()))

    def cosine(one: Labels, other: Labels) -> float:
        a, b = centred[one].mean(axis=0), centred[other].mean(axis=0)
        return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))

    while len(groups) > 2:
        name = min(groups, key=lambda one: (smaller_class(groups[one]), one))
        if smaller_class(groups[name]) >= min_per_class:
            break
        rows = groups.pop(name)
        nearest = max(groups, key=lambda other: cosine(rows, groups[other]))
        joined = ", ".join(sorted([*name.split(", "), *nearest.split(", ")]))
        groups[joined] = rows | groups.pop(nearest)
    found = np.empty(len(topics), dtype=object)
    for name, rows in groups.items():
        found[rows] = name
    return [str(name) for name in found]
