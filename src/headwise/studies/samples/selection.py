"""Of K sampled answers, which one to give? The one that a probe selects, against greedy, random and majority.

| strategy | takes                                                                    |
|----------|--------------------------------------------------------------------------|
| greedy   | the greedy answer, no sample                                             |
| random   | any sample: the mean over all of them                                    |
| majority | a sample of the largest group of equal answers; the first group on a tie |
| probe    | the sample with the lowest log-odds of "wrong"                           |
| any      | a correct sample if there is one: the upper bound                        |

A refusal (recognised by its words) is taken only where there is no other answer, and counts as not correct.

The probe is fitted on the samples of other questions: folds keep the samples of a question together, so that it never
saw a question it chooses for. Gains are paired: every strategy's gain over greedy comes with the confidence interval of
the gain itself, percentiles of a bootstrap over questions.

Published (Orgad et al., arXiv 2410.02707, TriviaQA): Mistral-7B .63 -> .71, Llama-3-8B .69 -> .73.

Cost: one fit of a probe per fold. No model is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.core.errors import DataError
from headwise.corpora.matching import CORRECT, REFUSED, WRONG
from headwise.probes.batched_logistic import fit_cells
from headwise.probes.crossvalidation import assign_folds
from headwise.stats import Auroc, auroc_by_fold
from headwise.stats.validation import MIN_PER_CLASS

__all__ = ["STRATEGIES", "BootstrapInterval", "SampleScores", "bootstrap", "picks", "score_samples"]

STRATEGIES = ("greedy", "random", "majority", "probe", "any")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class SampleScores(NamedTuple):
    """The probe's scores of all samples."""

    score: Floats
    """(question, sample): log-odds of "wrong", from a probe that saw no sample of this question"""
    auroc: Auroc
    """over samples that are right or wrong, mean over folds; the interval counts a question once"""
    fold_of: Ints
    """(question,)"""


class BootstrapInterval(NamedTuple):
    """A mean over questions, with its 95 % confidence interval."""

    value: Floats
    low: Floats
    high: Floats


def score_samples(
    activations: NDArray[np.float32], labels: NDArray[np.object_], *, folds: int = 5, seed: int = 0
) -> SampleScores:
    """Fit and apply the probe: ``activations`` (question, sample, feature), ``labels`` (question, sample)."""
    questions, samples = labels.shape
    wrong, judged = labels == WRONG, np.isin(labels, (CORRECT, WRONG))
    if min(int((labels == kind).sum()) for kind in (CORRECT, WRONG)) < MIN_PER_CLASS:
        raise DataError(
            f"{int((labels == CORRECT).sum())} samples are correct and {int(wrong.sum())} wrong, and at least "
            f"{MIN_PER_CLASS} of each are needed to fit a probe that chooses; sample more questions, or ones of "
            "another difficulty"
        )
    groups = np.repeat(np.arange(questions), samples).reshape(questions, samples)
    fold_of = np.full(questions, -1)
    fold_of[groups[judged]] = assign_folds(wrong[judged], folds=folds, seed=seed, groups=groups[judged])
    fold_of[fold_of < 0] = np.arange((fold_of < 0).sum()) % folds  # only refusals: any fold will do
    row_folds = np.broadcast_to(fold_of[:, None], wrong.shape)
    fits = fit_cells(activations[judged][None], wrong[judged], row_folds[judged], coefficients=True)
    assert fits.coefficients is not None and fits.intercepts is not None
    weights, intercepts = fits.coefficients[0].astype(np.float64)[fold_of], fits.intercepts[0][fold_of]
    score = np.einsum("qsd,qd->qs", activations.astype(np.float64), weights) + intercepts[:, None]
    found, _ = auroc_by_fold(score[judged], wrong[judged], row_folds[judged], groups=groups[judged])
    return SampleScores(score, found, fold_of)


def picks(labels: NDArray[np.object_], groups: Ints, score: Floats, greedy: NDArray[np.bool_]) -> Floats:
    """(strategy, question): how often each strategy's answer is correct, 0 or 1 except for means.

    >>> labels = np.array([["wrong", "correct", "wrong", "refused"]], dtype=object)
    >>> picks(labels, np.array([[0, 1, 0, 2]]), np.array([[1.0, -1.0, 2.0, -9.0]]), np.array([False]))[:, 0].tolist()
    [0.0, 0.25, 0.0, 1.0, 1.0]
    """
    correct, answered = labels == CORRECT, labels != REFUSED
    ranked = np.where(answered, score, np.inf)
    chosen = np.take_along_axis(correct, ranked.argmin(axis=1)[:, None], axis=1)[:, 0]
    return np.stack(
        [
            greedy.astype(np.float64),
            correct.mean(axis=1),
            np.array([_majority(*row) for row in zip(correct, answered, groups, strict=True)]),
            chosen & answered.any(axis=1),
            correct.any(axis=1),
        ]
    )


def bootstrap(values: Floats, *, draws: int = 2000, seed: int = 0, level: float = 0.95) -> BootstrapInterval:
    """The mean over the last dim, (..., question), with percentiles over questions drawn with replacement.

    The same draws serve all rows, so that differences of rows are paired. NaN where there is no question.
    """
    count = values.shape[-1]
    if count == 0:
        nothing = np.full(values.shape[:-1], np.nan)
        return BootstrapInterval(nothing, nothing, nothing)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws) / count
    means = values @ drawn.T  # (..., draw)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return BootstrapInterval(values.mean(axis=-1), low, high)


def _majority(correct: NDArray[np.bool_], answered: NDArray[np.bool_], groups: Ints) -> float:
    """Correctness of the largest group of answers: the share that is correct, since equal answers can have different labels."""
    if not answered.any():
        return 0.0
    found, first, sizes = np.unique(groups[answered], return_index=True, return_counts=True)
    largest = min(range(len(found)), key=lambda index: (-sizes[index], first[index]))
    return float(correct[answered][groups[answered] == found[largest]].mean())
