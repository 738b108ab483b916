"""How good is a detector on answers it has not seen, when something about it had to be chosen?

Two rings of folds. The outer ring only judges: every answer is scored once, by a detector that was fitted on the other
folds. What has to be chosen (k, a layer) is chosen inside the training folds, by an inner ring of folds there: the
candidate with the best mean AUROC over inner folds, the earlier one on a tie. No test fold ever takes part in a choice.

    for each outer fold:  for each candidate:  inner out-of-fold scores of the training rows -> the best candidate
                          fit every candidate on all training rows, score the test rows
                          the chosen candidate's score is the detector's; all candidates' scores are the sweep

The inner out-of-fold scores are kept: stacking and calibration learn from them (``stacking``, ``calibration``), since
they too must not see the test fold, nor scores of rows a classifier was fitted on.

Folds are stratified by label and seeded; with ``groups`` (the question of an answer) a group is never divided.

The AUROC of the outer scores is the mean over folds, with an interval from DeLong's placements within folds, inflated
for the training rows that folds share (``auroc.auroc_by_fold``, with what that is worth). Why not a bootstrap of the
pooled scores: it compares scores of different classifiers, and is too narrow, as DeLong alone is. Why not the spread
over folds: five numbers that depend on each other give an interval that is itself mostly noise. What the interval does
not cover: questions of another kind, another model.

Cost: folds x candidates x (inner + 1) fits. This module does not know what the candidates mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from headwise.core.errors import DataError
from headwise.probes.classifier import COMPONENTS, drops, fit_subsets, fit_within
from headwise.stats import auroc_by_fold
from headwise.stats.validation import Labels

__all__ = ["CrossValidated", "assign_folds", "choose", "cross_validate", "out_of_fold", "precision_recall"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CrossValidated(NamedTuple):
    """A detector judged by cross-validation."""

    score: Floats
    """(example,): log-odds of "wrong" from the detector that did not see this answer"""
    inner: Floats
    """(fold, example): inner out-of-fold scores of the training rows of each outer fold; NaN on its test rows"""
    chosen: list[int]
    """the candidate chosen in each outer fold"""
    sweep: dict[int, Floats]
    """candidate -> (example,) out-of-fold score: to look at, never to choose from"""


def assign_folds(labels: Labels, *, folds: int = 5, seed: int = 0, groups: Ints | None = None) -> Ints:
    """The fold of every answer: stratified by label, groups kept together, both classes in every fold."""
    fewest = int(min(labels.sum(), (~labels).sum()))
    if fewest < folds:
        raise DataError(
            f"{folds} folds need at least {folds} answers of each class, but one has {fewest}; use fewer folds."
        )
    fold_of = np.empty(len(labels), dtype=np.int64)
    splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
    if groups is not None and len(np.unique(groups)) < folds:
        raise DataError(f"{folds} folds need at least {folds} groups, but there are {len(np.unique(groups))}.")
    split = splitter(folds, shuffle=True, random_state=seed).split(fold_of, labels, groups)
    for fold, (_, test) in enumerate(split):
        fold_of[test] = fold
        if labels[test].all() or not labels[test].any():
            raise DataError(
                f"Fold {fold + 1} of {folds} has answers of one class only, because groups are kept together; "
                "use fewer folds or more groups."
            )
    return fold_of


def out_of_fold(points: Floats, labels: Labels, fold_of: Ints, *, components: int | None = COMPONENTS) -> Floats:
    """The score of every answer from a classifier fitted on the other folds."""
    folds = np.unique(fold_of)
    linears = fit_subsets(points, labels, fold_of != folds[:, None], components=components)
    score = np.empty(len(labels))
    for fold, linear in zip(folds, linears, strict=True):
        test = fold_of == fold
        score[test] = linear(points[test])
    return score


def choose(scores: Mapping[int, Floats], labels: Labels, fold_of: Ints) -> int:
    """The candidate whose out-of-fold scores have the best mean AUROC over folds; the first on a tie."""
    return max(scores, key=lambda name: float(auroc_by_fold(scores[name], labels, fold_of)[0].value))


def cross_validate(
    candidates: Iterable[tuple[int, Floats]],
    labels: Labels,
    fold_of: Ints,
    *,
    inner: int = 3,
    seed: int = 0,
    groups: Ints | None = None,
    components: int | None = COMPONENTS,
) -> CrossValidated:
    """Judge a detector of which one candidate (a name and its points) is chosen inside the training folds.

    Candidates are taken one after the other, so a generator keeps only one in memory.
    """
    folds = np.unique(fold_of)
    trains = fold_of != folds[:, None]  # (fold, example)
    rings = [
        inner_folds(labels, train, inner=inner, seed=seed + 1 + int(fold), groups=groups)
        for fold, train in zip(folds, trains, strict=True)
    ]
    sweep: dict[int, Floats] = {}
    inside: dict[int, Floats] = {}
    for name, points in candidates:
        sweep[name], inside[name] = _both_rings(points, labels, trains, rings, components)
    score = np.empty(len(labels))
    learnt = np.empty((len(folds), len(labels)))
    chosen = []
    for place, train in enumerate(trains):
        best = choose({name: found[place, train] for name, found in inside.items()}, labels[train], rings[place])
        chosen.append(best)
        score[~train] = sweep[best][~train]
        learnt[place] = inside[best][place]
    return CrossValidated(score, learnt, chosen, sweep)


def inner_folds(labels: Labels, train: Labels, *, inner: int, seed: int, groups: Ints | None) -> Ints:
    """The inner ring among the training rows of one outer fold."""
    return assign_folds(labels[train], folds=inner, seed=seed, groups=None if groups is None else groups[train])


def _both_rings(
    points: Floats, labels: Labels, trains: Labels, rings: list[Ints], components: int | None
) -> tuple[Floats, Floats]:
    """Outer scores (example,) and inner scores (fold, example) of one candidate.

    All fits are made together; where the PCA drops directions, those of one outer fold share the PCA of its training
    rows.
    """
    subsets = [
        np.array([train, *(_among(train, ring != fold) for fold in np.unique(ring))])
        for train, ring in zip(trains, rings, strict=True)
    ]
    if any(drops(points, train, components) for train in trains):
        pairs = zip(trains, subsets, strict=True)
        fitted = [fit_within(points, labels, train, own, components=components) for train, own in pairs]
        linears = iter([linear for own in fitted for linear in own])
    else:
        linears = iter(fit_subsets(points, labels, np.concatenate(subsets), components=None))
    outer = np.empty(len(labels))
    inner = np.full(trains.shape, np.nan)
    for place, (train, ring) in enumerate(zip(trains, rings, strict=True)):
        outer[~train] = next(linears)(points[~train])
        for fold in np.unique(ring):
            test = _among(train, ring == fold)
            inner[place, test] = next(linears)(points[test])
    return outer, inner


def _among(rows: Labels, chosen: Labels) -> Labels:
    """The rows among all that are ``chosen`` among the True ``rows``."""
    mask = np.zeros(len(rows), dtype=bool)
    mask[np.flatnonzero(rows)[chosen]] = True
    return mask


def precision_recall(score: Floats, labels: Labels) -> tuple[float, float]:
    """Of the answers called wrong (log-odds >= 0, probability >= 0.5), how many are; of the wrong, how many are called.

    Precision is NaN where no answer is called wrong.
    """
    called = score >= 0
    hits = float((called & labels).sum())
    return (hits / float(called.sum()) if called.any() else float("nan")), hits / float(labels.sum())
