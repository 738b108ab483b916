"""What each study asks of a machine: passes through the model, fits beside them, numbers kept.

Matrix work is counted: 2 x parameters x tokens, and one QK^T more for the reductions. A study takes longer than that work
would by itself: few tokens at a time when answers are said, numbers of every row when heads are read. That is a factor a
study (`slower`); and what is not matrix work (tests and fitted detectors) is a power of the number of answers. Both are such
that a study of the default model comes out at the time it took on two quiet cores of a laptop-class machine, at 180 Gflop/s,
which is what its plain forward pass makes there (4 x 1,024 tokens in 7.3 s): profile 97 s, patterns 33, answers 61, spectral
66, probing 88, relations 50, relation_validation 82, functions 48, function_masking 70. On a GPU they are a guess.

This module knows neither the speed of a machine nor how a study is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwise.corpora import Passages, Steps, packaged_steps
from headwise.model import DEFAULT, ModelCard
from headwise.studies.circuits.options import CircuitsOptions
from headwise.studies.functions import FunctionsOptions
from headwise.studies.functions.choice import Chosen, choose
from headwise.studies.patterns import PatternsOptions
from headwise.studies.profile import ProfileOptions
from headwise.studies.sparsity.options import SparsityOptions

__all__ = ["LOADS", "Load", "Shown"]

CHARACTERS_PER_TOKEN = 3.4  # of the packaged passages under the default tokenizer; texts without a tokenizer at hand
PROMPT, SHARED, ANSWER = (
    53,
    24,
    17,
)  # tokens of a packaged question in the default model's chat; of these the same; answer
STATISTICS = 11
PATTERN, NUMBERS, PIXELS = 128, 8, 64 * 64 + 32 * 32  # of the patterns: tokens a prompt, numbers and pixels a head
POSITIONS, SITES, SELF_JUDGEMENT = 15, 2, 30  # of probing; tokens of the question whether the answer is true
SAMPLES = 30  # answers a question
SPOKEN = 33  # passes of a batch that answers: the prompts, and a token at a time until the longest answer ends
RELATIONS, PAIRS = 25, 3500  # packaged; different sources under the default tokenizer
QUESTION, SAID = 170, 24  # tokens of a question with its steps; of a step's answer, said and read again
MASKED = 180  # times that steps of a function are asked again with heads changed
TASK_TOKENS = (8, 11, 11, 6, 5)  # of the prompts of circuits under the default tokenizer
RANKS = 50  # eigenvalues of a head that are kept, of two kinds, for answers of the usual length
FEATURES = 12  # of the spectral study: six over the whole text, six over the answer


class Shown(NamedTuple):
    """What the model is shown."""

    passages: Passages
    questions: int
    steps: Steps | None = None  # None: the packaged ones

    def chosen(self) -> Chosen:
        """The questions in steps that are asked, as the study itself chooses them."""
        options = FunctionsOptions()
        return choose(self.steps or packaged_steps(), options.steps, options.seed)


class Load(NamedTuple):
    """What a study asks for."""

    examples: int
    tokens: int
    flops: float
    batch_tokens: int  # in one pass
    kept: int  # numbers, four bytes each
    fitting: float = 0.0  # seconds beside the passes
    slower: float = 1.25  # than its matrix work alone
    unit: str = "examples"  # what the examples are
    steps: int = 1  # passes that a batch takes: one, and one more for every token that is said
    shard: int = 64  # examples between two commits
    held: int = 0  # numbers of an example that its shard keeps until the study is done; 0: what the atlas keeps of it

    @property
    def passes(self) -> int:
        """Times that all weights are used."""
        return -(-self.tokens // max(1, self.batch_tokens)) * self.steps if self.tokens else 0

    @property
    def shards(self) -> int:
        """Pieces of work that can be done at the same time."""
        return max(1, -(-self.examples // self.shard))

    @property
    def shard_bytes(self) -> int:
        """On disk until the study is done, all shards together."""
        return 4 * (self.held * self.examples if self.held else self.kept)


def _profile(card: ModelCard, shown: Shown) -> Load:
    options = ProfileOptions()
    limit = min(options.max_tokens, card.max_positions or options.max_tokens)
    texts = [min(limit, round(len(item.text) / CHARACTERS_PER_TOKEN)) for item in shown.passages.items]
    texts += [min(limit, 2 * options.period)] * options.repeats
    kept = card.layers * card.heads * STATISTICS * (len(texts) + 4)
    most = min(options.batch_tokens, sum(texts))
    return Load(
        len(texts), sum(texts), _passes(card, texts), most, kept, slower=2.15, unit="texts", shard=options.shard
    )


def _patterns(card: ModelCard, shown: Shown) -> Load:
    subjects = 2 if card.id == DEFAULT else 1  # a second model, where an adapter ships for the first
    options, heads = PatternsOptions(), card.layers * card.heads
    texts = [min(PATTERN, card.max_positions or PATTERN)] * (options.prompts * subjects)
    logits = 2.0 * card.hidden_size * card.vocabulary_size * sum(texts)
    fitting = 6.0 * subjects * heads / 270  # beside the passes: maps made small, and compared
    kept = heads * subjects * (PIXELS // 2 + NUMBERS * (options.prompts + 8))
    flops, most = _passes(card, texts) + logits, options.batch_tokens
    return Load(
        options.prompts, sum(texts), flops, most, kept, fitting, slower=1.67, unit="prompts", shard=options.shard
    )


def _answers(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT - SHARED + ANSWER] * shown.questions
    most = min(64 * PROMPT, sum(texts))
    return Load(
        len(texts),
        sum(texts),
        _passes(card, texts),
        most,
        250 * len(texts),
        slower=2.25,
        unit="questions",
        steps=SPOKEN,
    )


def _spectral(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT + ANSWER] * shown.questions
    kept = card.layers * card.heads * FEATURES * (len(texts) + 12)
    fitting = 8.2 * (shown.questions / 500) ** 2.2 * card.layers * card.heads / 270
    most = min(4096, sum(texts))
    held = card.layers * (card.heads * (FEATURES + 2 * RANKS) + card.hidden_size)
    flops = _passes(card, texts)
    return Load(len(texts), sum(texts), flops, most, kept, fitting, slower=1.4, unit="answers", held=held)


def _probing(card: ModelCard, shown: Shown) -> Load:
    texts = [PROMPT + ANSWER + SELF_JUDGEMENT] * shown.questions
    cells = card.layers * POSITIONS * SITES
    fitting = 22.0 * (shown.questions / 500) * (cells * card.hidden_size) / (450 * SITES * 576)
    kept = cells * 8 + card.layers * card.heads * 6
    held = (cells + 4 * card.layers) * card.hidden_size + card.layers * card.heads * card.value_dim  # in half precision
    return Load(
        len(texts), sum(texts), _passes(card, texts), min(2048, sum(texts)), kept, fitting, slower=1.1, unit="answers",
        held=held // 2,
    )  # fmt: skip


def _samples(card: ModelCard, shown: Shown) -> Load:
    asked = min(100, shown.questions)
    texts = [2 * ANSWER] * (asked * SAMPLES) + [2 * PROMPT] * asked  # said, then read again
    most = min(64 * PROMPT, sum(texts))
    count = asked * SAMPLES
    return Load(count, sum(texts), _passes(card, texts), most, 100 * count, slower=2.25, unit="answers", steps=SPOKEN)


def _relations(card: ModelCard, shown: Shown) -> Load:
    wide = sum(layer.heads * layer.value_dim for layer in card.per_layer)
    flops = 2.0 * wide * card.vocabulary_size * (card.hidden_size + PAIRS)
    kept = card.layers * card.heads * RELATIONS * 12
    return Load(card.layers, 0, flops, 1, kept, slower=1.3, unit="layers", shard=1)


def _relation_validation(card: ModelCard, shown: Shown) -> Load:
    tokens = (
        RELATIONS * 30 * 12 + 6 * 25 * 6 * 6 * 7
    )  # prompts; tasks x prompts x numbers of heads x draws x tasks read
    kept = card.layers * card.heads * RELATIONS * 4
    return Load(RELATIONS, tokens, _passes(card, [1] * tokens), 2048, kept, slower=1.5, unit="relations")


def _functions(card: ModelCard, shown: Shown) -> Load:
    asked = shown.chosen()
    questions, steps = len(asked.chains), sum(map(len, asked.chains))
    texts = [QUESTION] * questions + [SAID] * steps
    heads = card.layers * card.heads
    fitting = 15.0 * (heads / 270) * (steps / 360)  # joint probes, each head alone
    kept = heads * steps * card.per_layer[0].value_dim
    most = min(32 * QUESTION, sum(texts))
    unit = f"questions of {steps:,} steps"
    said = FunctionsOptions().max_new_tokens + 1
    return Load(
        questions, sum(texts), _passes(card, texts), most, kept, fitting, 1.0, unit, said, FunctionsOptions().shard
    )


def _function_masking(card: ModelCard, shown: Shown) -> Load:
    functions = len(shown.chosen().functions)
    texts = [QUESTION // 2] * (functions * 12) + [SAID] * (functions * MASKED)
    kept, unit = functions * MASKED * 8, "functions, and whole chains"
    said = FunctionsOptions().max_new_tokens + 1
    return Load(
        functions, sum(texts), _passes(card, texts), 64 * SAID, kept, slower=1.4, unit=unit, steps=said, shard=1
    )


def _circuits(card: ModelCard, shown: Shown) -> Load:
    """Plain passes; and those in which each head has an input of its own, three times as dear."""
    options, tasks = CircuitsOptions(), TASK_TOKENS
    plain = (18 * options.measuring + options.checked * options.ranking) * sum(tasks)
    wide = (17 * options.measuring + (2 + 3 * options.steps) * options.ranking) * sum(tasks)
    tokens = plain + 3 * wide
    kept = card.layers * card.heads * len(tasks) * 3
    return Load(
        len(tasks), tokens, _passes(card, [1] * tokens), min(options.batch_tokens, tokens), kept, unit="tasks", shard=1
    )


def _sparsity(card: ModelCard, shown: Shown) -> Load:
    options = SparsityOptions()
    texts = [options.tokens] * options.prompts * (1 + len(options.rules))
    kept = card.layers * card.heads * (3 + 5 * len(options.rules))
    return Load(
        options.prompts,
        sum(texts),
        1.5 * _passes(card, texts),
        options.batch_tokens,
        kept,
        unit="prompts",
        shard=options.shard,
    )


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
