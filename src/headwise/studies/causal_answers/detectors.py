"""Detectors of wrong answers, applied to answers that were read without some heads. Pure functions on arrays.

**Which answers.** As many wrong as correct ones of every stratum of similar questions (`question_controls`): what the question
alone tells about the answer is then the same for both. Where there are as many strata as folds, a stratum is in one fold, so
no detector was fitted on it: one that learnt that a topic is hard would otherwise find fewer wrong answers of it where more of
them were in the training folds.

**Applied.** Fitted on all judged answers of the other folds, read from the intact model; applied to the chosen answers of the
fold, with and without the heads. **Refitted.** Fitted on the chosen answers of the other folds as they were read without the
heads, whose own columns are left out; compared with a detector of the intact model that is fitted on the same answers.

The classifiers are those of the studies: `probes.linear` for attention, `LogisticProbe` for activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.core.errors import DataError
from headwise.probes import LogisticProbe
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.linear import fit_linear
from headwise.studies.matched_heads import Head

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Labels = NDArray[np.bool_]
FOLDS = 5
MIN_PAIRS = 20  # of a wrong and a correct answer


def weights_of(features: Floats, wrong: Labels) -> Floats:
    """(layer, head): how much each head's feature (answer, layer, head) moves the detector's log-odds, fitted on all answers.

    >>> wrong = np.arange(40) % 2 == 0
    >>> features = np.zeros((40, 1, 2))
    >>> features[:, 0, 1] = wrong + np.sin(np.arange(40))
    >>> weights_of(features, wrong).round(1)
    array([[0. , 1.2]])
    """
    shape, table = features.shape[1:], features.reshape(len(features), -1)
    known = np.isfinite(table).all(axis=0)
    found = np.full(table.shape[1], np.nan)
    found[known] = np.abs(fit_linear(table[:, known], wrong).weights) * table[:, known].std(axis=0)
    return found.reshape(shape)


def balanced(wrong: Labels, strata: Ints, count: int, seed: int) -> Ints:
    """Indices of at most ``count`` answers, as many wrong as correct ones in every stratum; refused where there are too few.

    >>> wrong, strata = np.arange(60) % 3 == 0, np.arange(60) // 30
    >>> found = balanced(wrong, strata, 60, 0)
    >>> [int(wrong[found][strata[found] == stratum].sum()) for stratum in (0, 1)], len(found)
    ([10, 10], 40)
    """
    random = np.random.default_rng([seed, 3])
    pairs: list[tuple[int, int]] = []
    for stratum in np.unique(strata):
        sides = [random.permutation(np.flatnonzero((strata == stratum) & (wrong == kind))) for kind in (True, False)]
        pairs += [(int(one), int(other)) for one, other in zip(*sides, strict=False)]
    if len(pairs) < MIN_PAIRS:
        raise DataError(
            f"only {len(pairs)} wrong answers have a correct answer to a similar question next to them, and "
            f"{MIN_PAIRS} are needed to test detectors without heads; build the atlas with more questions (--limit)."
        )
    order = random.permutation(len(pairs))[: count // 2]
    return np.sort(np.array([row for index in order for row in pairs[index]]))


class Detectors:
    """The detector and the probe, each applied and refitted; scores of the chosen answers.

    Args:
        features: (answer, layer, head) of all judged answers, as the study `spectral` read them.
        wrong: (answer,).
        strata: (answer,), of similar questions.
        chosen: indices of the answers that are scored.
        seed: of the folds.
    """

    def __init__(self, features: Floats, wrong: Labels, strata: Ints, chosen: Ints, seed: int):
        self.wrong, self.chosen, self.shape = wrong, chosen, features.shape[1:]
        groups = strata if len(np.unique(strata)) >= FOLDS else None
        self.fold_of = assign_folds(wrong, folds=FOLDS, seed=seed, groups=groups)
        self.known = np.isfinite(features).all(axis=0).ravel()
        self._table = features.reshape(len(features), -1)
        self._train = [self.fold_of != fold for fold in range(FOLDS)]
        self._linear = [fit_linear(self._table[train][:, self.known], wrong[train]) for train in self._train]
        self._probes: list[LogisticProbe] = []

    def scores(
        self, heads: Sequence[Head], features: Floats, intact: Floats, activations: Floats, fitted_on: Floats
    ) -> dict[str, Floats]:
        """Measure -> (chosen answer,), larger: more likely wrong.

        Args:
            heads: those that are ablated.
            features: (chosen answer, layer, head) read without them.
            intact: the same with nothing ablated.
            activations: (chosen answer, width) read without them.
            fitted_on: (answer, width) of all judged answers, with nothing ablated.
        """
        missing = np.zeros(self.shape, dtype=bool)
        for layer, head in heads:
            missing[layer, head] = True
        own = missing.ravel()
        without, with_heads = (values.reshape(len(self.chosen), -1) for values in (features, intact))
        left = self.known & ~own
        return {
            "detector": self._detector(without, own),
            "detector_reading": self._detector(with_heads, own),
            "detector_refitted": self._refitted(without[:, left], _linear),
            "probe": self._probe(activations, fitted_on),
            "probe_refitted": self._refitted(activations, _logistic),
        }

    def _detector(self, values: Floats, missing: Labels) -> Floats:
        """Fitted on the intact model; columns of missing heads are at their mean."""
        score = np.empty(len(values))
        for fold, (train, linear) in enumerate(zip(self._train, self._linear, strict=True)):
            test = self.fold_of[self.chosen] == fold
            table = np.where(missing, self._table[train].mean(axis=0), values[test])
            score[test] = linear(table[:, self.known])
        return score

    def _probe(self, values: Floats, fitted_on: Floats) -> Floats:
        if not self._probes:
            self._probes = [LogisticProbe().fit(fitted_on[train], self.wrong[train]) for train in self._train]
        score = np.empty(len(values))
        for fold, probe in enumerate(self._probes):
            test = self.fold_of[self.chosen] == fold
            if test.any():
                score[test] = probe.decision_function(values[test])
        return score

    def _refitted(self, values: Floats, fit: Callable[[Floats, Labels], Callable[[Floats], Floats]]) -> Floats:
        fold_of, wrong = self.fold_of[self.chosen], self.wrong[self.chosen]
        score = np.empty(len(values))
        for fold in np.unique(fold_of):
            test = fold_of == fold
            score[test] = fit(values[~test], wrong[~test])(values[test])
        return score


def _linear(points: Floats, wrong: Labels) -> Callable[[Floats], Floats]:
    score = fit_linear(points, wrong)
    return lambda values: score(values)


def _logistic(points: Floats, wrong: Labels) -> Callable[[Floats], Floats]:
    return LogisticProbe().fit(points, wrong).decision_function
