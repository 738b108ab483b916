"""What do the question and the answer's length say about correctness? Strata to compare within, and question-only features.

Whether an answer is wrong depends on its question: the topic, how hard it is, how long an answer it asks for. A head that
attends differently to questions about dates than to questions about animals then "differs in wrong answers" although it
knows nothing of the error. Two remedies: compare wrong and correct answers only between similar questions (`strata`, for
``headwise.stats.stratified``), and put what the question alone predicts next to what the heads do (`features`).

Strata, the first of these that is suitable:

1. topic x difficulty
2. topic, where no difficulty is known
3. length bands x clusters of the question's words, where there are no topics

and as a `strict` check topic x length band of the answer (without topics: 3. with narrower bands). A stratification is
suitable if at least half of the answers are in strata of `MIN_STRATUM` or more. Nothing here uses a label, an activation or
an attention weight. Clusters: TF-IDF of the words, a truncated singular value decomposition, k-means with a seed; on the
packaged questions two of one cluster share their topic at least four times as often as two at random, so clusters control
for less than a topic does.

Cost: less than a second for 500 questions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import hstack
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from headwise.core.dims import EXAMPLE
from headwise.corpora import packaged_questions
from headwise.corpora.matching import CORRECT, WRONG
from headwise.stats.blas import single_threaded_blas

__all__ = ["QuestionControls", "question_controls"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_STRATUM = 4  # answers: with fewer, strata seldom have both classes
LENGTH_BANDS = 5  # of answer length in tokens, with roughly equal numbers of answers
COARSE_BANDS = 3  # number of length bands when crossed with clusters of words
PER_STRATUM = 12  # target number of answers per coarse band x cluster of words
MAX_CLUSTERS = 24
WORD_COMPONENTS = 64
CLUSTER_COMPONENTS = 16  # the leading ones, by which questions are clustered


@dataclass(frozen=True)
class QuestionControls:
    """What the question alone says. Made by `question_controls`.

    Examples:
        >>> from headwise.corpora import packaged_questions
        >>> items = packaged_questions().sample(480).items
        >>> columns = {"question": [i.question for i in items], "topic": [i.topic for i in items]}
        >>> columns |= {"difficulty": [i.difficulty for i in items], "answer_tokens": [9] * 480, "prompt_tokens": [40] * 480}
        >>> answers = xr.Dataset({name: ("example", values) for name, values in columns.items()})
        >>> controls = question_controls(answers)
        >>> controls.kind, list(controls.features)
        ('topic x difficulty', ['Question: topic', 'Question: topic, difficulty, length', 'Question: words'])
    """

    kind: str
    """how the strata are made, such as "topic x difficulty" """
    strata: Ints
    """(example,): the stratum of every answer, numbered from 0"""
    strict_kind: str
    """how the strata of the strict check are made, such as "topic x length band" """
    strict: Ints
    """(example,)"""
    features: dict[str, Floats]
    """(example, feature) by name: "Question: topic", "Question: topic, difficulty, length" (of the answer, log tokens, and of
    the prompt), "Question: words"; unknown parts are left out of the features and of their names"""

    @property
    def description(self) -> str:
        """A phrase for figures, such as "topic x difficulty (61 strata)"."""
        return f"{self.kind} ({_strata_count(self.strata)})"


def is_judged(answers: xr.Dataset) -> NDArray[np.bool_]:
    """(example,) which answers are correct or wrong, and not empty: all others say nothing about errors."""
    labelled = np.isin(answers["label"].values.astype(str), (CORRECT, WRONG))
    return labelled & (answers["answer_tokens"].values > 0)


@single_threaded_blas
def question_controls(answers: xr.Dataset, seed: int = 0) -> QuestionControls:
    """Strata and question-only features of these answers, made without their labels.

    Args:
        answers: rows of the study `answers`: question, topic, answer_tokens, prompt_tokens and, where known, difficulty.
        seed: of the clusters of words.

    Returns:
        The strata, the stricter strata, and the features.
    """
    topic, difficulty = _texts(answers, "topic"), _difficulty(answers)
    bands, words = length_bands(answers["answer_tokens"].values), _word_components(_texts(answers, "question"), seed)
    per_topic: list[tuple[str, Callable[[], Ints]]] = []
    strict: list[tuple[str, Callable[[], Ints]]] = []
    if len(set(topic)) > 1:
        if len(set(difficulty.tolist())) > 1:
            per_topic.append(("topic x difficulty", lambda: _crossed(topic, difficulty)))
        per_topic.append(("topic", lambda: _crossed(topic)))
        strict.append(("topic x length band", lambda: _crossed(topic, bands)))
    count = min(MAX_CLUSTERS, max(1, len(topic) // (COARSE_BANDS * PER_STRATUM)))
    by_words = functools.cache(lambda: _clusters(words, count, seed))
    coarse = length_bands(answers["answer_tokens"].values, COARSE_BANDS)
    fallback = ("length bands x clusters of the question's words", lambda: _crossed(coarse, by_words()))
    finer = ("narrow length bands x clusters of the question's words", lambda: _crossed(bands, by_words()))
    kind, strata = _first_suitable([*per_topic, fallback])
    strict_kind, strict_strata = _first_suitable([*strict, finer, fallback])
    return QuestionControls(kind, strata, strict_kind, strict_strata, _features(answers, topic, difficulty, words))


def length_bands(tokens: NDArray[np.int64], bands: int = LENGTH_BANDS) -> Ints:
    """(example,): the band of every length; equal lengths share one, and bands have roughly equal numbers of answers.

    >>> length_bands(np.array([3, 3, 3, 4, 9, 30]), 3)
    array([0, 0, 0, 1, 2, 2])
    """
    edges = np.unique(np.quantile(tokens, np.arange(1, bands) / bands, method="lower"))
    return np.searchsorted(edges, tokens, side="left")


def _first_suitable(candidates: Sequence[tuple[str, Callable[[], Ints]]]) -> tuple[str, Ints]:
    """The first in which most answers share their stratum with enough others; else the last."""
    for kind, made in candidates[:-1]:
        strata = made()
        if np.mean(np.bincount(strata)[strata] >= MIN_STRATUM) >= 0.5:
            return kind, strata
    kind, made = candidates[-1]
    return kind, made()


def _crossed(*columns: Iterable[object]) -> Ints:
    """(example,): one stratum for each combination that occurs."""
    found = np.zeros(0, dtype=np.int64)
    for column in columns:
        codes = np.unique(np.asarray(list(column)), return_inverse=True)[1]
        found = codes if found.size == 0 else found * (codes.max() + 1) + codes
    return np.unique(found, return_inverse=True)[1]


def _strata_count(strata: Ints) -> str:
    count = len(np.unique(strata))
    return f"{count} strata" if count != 1 else "one stratum"


# ---- what is known of a question ------------------------------------------------------------------------------------


def _texts(answers: xr.Dataset, name: str) -> list[str]:
    return [str(value) for value in answers[name].values] if name in answers else [""] * answers.sizes[EXAMPLE]


def _difficulty(answers: xr.Dataset) -> Ints:
    """(example,); for packaged questions in Datasets that do not store it, looked up; 0 is unknown."""
    if "difficulty" in answers:
        return answers["difficulty"].values.astype(np.int64)
    known = {item.question: item.difficulty for item in packaged_questions().items}
    return np.array([known.get(text, 0) for text in _texts(answers, "question")], dtype=np.int64)


# ---- features -------------------------------------------------------------------------------------------------------


def _features(answers: xr.Dataset, topic: Sequence[str], difficulty: Ints, words: Floats) -> dict[str, Floats]:
    lengths = [np.log(np.maximum(answers["answer_tokens"].values, 1))]
    if "prompt_tokens" in answers:
        lengths.append(answers["prompt_tokens"].values.astype(np.float64))
    numbers = np.stack(lengths, axis=1)
    topics, levels = _indicators(topic), _indicators(difficulty.tolist())
    parts = {"topic": topics, "difficulty": levels, "length": numbers}
    known = [name for name, part in parts.items() if part.shape[1]]
    found = {"Question: topic": topics} if "topic" in known else {}
    found[f"Question: {', '.join(known)}"] = np.concatenate([parts[name] for name in known], axis=1)
    return found | {"Question: words": words}


def _indicators(values: Sequence[object]) -> Floats:
    """(example, value): 1 where the example has it; no column where all have the same."""
    known, codes = np.unique(np.asarray(values), return_inverse=True)
    return np.eye(len(known))[codes] if len(known) > 1 else np.zeros((len(codes), 0))


def _word_components(texts: Sequence[str], seed: int) -> Floats:
    """(example, component): words, pairs of words and groups of letters, TF-IDF, reduced to a few numbers."""
    if len(set(texts)) < 3:
        return np.zeros((len(texts), 1))
    hashed = [
        HashingVectorizer(n_features=2**14, analyzer=analyzer, ngram_range=ngrams, norm=None, alternate_sign=False)
        for analyzer, ngrams in (("word", (1, 2)), ("char_wb", (3, 4)))
    ]
    counts = hstack([each.fit_transform(texts) for each in hashed]).tocsr()
    components = min(WORD_COMPONENTS, len(set(texts)) - 1)
    return TruncatedSVD(components, random_state=seed).fit_transform(TfidfTransformer().fit_transform(counts))


def _clusters(words: Floats, count: int, seed: int) -> Ints:
    """K-means of the directions of the leading components, in which questions with similar wording are close."""
    leading = words[:, :CLUSTER_COMPONENTS]
    directions = leading / np.maximum(np.linalg.norm(leading, axis=1, keepdims=True), 1e-12)
    count = min(count, len(np.unique(directions, axis=0)))
    return KMeans(count, n_init=4, random_state=seed).fit_predict(directions)
