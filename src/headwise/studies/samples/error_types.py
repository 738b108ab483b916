"""In what way does a model err on a question? Five types, defined by K sampled answers.

With c the samples that are correct, w the largest group of equal wrong answers, n the different wrong answers and r the
refusals (Orgad et al., arXiv 2410.02707, section 5),

| type | name                 | when                                       |
|------|----------------------|--------------------------------------------|
| A    | refuses              | r > c and r > w                            |
| B    | consistently correct | c >= K / 2                                 |
| C    | consistently wrong   | w >= K / 2                                 |
| D    | two competing        | abs(c - w) <= K / 6, both above K / 6      |
| E    | many answers         | n >= K / 3                                 |

A question can be of several types, or of none. Wrong answers are equal when their exact answers have the same words
(case, accents, articles, numbers aside: `corpora.normalisation`); "the capital is Lyon" and "Lyon" are one answer, since it is
the exact answers that are compared.

`type_probes` asks whether one activation, at the greedy answer, separates a type from the rest: AUROC over folds with its
confidence interval, and the 95 % quantile of the same with permuted labels. The probe is fitted on other questions: on the
activation at the greedy answer and on the mean over the samples, at half weight each, so that a question counts once. Types
are known of sampled questions only, so other greedy answers cannot be fitted on here.

Cost: that of the probes. No model is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.corpora.matching import CORRECT, REFUSED, WRONG
from headwise.corpora.normalisation import words
from headwise.probes.batched_logistic.cells import fit_cells
from headwise.probes.crossvalidation import assign_folds
from headwise.stats import auroc_by_fold, auroc_rows
from headwise.stats.permutation import permuted_labels
from headwise.stats.validation import MIN_PER_CLASS

TYPES = {
    "A": "refuses",
    "B": "consistently correct",
    "C": "consistently wrong",
    "D": "two competing",
    "E": "many answers",
}

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class SampleCounts(NamedTuple):
    """Counts over the K samples of every question, (question,) each."""

    correct: Ints
    largest_wrong: Ints
    wrong_answers: Ints
    """different ones"""
    refused: Ints


class TypeProbe(NamedTuple):
    """How well one type is separated from the rest; NaN where either has too few questions."""

    auroc: float
    low: float
    high: float
    null_high: float
    """95th percentile with permuted labels"""


def clusters(texts: Sequence[str]) -> list[int]:
    """Which answers are equal: the number of each one's group, in the order they first appear.

    >>> clusters(["Lyon", "the city", "lyon.", "City", "25", "twenty-five"])
    [0, 1, 0, 1, 2, 2]
    """
    known: dict[tuple[str, ...], int] = {}
    return [known.setdefault(words(text), len(known)) for text in texts]


def counts_of(labels: NDArray[np.object_], groups: Ints) -> SampleCounts:
    """From the label and the group of every sample, (question, sample) each.

    >>> labels = np.array([["correct", "wrong", "wrong", "wrong", "refused"]], dtype=object)
    >>> [int(part[0]) for part in counts_of(labels, np.array([[0, 1, 1, 2, 3]]))]
    [1, 2, 2, 1]
    """
    largest, different = [], []
    for row, own in zip(labels, groups, strict=True):
        sizes = np.unique(own[row == WRONG], return_counts=True)[1]
        largest.append(int(sizes.max(initial=0)))
        different.append(len(sizes))
    return SampleCounts(
        (labels == CORRECT).sum(axis=1), np.array(largest), np.array(different), (labels == REFUSED).sum(axis=1)
    )


def types_of(counts: SampleCounts, samples: int) -> Flags:
    """(question, type): which types each question is of.

    >>> one = SampleCounts(*(np.array([part]) for part in (5, 5, 4, 0)))
    >>> "".join(name for name, flag in zip(TYPES, types_of(one, 12)[0]) if flag)
    'DE'
    """
    c, w, n, r = counts
    flags = (
        (r > c) & (r > w),
        2 * c >= samples,
        2 * w >= samples,
        (6 * np.abs(c - w) <= samples) & (6 * c > samples) & (6 * w > samples),
        3 * n >= samples,
    )
    return np.stack(flags, axis=1)


def type_probes(
    greedy: NDArray[np.float32],
    samples: NDArray[np.float32],
    types: Flags,
    *,
    folds: int = 5,
    shuffles: int = 50,
    seed: int = 0,
) -> list[TypeProbe]:
    """One probe per type against the rest: activations of greedy answers (question, feature) and of samples (question,
    sample, feature), types (question, type).
    """
    rows = np.concatenate([greedy, samples.mean(axis=1)])
    return [_type_probe(rows, flag, folds, shuffles, seed) for flag in types.T]


def _type_probe(rows: NDArray[np.float32], flag: Flags, folds: int, shuffles: int, seed: int) -> TypeProbe:
    """``rows``: those of the greedy answers, then those of the samples."""
    if min(flag.sum(), (~flag).sum()) < MIN_PER_CLASS:
        return TypeProbe(*[float("nan")] * 4)
    fold_of = assign_folds(flag, folds=folds, seed=seed)
    sets = np.stack([flag, *permuted_labels(flag, fold_of, sets=shuffles, seed=seed)])
    fits = fit_cells(rows[None], np.tile(sets, 2), np.tile(fold_of, 2), weights=np.full(len(rows), 0.5))
    scores = fits.scores[:, 0, : len(flag)]  # (set, question): at the greedy answers
    found, _ = auroc_by_fold(scores[0], flag, fold_of)
    null = [
        np.mean([auroc_rows(own[fold_of == fold], labels[fold_of == fold]) for fold in range(folds)])
        for own, labels in zip(scores[1:], sets[1:], strict=True)
    ]
    return TypeProbe(float(found.value), float(found.low), float(found.high), float(np.quantile(null, 0.95)))
