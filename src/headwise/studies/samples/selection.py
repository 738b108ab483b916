"""Of K sampled answers, which one to give? The one that a probe selects, against greedy, random and majority.

| strategy | takes                                                                                   |
|----------|-----------------------------------------------------------------------------------------|
| greedy   | the greedy answer, no sample                                                            |
| random   | any sample: the mean over all of them                                                   |
| majority | a sample of the largest group of equal answers; the first group on a tie                |
| probe    | the sample with the lowest probability of "wrong"                                       |
| trust    | a sample of the group of equal answers with the largest sum of P(correct): a weighted vote |
| any      | a correct sample if there is one: the upper bound                                       |

A refusal (recognised by its words) is taken only where there is no other answer, and counts as not correct.

The lowest of K scores is often that of an odd sample: a probe that ranks well within a question can still choose badly.
A sum of probabilities over equal answers has no such outliers, since one sample adds at most 1.

The probe is fitted on all labelled answers to *other* questions: the greedy answers to every question of the study `answers`,
and the samples of those that were sampled. A question weighs 1, shared by its answers. Folds keep the answers to a question
together, so that the probe never saw a question it chooses for. Gains are paired: every strategy's gain over greedy comes
with the confidence interval of the gain itself, percentiles of a bootstrap over questions.

`within_question`: of a wrong and a correct sample *of the same question*, how often does the probe rank them right?

    A = Σ_q U_q / Σ_q N_q,     var A = f Σ_q (U_q - A N_q)² / (Σ_q N_q)²

over the questions with samples of both kinds, with N_q pairs of which U_q are ranked right; f = 1 + K / (K - 1) for K folds
that share training answers (`stats.auroc_by_fold`). This, not the AUROC over all samples, is what selection can use.

Published (Orgad et al., arXiv 2410.02707, TriviaQA): Mistral-7B .63 -> .71, Llama-3-8B .69 -> .73.

Cost: one fit of a probe per fold. No model is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from headwise.core.errors import DataError
from headwise.corpora.matching import CORRECT, REFUSED, WRONG
from headwise.probes.batched_logistic.cells import fit_cells
from headwise.probes.crossvalidation import assign_folds
from headwise.stats import Auroc, auroc_by_fold, auroc_rows
from headwise.stats.auroc import auroc_interval
from headwise.stats.validation import MIN_PER_CLASS

__all__ = ["STRATEGIES", "BootstrapInterval", "GreedyAnswers", "SampleScores", "bootstrap", "picks", "score_samples"]

STRATEGIES = ("greedy", "random", "majority", "probe", "trust", "any")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Activations = NDArray[np.float32]


class GreedyAnswers(NamedTuple):
    """The greedy answers to some questions."""

    activations: Activations
    """(question, feature)"""
    labels: NDArray[np.object_]
    """(question,)"""


class SampleScores(NamedTuple):
    """The probe's scores of all samples."""

    score: Floats
    """(question, sample): probability of "wrong", from a probe that saw no answer to this question"""
    auroc: Auroc
    """over samples that are right or wrong, mean over folds; the interval counts a question once"""
    within: Auroc
    """over pairs of samples of the same question"""
    fold_of: Ints
    """(question,)"""
    fitted_on: tuple[int, int]
    """questions and answers of which all but the own fold's were fitted on"""


class BootstrapInterval(NamedTuple):
    """A mean over questions, with its 95 % confidence interval."""

    value: Floats
    low: Floats
    high: Floats


def score_samples(
    activations: Activations,
    labels: NDArray[np.object_],
    greedy: GreedyAnswers,
    others: GreedyAnswers,
    *,
    folds: int = 5,
    seed: int = 0,
) -> SampleScores:
    """Fit and apply the probe: ``activations`` (question, sample, feature), ``labels`` (question, sample).

    ``greedy``: the greedy answers to the same questions; ``others``: those to questions that were not sampled.
    """
    questions, samples = labels.shape
    wrong, judged = labels == WRONG, np.isin(labels, (CORRECT, WRONG))
    if min(int((labels == kind).sum()) for kind in (CORRECT, WRONG)) < MIN_PER_CLASS:
        raise DataError(
            f"{int((labels == CORRECT).sum())} samples are correct and {int(wrong.sum())} wrong, and at least "
            f"{MIN_PER_CLASS} of each are needed to fit a probe that chooses; sample more questions, or ones of "
            "another difficulty"
        )
    of = np.repeat(np.arange(questions), samples).reshape(questions, samples)
    fold_of = np.full(questions, -1)
    fold_of[of[judged]] = assign_folds(wrong[judged], folds=folds, seed=seed, groups=of[judged])
    fold_of[fold_of < 0] = np.arange((fold_of < 0).sum()) % folds  # only refusals: any fold will do
    has_greedy, has_other = (np.isin(one.labels, (CORRECT, WRONG)) for one in (greedy, others))
    if len(set(others.labels[has_other].tolist())) < 2:
        has_other = np.zeros(len(others.labels), dtype=bool)  # one class alone would be a fold of its own
    rows = [activations[judged], greedy.activations[has_greedy], others.activations[has_other]]
    targets = [wrong[judged], greedy.labels[has_greedy] == WRONG, others.labels[has_other] == WRONG]
    asked = [of[judged], np.flatnonzero(has_greedy), questions + np.arange(int(has_other.sum()))]
    question = np.concatenate(asked)
    row_fold = np.append(fold_of, np.full(int(has_other.sum()), folds))[question]  # all probes are fitted on the others
    weights = 1.0 / np.bincount(question)[question]
    fits = fit_cells(
        np.concatenate(rows)[None], np.concatenate(targets), row_fold, weights=weights, coefficients=True
    )  # fmt: skip
    assert fits.coefficients is not None and fits.intercepts is not None
    own, shift = fits.coefficients[0].astype(np.float64)[fold_of], fits.intercepts[0][fold_of]
    logit = np.einsum("qsd,qd->qs", activations.astype(np.float64), own) + shift[:, None]
    row_folds = np.broadcast_to(fold_of[:, None], wrong.shape)[judged]
    over_all, _ = auroc_by_fold(logit[judged], wrong[judged], row_folds, groups=of[judged])
    within = within_question(logit, labels, inflation=over_all.inflation)
    return SampleScores(expit(logit), over_all, within, fold_of, (len(np.unique(question)), len(question)))


def within_question(score: Floats, labels: NDArray[np.object_], *, inflation: float = 1.0) -> Auroc:
    """AUROC over pairs of a wrong and a correct sample of the same question, (question, sample) each.

    >>> labels = np.array([["wrong", "correct", "correct"], ["wrong", "wrong", "correct"], ["wrong"] * 3], dtype=object)
    >>> float(within_question(np.array([[3.0, 1, 2], [0, 2, 1], [1, 2, 3]]), labels).value)  # 2 of 2 pairs, and 1 of 2
    0.75
    """
    won, pairs = np.zeros(len(labels)), np.zeros(len(labels))
    for question, (own, kinds) in enumerate(zip(score, labels, strict=True)):
        judged = np.isin(kinds, (CORRECT, WRONG))
        wrong = kinds[judged] == WRONG
        pairs[question] = wrong.sum() * (~wrong).sum()
        if pairs[question]:
            won[question] = pairs[question] * float(auroc_rows(own[judged], wrong))
    count = int((pairs > 0).sum())
    if count < 2:
        nothing = np.array(np.nan)
        return Auroc(nothing, nothing, nothing, np.zeros(len(labels)), inflation)
    value = np.array(won.sum() / pairs.sum())
    influence = (won - value * pairs) / pairs.sum() * np.sqrt(count / (count - 1))
    low, high = auroc_interval(value, inflation * np.square(influence).sum(), count)
    return Auroc(value, low, high, influence, inflation)


def picks(labels: NDArray[np.object_], groups: Ints, score: Floats, greedy: NDArray[np.bool_]) -> Floats:
    """(strategy, question): how often each strategy's answer is correct, 0 or 1 except for means.

    ``score``: (question, sample), probability of "wrong".

    >>> labels = np.array([["wrong", "correct", "wrong", "refused"]], dtype=object)
    >>> picks(labels, np.array([[0, 1, 0, 2]]), np.array([[0.7, 0.2, 0.8, 0.0]]), np.array([False]))[:, 0].tolist()
    [0.0, 0.25, 0.0, 1.0, 1.0, 1.0]
    """
    correct, answered = labels == CORRECT, labels != REFUSED
    ranked = np.where(answered, score, np.inf)
    chosen = np.take_along_axis(correct, ranked.argmin(axis=1)[:, None], axis=1)[:, 0]
    rows = list(zip(correct, answered, groups, 1 - score, strict=True))
    return np.stack(
        [
            greedy.astype(np.float64),
            correct.mean(axis=1),
            np.array([_vote(*row[:3], np.ones(len(row[0]))) for row in rows]),
            chosen & answered.any(axis=1),
            np.array([_vote(*row) for row in rows]),
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


def _vote(correct: NDArray[np.bool_], answered: NDArray[np.bool_], groups: Ints, votes: Floats) -> float:
    """Correctness of the group of answers with most votes: the share that is correct, as equal answers can differ in label."""
    if not answered.any():
        return 0.0
    found, first = np.unique(groups[answered], return_index=True)
    total = [float(votes[answered][groups[answered] == group].sum()) for group in found]
    most = min(range(len(found)), key=lambda index: (-total[index], first[index]))
    return float(correct[answered][groups[answered] == found[most]].mean())
