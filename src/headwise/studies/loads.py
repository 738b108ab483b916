"""What each study asks of a machine: passes through the model, fits beside them, numbers kept.

Matrix work is counted: 2 x parameters x tokens, and one QK^T more for the reductions. What is not matrix work (tests and
fitted detectors, on one core) is a power of the number of answers, measured on two cores of a laptop-class machine.

This module knows neither the speed of a machine nor how a study is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwise.corpora import Passages
from headwise.model import DEFAULT, ModelCard
from headwise.studies.circuits.options import CircuitsOptions
from headwise.studies.patterns import PatternsOptions
from headwise.studies.profile import ProfileOptions
from headwise.studies.sparsity.options import SparsityOptions

__all__ = ["LOADS", "Load", "Shown"]

CHARACTERS_PER_TOKEN = 3.4  # of the packaged passages under the default tokenizer; texts without a tokenizer at hand
PROMPT, ANSWER = 70, 12  # tokens of a packaged question in the default model's chat, and of its answer
STATISTICS = 11
PATTERN, NUMBERS, PIXELS = 128, 8, 64 * 64 + 32 * 32  # of the patterns: tokens a prompt, numbers and pixels a head
POSITIONS, SITES, SELF_JUDGEMENT = 15, 2, 30  # of probing; tokens of the question whether the answer is true
SAMPLES = 30  # answers a question
RELATIONS, PAIRS = 25, 3500  # packaged; different sources under the default tokenizer
STEPS, QUESTION, SAID = 360, 170, 24  # steps; tokens of a question with its steps; of an answer, said and read again
FUNCTIONS, MASKED = 8, 180  # functions; times that steps of one are asked again with heads changed
TASK_TOKENS = (8, 11, 11, 6, 5)  # of the prompts of circuits under the default tokenizer
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


def _patterns(card: ModelCard, shown: Shown) -> Load:
    subjects = 2 if card.id == DEFAULT else 1  # a second model, where an adapter ships for the first
    options, heads = PatternsOptions(), card.layers * card.heads
    texts = [min(PATTERN, card.max_positions or PATTERN)] * (options.prompts * subjects)
    logits = 2.0 * card.hidden_size * card.vocabulary_size * sum(texts)
    fitting = 6.0 * subjects * heads / 270  # beside the passes: maps made small, and compared
    kept = heads * subjects * (PIXELS // 2 + NUMBERS * (options.prompts + 8))
    return Load(options.prompts, sum(texts), _passes(card, texts) + logits, options.batch_tokens, kept, fitting)


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


def _functions(card: ModelCard, shown: Shown) -> Load:
    texts = [QUESTION] * (STEPS // 4) + [SAID] * STEPS
    heads = card.layers * card.heads
    fitting = 35.0 * heads / 270  # eight joint probes, each head alone
    kept = heads * STEPS * card.per_layer[0].value_dim
    return Load(STEPS // 4, sum(texts), _passes(card, texts), min(32 * QUESTION, sum(texts)), kept, fitting)


def _function_masking(card: ModelCard, shown: Shown) -> Load:
    texts = [QUESTION // 2] * (FUNCTIONS * 12) + [SAID] * (FUNCTIONS * MASKED)  # a step costs twice its matrix work
    return Load(FUNCTIONS + 1, sum(texts), _passes(card, texts), 64 * SAID, FUNCTIONS * MASKED * 8)


def _circuits(card: ModelCard, shown: Shown) -> Load:
    """Plain passes; and those in which each head has an input of its own, three times as dear."""
    options, tasks = CircuitsOptions(), TASK_TOKENS
    plain = (18 * options.measuring + options.checked * options.ranking) * sum(tasks)
    wide = (17 * options.measuring + (2 + 3 * options.steps) * options.ranking) * sum(tasks)
    tokens = plain + 3 * wide
    kept = card.layers * card.heads * len(tasks) * 3
    return Load(len(tasks), tokens, _passes(card, [1] * tokens), min(options.batch_tokens, tokens), kept)


def _sparsity(card: ModelCard, shown: Shown) -> Load:
    options = SparsityOptions()
    texts = [options.tokens] * options.prompts * (1 + len(options.rules))
    kept = card.layers * card.heads * (3 + 5 * len(options.rules))
    return Load(options.prompts, sum(texts), 1.5 * _passes(card, texts), options.batch_tokens, kept)


LOADS: dict[str, Callable[[ModelCard, Shown], Load]] = {
    "profile": _profile,
    "patterns": _patterns,
    "answers": _answers,
    "spectral": _spectral,
    "probing": _probing,
    "samples": _samples,
    "relations": _relations,
    "relation_validation": _relation_validation,
    "functions": _functions,
    "function_masking": _function_masking,
    "circuits": _circuits,
    "sparsity": _sparsity,
}


def _passes(card: ModelCard, lengths: Sequence[int]) -> float:
    """The weights once a token; QK^T and PV of the forward pass and one more QK^T, half of each T x T visible."""
    embedding = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    pairs = sum(length * length / 2 for length in lengths)
    heads = sum(layer.heads * (2 * layer.head_dim + layer.value_dim) for layer in card.per_layer)
    return 2.0 * (card.parameters - embedding) * sum(lengths) + 2.0 * pairs * heads
