"""K sampled answers to every question, what they have in common, and what the model's states say of them.

    draws    tokens and log-probabilities, every draw with its own seed (so the batch does not matter)
    groups   which of them say the same: the same exact answer by the rules of `corpora`, or `Entailment`
    hidden   the residual stream at each one's last token, at one layer
    meaning  from the model's own embedding matrix: how similar two answers are, and how much of an answer's meaning hangs on
             each of its tokens (`headwise.scores.relevance`)

Cost: K answers, a pass over each different one after its cached prompt; with an entailment model, a pass of that for each
pair of different answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DRAW, EXAMPLE, TOKEN, WIDTH
from headwise.corpora import exact_answer
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.answers.measure import question_seed
from headwise.studies.decoding import Ids, PrefixCachedDecoder, Reply, Sampling
from headwise.studies.samples.error_types import clusters
from headwise.studies.samples.measure import ProbeSite, last_activations

OTHER_DRAW = "other_draw"  # dim of readings only
_CHUNK = 4096  # rows of the embedding matrix at a time

Floats = NDArray[np.float64]
Grouping = Callable[[str, Sequence[str]], list[int]]  # question and answers -> the number of each one's group


class AnswerSampler:
    """Answers the same prompts again, as the study `answers` did, greedily or sampled.

    Args:
        model: the model.
        decoder: with the beginning that all prompts share.
        limits: tokens of an answer to a question, and to a word problem.
    """

    def __init__(self, model: Model, decoder: PrefixCachedDecoder, limits: tuple[int, int]):
        self._model, self._decoder, self._limits = model, decoder, limits

    def answer(self, prompts: Sequence[Ids], numeric: Sequence[bool], sampling: Sampling | None = None) -> list[Reply]:
        """One answer per prompt."""
        found: dict[int, Reply] = {}
        for kind, limit in enumerate(self._limits):
            rows = [row for row, own in enumerate(numeric) if own == bool(kind)]
            own = sampling and Sampling(sampling.temperature, tuple(sampling.seeds[row] for row in rows))
            if rows:
                ends = ending(self._model, bool(kind))
                replies = self._decoder.generate([prompts[row] for row in rows], limit, ends, own)
                found |= dict(zip(rows, replies, strict=True))
        return [found[row] for row in range(len(prompts))]

    def draw(
        self, names: Sequence[str], prompts: Sequence[Ids], numeric: Sequence[bool], *, count: int, temperature: float,
        seed: int,
    ) -> list[list[Reply]]:  # fmt: skip
        """So many sampled answers per prompt."""
        each = range(count)
        seeds = tuple(question_seed(seed, f"{name}#{draw}") for name in names for draw in each)
        replies = self.answer(
            [prompt for prompt in prompts for _ in each], [kind for kind in numeric for _ in each],
            Sampling(temperature, seeds),
        )  # fmt: skip
        return [replies[start : start + count] for start in range(0, len(replies), count)]


def exact_groups(question: str, answers: Sequence[str]) -> list[int]:
    """Which answers say the same: those with the same exact answer, but for case, articles, accents and the like.

    >>> exact_groups("What is the capital of France?", ["Paris", "The capital of France is Paris.", "It is Lyon."])
    [0, 0, 1]
    """
    exact = []
    for text in answers:
        span = exact_answer(question, text)
        exact.append(text if span is None else text[slice(*span)])
    return clusters(exact)


class Meanings:
    """Similarity and relevance from the model's own embeddings of tokens, less their mean over the vocabulary."""

    def __init__(self, model: Model):
        self._embed: Any = model.hf.get_input_embeddings()
        self._device, self._size = model.device, model.card.vocabulary_size
        self._mean: torch.Tensor | None = None

    @torch.no_grad()
    def _vectors(self, ids: Ids) -> Floats:
        """(token, width)."""
        if self._mean is None:
            rows = torch.arange(self._size, device=self._device)
            sums = [self._embed(part).double().sum(dim=0) for part in rows.split(_CHUNK)]
            self._mean = torch.stack(sums).sum(dim=0) / self._size
        found = self._embed(torch.tensor(ids, dtype=torch.long, device=self._device)).double() - self._mean
        return np.asarray(found.cpu().numpy(), dtype=np.float64)

    def relevance(self, ids: Ids, width: int) -> Floats:
        """(width,): of each token, 1 - the similarity of the text with and without it; NaN after the last."""
        found = np.full(width, np.nan)
        if ids:
            found[: len(ids)] = token_relevance(self._vectors(ids))
        return found

    def similarity(self, texts: Sequence[Ids]) -> Floats:
        """(text, text): the cosine of their mean embeddings; equal texts have 1, one without tokens 0 with others."""
        means = np.stack([self._vectors(ids).mean(axis=0) if ids else np.zeros(self._width) for ids in texts])
        found = cosines(means, means)
        return np.where([[one == other for other in texts] for one in texts], 1.0, found)

    @property
    def _width(self) -> int:
        return int(self._embed(torch.zeros(1, dtype=torch.long, device=self._device)).shape[-1])


def token_relevance(vectors: Floats) -> Floats:
    """(token,): 1 - the cosine of the mean of all vectors (token, width) and that of all others; 1 for a single one.

    >>> token_relevance(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).round(3)
    array([0.051, 0.051, 0.106])
    """
    count = len(vectors)
    if count == 1:
        return np.ones(1)
    others = (vectors.sum(axis=0) - vectors) / (count - 1)
    return np.asarray(1 - cosines(others, vectors.mean(axis=0)[None])[:, 0])


def cosines(one: Floats, other: Floats) -> Floats:
    """(row, row), negative ones as 0.

    >>> cosines(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [-1.0, 0.0]]))
    array([[1., 0.]])
    """
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
    return np.asarray(np.clip(one @ other.T / np.maximum(lengths, 1e-300), 0.0, 1.0))


def sample_readings(
    model: Model, structure: Structure, drawn: Sequence[Sequence[Reply]], prompts: Sequence[Ids], *, questions: Sequence[str],
    answers: Sequence[str], grouping: Grouping, meanings: Meanings, layer: int, prefix: Ids, width: int,
) -> xr.Dataset:  # fmt: skip
    """The readings of the draws (question, draw); ``answers``: those that were given, grouped with their samples."""
    texts = [[text_of(model, reply.ids) for reply in row] for row in drawn]
    groups, own = [], []
    for question, answer, row in zip(questions, answers, texts, strict=True):
        *found, given = grouping(question, [*row, answer])
        groups.append(found)
        own.append(given if given in found else -1)
    logprobs = np.full((len(drawn), len(drawn[0]), width), np.nan)
    relevance = logprobs.copy()
    for place, replies in enumerate(drawn):
        for draw, reply in enumerate(replies):
            logprobs[place, draw, : len(reply.ids)] = reply.logprobs
            relevance[place, draw] = meanings.relevance(reply.ids, width)
    similar = np.stack([meanings.similarity([reply.ids for reply in row]) for row in drawn])
    return xr.Dataset(
        {
            "sample": ((EXAMPLE, DRAW), np.array(texts, dtype=object)),
            "group": ((EXAMPLE, DRAW), np.array(groups, dtype=np.int64)),
            "answer_group": (EXAMPLE, np.array(own, dtype=np.int64)),
            "sample_logprobs": ((EXAMPLE, DRAW, TOKEN), logprobs),
            "sample_relevance": ((EXAMPLE, DRAW, TOKEN), relevance),
            "sample_similarity": ((EXAMPLE, DRAW, OTHER_DRAW), similar),
            "sample_hidden": ((EXAMPLE, DRAW, WIDTH), _hidden(model, structure, drawn, prompts, layer, prefix)),
        }
    )


def _hidden(
    model: Model,
    structure: Structure,
    drawn: Sequence[Sequence[Reply]],
    prompts: Sequence[Ids],
    layer: int,
    prefix: Ids,
) -> NDArray[np.float32]:
    """(question, draw, width): at the last token of every sample; equal samples of a question are read once."""
    every = [(prompt, reply.ids) for prompt, row in zip(prompts, drawn, strict=True) for reply in row]
    different = list(dict.fromkeys(every))
    place = {pair: index for index, pair in enumerate(different)}
    found = last_activations(structure, model, ProbeSite("residual", layer), prefix, *zip(*different, strict=True))
    return found[[place[pair] for pair in every]].reshape(len(drawn), len(drawn[0]), -1)
