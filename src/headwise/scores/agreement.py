"""How much do sampled answers share with each other, and with the answer that was given? Scores of texts alone.

With s and s' two samples of K, r the answer that was given, and words as in `corpora.normalisation`:

| score | formula | source |
|-------|---------|--------|
| Lexical similarity | -mean over pairs of Rouge-L(s, s'), the F1 of the longest common subsequence of words | Fomicheva; Kuhn |
| Degree matrix | 1/K² Σ_s (K - Σ_s' w(s, s')),  w = Jaccard similarity of the words | Lin et al., arXiv 2305.19187 |
| Similarity eigenvalues | Σ_k max(0, 1 - λ_k), λ of the normalised Laplacian of w: a soft number of meanings | Lin et al. |
| SelfCheck | share of samples that do not say what r says (the groups of ``semantic_entropy``) | Manakul et al. |
| SelfCheck, words | max over the words of r of -log p(word), p a unigram model of all samples and r | Manakul et al. |

SelfCheckGPT compares sentences of a passage by a question-answering or entailment model or by n-grams; answers here are one
sentence, compared as a whole.

Readings: ``answer`` (example,) and ``sample`` (example, draw), texts; ``group`` (example, draw) and ``answer_group``
(example,), -1 where no sample says what the answer says. Cost: K more answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import log

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DRAW, EXAMPLE
from headwise.corpora.normalisation import words
from headwise.scores.score import score
from headwise.scores.semantic_entropy import LIN
from headwise.scores.token_probabilities import FOMICHEVA, SELFCHECK

Floats = NDArray[np.float64]
Words = tuple[str, ...]


def rouge_l(one: Sequence[str], other: Sequence[str]) -> float:
    """The F1 of the longest common subsequence; two empty texts are equal.

    >>> rouge_l("the big red dog".split(), "the red cat".split())  # two words of four, and of three
    0.5714285714285714
    """
    if not one or not other:
        return float(not one and not other)
    lengths = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, against in enumerate(other, 1):
            before, lengths[place] = (
                lengths[place],
                before + 1 if word == against else max(lengths[place], lengths[place - 1]),
            )
    return 2 * lengths[-1] / (len(one) + len(other))


def jaccard(one: Sequence[str], other: Sequence[str]) -> float:
    """Shared words over all words; two empty texts are equal.

    >>> jaccard(["red", "dog"], ["red", "cat"])
    0.3333333333333333
    """
    every = set(one) | set(other)
    return len(set(one) & set(other)) / len(every) if every else 1.0


def similarities(texts: Sequence[Words], similarity: Callable[[Words, Words], float]) -> Floats:
    """(text, text): symmetric, 1 on the diagonal."""
    found = np.eye(len(texts))
    for one, other in combinations(range(len(texts)), 2):
        found[one, other] = found[other, one] = similarity(texts[one], texts[other])
    return found


def degree_matrix(similarity: Floats) -> float:
    """Lin et al.'s U_deg of one matrix of similarities.

    >>> degree_matrix(np.ones((3, 3))), round(degree_matrix(np.eye(3)), 3)
    (0.0, 0.667)
    """
    count = len(similarity)
    return float((count - similarity.sum(axis=1)).sum() / count**2)


def similarity_eigenvalues(similarity: Floats) -> float:
    """Lin et al.'s U_eigv of one matrix of similarities: 1 for equal texts, K for K texts that share nothing.

    >>> round(similarity_eigenvalues(np.ones((3, 3))), 6), round(similarity_eigenvalues(np.eye(3)), 6)
    (1.0, 3.0)
    """
    scale = 1 / np.sqrt(similarity.sum(axis=1))
    eigenvalues = np.linalg.eigvalsh(np.eye(len(similarity)) - scale[:, None] * similarity * scale)
    return float(np.maximum(0.0, 1 - eigenvalues).sum())


@score("Lexical similarity", needs=("sample",), cost="samples", paper=FOMICHEVA)
def lexical_similarity(readings: xr.Dataset) -> Floats:
    """Minus the mean Rouge-L of two samples.

    >>> lexical_similarity(xr.Dataset({"sample": (("example", "draw"), [["in Rome", "in Rome"], ["Rome", "in Paris"]])}))
    array([-1., -0.])
    """
    pairs = np.triu_indices(readings.sizes[DRAW], 1)
    return np.array([-similarities(texts, rouge_l)[pairs].mean() for texts in _samples(readings)])


@score("Degree matrix", needs=("sample",), cost="samples", paper=LIN)
def degree_matrix_score(readings: xr.Dataset) -> Floats:
    """How far the samples are from each other, by shared words."""
    return np.array([degree_matrix(similarities(texts, jaccard)) for texts in _samples(readings)])


@score("Similarity eigenvalues", needs=("sample",), cost="samples", paper=LIN)
def similarity_eigenvalues_score(readings: xr.Dataset) -> Floats:
    """The soft number of meanings among the samples."""
    return np.array([similarity_eigenvalues(similarities(texts, jaccard)) for texts in _samples(readings)])


@score("SelfCheck", needs=("group", "answer_group"), cost="samples", paper=SELFCHECK)
def selfcheck(readings: xr.Dataset) -> xr.DataArray:
    """The share of samples that do not say what the answer says.

    >>> groups, own = (("example", "draw"), [[0, 0, 1, 2], [0, 1, 2, 3]]), ("example", [0, -1])
    >>> selfcheck(xr.Dataset({"group": groups, "answer_group": own}))
    array([0.5, 1. ])
    """
    return (readings["group"] != readings["answer_group"]).mean(DRAW)


@score("SelfCheck, words", needs=("sample", "answer"), cost="samples", paper=SELFCHECK)
def selfcheck_words(readings: xr.Dataset) -> Floats:
    """The surprise of the answer's rarest word under a unigram model of the samples and the answer.

    >>> readings = xr.Dataset({"sample": (("example", "draw"), [["Rome", "Rome"]]), "answer": ("example", ["Rome"])})
    >>> selfcheck_words(readings), selfcheck_words(readings.assign(answer=("example", ["Paris"]))).round(3)
    (array([0.]), array([1.099]))
    """
    return np.array([
        _surprise(words(str(answer)), texts)
        for answer, texts in zip(readings["answer"].values, _samples(readings), strict=True)
    ])  # fmt: skip


def _surprise(answer: Words, samples: Sequence[Words]) -> float:
    counts = Counter(answer)
    for text in samples:
        counts.update(text)
    return max((log(counts.total() / counts[word]) for word in answer), default=0.0)


def _samples(readings: xr.Dataset) -> Iterator[list[Words]]:
    """The words of the samples of each question."""
    for row in readings["sample"].transpose(EXAMPLE, DRAW).values:
        yield [words(str(text)) for text in row]
