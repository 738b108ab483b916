"""How good is a detector on answers it has not seen, when something about it had to be chosen? Nested cross-validation.

The outer folds only evaluate: every answer is scored once, by a detector that was fitted on the other folds. What has to be
chosen (k, a layer) is chosen by inner folds within the training rows: the candidate with the best mean AUROC over inner
folds, the earlier one on a tie. No test fold ever takes part in a choice.

    for each outer fold:  for each candidate:  inner out-of-fold scores of the training rows -> the best candidate
                          fit every candidate on all training rows, score the test rows
                          the chosen candidate's score is the detector's; all candidates' scores are the sweep

Stacking and calibration learn from the inner out-of-fold scores (``stacking``), since they too must not see the test fold,
nor scores of rows a classifier was fitted on. Folds are stratified by label and seeded; with ``groups`` (the question of an
answer) a group is never divided.

The AUROC of the outer scores is the mean over folds, with an interval from DeLong's placements within folds, inflated for
the training rows that folds share (`stats.auroc_by_fold`). A bootstrap of the pooled scores would compare scores of
different classifiers, and is too narrow, as DeLong alone is; the spread over folds, five dependent numbers, gives an
interval that is itself mostly noise. Not covered: questions of another kind, another model.

``paper_protocol`` is the published evaluation, for comparison only (Binkowski et al., arXiv 2502.17598): one stratified
split, 80 % to fit and 20 % to test, and **the candidate that is best on the test set is reported**. That is optimistic, the
maximum over candidates of a number with a standard error of .03-.06: on pure noise (500 answers, five k, 60 draws) it gives
.534 on average, where nested cross-validation gives .50.

Cost: folds x candidates x (inner + 1) fits; candidates are fitted in parallel, one per core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split

from headwise.core.errors import DataError
from headwise.probes.batched_logistic.parallel_map import parallel_map
from headwise.probes.linear import COMPONENTS, CPU, fit_linear, fit_subsets, fit_within, pca_drops
from headwise.probes.projection import Projection
from headwise.stats import Auroc, auroc, auroc_by_fold
from headwise.stats.validation import Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Candidate = Floats | Projection | Callable[[], Floats | Projection]
"""points (example, coordinate), a projection, or what computes one of them"""
Candidates = Iterable[tuple[int, Candidate]]
"""by their names"""
Done = Callable[[], object]
"""called after each piece of work, for progress"""


class CrossValidated(NamedTuple):
    """A detector evaluated by cross-validation."""

    score: Floats
    """(example,): log-odds of "wrong" from the detector that did not see this answer"""
    inner: Floats
    """(fold, example): inner out-of-fold scores of the training rows of each outer fold; NaN on its test rows"""
    chosen: list[int]
    """the candidate chosen in each outer fold"""
    sweep: dict[int, Floats]
    """candidate -> (example,) out-of-fold score: to look at, never to choose from"""
    fits: int = 0
    """logistic regressions that were fitted"""
    unconverged: int = 0
    """of them, those that reached the solver's last step first"""
    paper: Mapping[int, Auroc] = MappingProxyType({})
    """candidate -> its `paper_area`, where that was asked for"""


def assign_folds(labels: Labels, *, folds: int = 5, seed: int = 0, groups: Ints | None = None) -> Ints:
    """The fold of every answer: stratified by label, groups undivided, both classes in every fold."""
    smaller = int(min(labels.sum(), (~labels).sum()))
    if smaller < folds:
        raise DataError(
            f"{folds} folds need at least {folds} answers of each class, but one has {smaller}; use fewer folds."
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
                f"Fold {fold + 1} of {folds} has answers of one class only, because groups stay together; "
                "use fewer folds or more groups."
            )
    return fold_of


def inner_folds(labels: Labels, train: Labels, *, inner: int, seed: int, groups: Ints | None) -> Ints:
    """The inner folds among the training rows of one outer fold."""
    return assign_folds(labels[train], folds=inner, seed=seed, groups=None if groups is None else groups[train])


def out_of_fold(points: Floats, labels: Labels, fold_of: Ints, *, components: int | None = COMPONENTS) -> Floats:
    """The score of every answer from a classifier fitted on the other folds."""
    folds = np.unique(fold_of)
    linears = fit_subsets(points, labels, fold_of != folds[:, None], components=components)
    score = np.empty(len(labels))
    for fold, linear in zip(folds, linears, strict=True):
        test = fold_of == fold
        score[test] = linear(points[test])
    return score


def sweep(
    candidates: Candidates, labels: Labels, fold_of: Ints, *, components: int | None = None, done: Done = lambda: None
) -> dict[int, Floats]:
    """Candidate -> out-of-fold scores."""
    candidate_list = list(candidates)
    scores = parallel_map(
        lambda item: out_of_fold(points_of(item[1]), labels, fold_of, components=components),
        candidate_list,
        CPU,
        done,
    )
    return {name: score for (name, _), score in zip(candidate_list, scores, strict=True)}


def choose(scores: Mapping[int, Floats], labels: Labels, fold_of: Ints) -> int:
    """The candidate whose out-of-fold scores have the best mean AUROC over folds; the first on a tie."""
    return max(scores, key=lambda name: float(auroc_by_fold(scores[name], labels, fold_of)[0].value))


def cross_validate(
    candidates: Candidates,
    labels: Labels,
    fold_of: Ints,
    *,
    inner: int = 3,
    seed: int = 0,
    groups: Ints | None = None,
    components: int | None = COMPONENTS,
    published: bool = False,
    done: Done = lambda: None,
) -> CrossValidated:
    """Evaluate a detector of which one candidate (a name and its points) is chosen inside the training folds.

    ``published``: by the paper's protocol as well, while the points of a candidate are there.
    """
    folds = np.unique(fold_of)
    trains = fold_of != folds[:, None]  # (fold, example)
    inner_fold_of = [
        inner_folds(labels, train, inner=inner, seed=seed + 1 + int(fold), groups=groups)
        for fold, train in zip(folds, trains, strict=True)
    ]

    def evaluated(item: tuple[int, Candidate]) -> tuple[tuple[Floats, Floats, int], Auroc | None]:
        points = points_of(item[1])
        area = paper_area(points, labels, seed) if published else None
        return _nested_scores(points, labels, trains, inner_fold_of, components), area

    candidate_list = list(candidates)
    names = [name for name, _ in candidate_list]
    found = parallel_map(evaluated, candidate_list, CPU, done)
    outer_scores = {name: outer for name, ((outer, _, _), _) in zip(names, found, strict=True)}
    inner_scores = {name: inner for name, ((_, inner, _), _) in zip(names, found, strict=True)}
    paper = {name: area for name, (_, area) in zip(names, found, strict=True) if area is not None}
    score = np.empty(len(labels))
    inner_score = np.empty((len(folds), len(labels)))
    chosen = []
    for index, train in enumerate(trains):
        candidates_here = {name: scores[index, train] for name, scores in inner_scores.items()}
        best = choose(candidates_here, labels[train], inner_fold_of[index])
        chosen.append(best)
        score[~train] = outer_scores[best][~train]
        inner_score[index] = inner_scores[best][index]
    fits = len(candidate_list) * sum(1 + len(np.unique(own)) for own in inner_fold_of)
    failures = sum(failed for (_, _, failed), _ in found)
    return CrossValidated(score, inner_score, chosen, outer_scores, fits, failures, paper)


def points_of(given: Candidate) -> Floats:
    """The points of a candidate."""
    found = given() if callable(given) else given
    return found.points if isinstance(found, Projection) else found


def _nested_scores(
    points: Floats, labels: Labels, trains: Labels, inner_fold_of: list[Ints], components: int | None
) -> tuple[Floats, Floats, int]:
    """Outer scores (example,) and inner scores (fold, example) of one candidate; and how many fits did not converge.

    All fits are made together; where the PCA drops directions, those of one outer fold share the PCA of its training
    rows.
    """
    subsets = [
        np.array([train, *(_among(train, inner != fold) for fold in np.unique(inner))])
        for train, inner in zip(trains, inner_fold_of, strict=True)
    ]
    if any(pca_drops(points, train, components) for train in trains):
        pairs = zip(trains, subsets, strict=True)
        fitted = [fit_within(points, labels, train, own, components=components) for train, own in pairs]
        every = [linear for own in fitted for linear in own]
    else:
        every = fit_subsets(points, labels, np.concatenate(subsets), components=None)
    linears = iter(every)
    outer_score = np.empty(len(labels))
    inner_score = np.full(trains.shape, np.nan)
    for index, (train, inner) in enumerate(zip(trains, inner_fold_of, strict=True)):
        outer_score[~train] = next(linears)(points[~train])
        for fold in np.unique(inner):
            test = _among(train, inner == fold)
            inner_score[index, test] = next(linears)(points[test])
    return outer_score, inner_score, sum(not linear.converged for linear in every)


def _among(rows: Labels, chosen: Labels) -> Labels:
    """The rows among all that are ``chosen`` among the True ``rows``."""
    mask = np.zeros(len(rows), dtype=bool)
    mask[np.flatnonzero(rows)[chosen]] = True
    return mask


def precision_recall(score: Floats, labels: Labels) -> tuple[float, float]:
    """Precision TP / (TP + FP) and recall TP / (TP + FN) of calling an answer wrong where its log-odds are >= 0.

    Precision is NaN where no answer is called wrong.
    """
    called = score >= 0
    hits = float((called & labels).sum())
    return (hits / float(called.sum()) if called.any() else float("nan")), hits / float(labels.sum())


class PaperResult(NamedTuple):
    """The result of the paper's protocol. Optimistic: the choice was made on the test set."""

    auroc: float
    low: float
    high: float
    """ends of the 95 % interval, which does not account for the choice"""
    choice: int
    """the candidate that was best on the test set"""
    per_candidate: dict[int, float]
    """candidate -> test AUROC"""


def paper_protocol(areas: Mapping[int, Auroc]) -> PaperResult:
    """The candidate whose `paper_area` is largest, chosen on the test set, as published."""
    best = max(areas, key=lambda name: float(areas[name].value))
    chosen, per_candidate = areas[best], {name: float(one.value) for name, one in areas.items()}
    return PaperResult(float(chosen.value), float(chosen.low), float(chosen.high), best, per_candidate)


def paper_area(points: Floats, labels: Labels, seed: int = 0) -> Auroc:
    """On the test set of the one 80/20 split."""
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    return auroc(fit_linear(points[train], labels[train])(points[test]), labels[test])
