"""What each study asks of a machine: passes through the model, fits beside them, numbers kept.

Matrix work is counted: 2 x parameters x tokens, and one QK^T more for the reductions. What is not matrix work (tests and
fitted detectors, on one core) is a power of the number of answers, measured on two cores of a laptop-class machine.

This module knows neither the speed of a machine nor how a study is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwise.corpora import Passages
from headwise.model import ModelCard
from headwise.studies.profile import ProfileOptions

__all__ = ["LOADS", "Load", "Shown"]

CHARACTERS_PER_TOKEN = 3.4  # of the packaged passages under the default tokenizer; texts without a tokenizer at hand
PROMPT, ANSWER = 70, 12  # tokens of a packaged question in the default model's chat, and of its answer
STATISTICS = 11
POSITIONS, SITES, SELF_JUDGEMENT = 15, 2, 30  # of probing; tokens of the question whether the answer is true
SAMPLES = 30  # answers a question
RELATIONS, PAIRS = 25, 3500  # packaged; different sources under the default tokenizer
FEATURES = 12  # of the spectral study: six over the whole text, six over the answer


class Shown(NamedTuple):
    """What the model is shown."""

    passages: Passages
    questions: int


class Load(NamedTuple):
    """What a study asks for."""

    examples: int
    tokens: int
    flops: float
    batch_tokens: int  # in one pass
    kept: int  # numbers, four bytes each
    fitting: float = 0.0  # seconds of one core beside the passes


def _profile(card: ModelCard, shown: Shown) -> Load:
    options = ProfileOptions()
    limit = min(options.max_tokens, card.max_positions or options.max_tokens)
    texts = [min(limit, round(len(item.text) / CHARACTERS_PER_TOKEN)) for item in shown.passages.items]
    texts += [min(limit, 2 * options.period)] * options.repeats
    kept = card.layers * card.heads * STATISTICS * (len(texts) + 4)
    return Load(len(texts), sum(texts), _passes(card, texts), min(options.batch_tokens, sum(texts)), kept)


def _answers(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT + ANSWER] * shown.questions
    return Load(len(texts), sum(texts), _passes(card, texts), min(64 * PROMPT, sum(texts)), 250 * len(texts))


def _spectral(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT + ANSWER] * shown.questions
    kept = card.layers * card.heads * FEATURES * (len(texts) + 12)
    fitting = 8.2 * (shown.questions / 500) ** 2.2 * card.layers * card.heads / 270
    return Load(len(texts), sum(texts), _passes(card, texts), min(4096, sum(texts)), kept, fitting)


def _probing(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT + ANSWER + SELF_JUDGEMENT] * shown.questions
    cells = card.layers * POSITIONS * SITES
    fitting = 90.0 * (shown.questions / 760) * (cells * card.hidden_size) / (450 * SITES * 576)
    kept = cells * 8 + card.layers * card.heads * 6
    return Load(len(texts), sum(texts), _passes(card, texts), min(2048, sum(texts)), kept, fitting)


def _samples(card: ModelCard, shown: Shown) -> Load:
    texts = [2 * (PROMPT + ANSWER)] * (min(100, shown.questions) * SAMPLES)  # said, then read again
    return Load(len(texts), sum(texts), _passes(card, texts), min(64 * PROMPT, sum(texts)), 100 * len(texts))


def _relations(card: ModelCard, shown: Shown) -> Load:
    wide = sum(layer.heads * layer.value_dim for layer in card.per_layer)
    flops = 2.0 * wide * card.vocabulary_size * (card.hidden_size + PAIRS)
    return Load(card.layers, 0, flops, 1, card.layers * card.heads * RELATIONS * 12)


def _relation_validation(card: ModelCard, shown: Shown) -> Load:
    tokens = (
        RELATIONS * 30 * 12 + 6 * 25 * 6 * 6 * 7
    )  # prompts; tasks x prompts x numbers of heads x draws x tasks read
    return Load(RELATIONS, tokens, _passes(card, [1] * tokens), 2048, card.layers * card.heads * RELATIONS * 4)


LOADS: dict[str, Callable[[ModelCard, Shown], Load]] = {
    "profile": _profile,
    "answers": _answers,
    "spectral": _spectral,
    "probing": _probing,
    "samples": _samples,
    "relations": _relations,
    "relation_validation": _relation_validation,
}


def _passes(card: ModelCard, lengths: Sequence[int]) -> float:
    """The weights once a token; QK^T and PV of the forward pass and one more QK^T, half of each T x T visible."""
    embedding = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    pairs = sum(length * length / 2 for length in lengths)
    heads = sum(layer.heads * (2 * layer.head_dim + layer.value_dim) for layer in card.per_layer)
    return 2.0 * (card.parameters - embedding) * sum(lengths) + 2.0 * pairs * heads
