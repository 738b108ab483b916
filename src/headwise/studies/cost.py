"""What does a study cost? Forward passes, work besides them, and numbers stored, before anything is loaded.

Matrix work is counted: 2 x parameters x tokens, and one additional QK^T for the reductions. A study takes longer than its
matrix work alone (few tokens per pass while decoding, statistics of every row while reading heads): a factor per study
(`slowdown`), plus seconds for what is not matrix work (`fitting`). Both are set so that each study of the default model comes
out at the time it took on two quiet cores at 180 Gflop/s; on a GPU they are an extrapolation. Each study's own cost function
is in its ``spec.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = [
    "ANSWER_TOKENS", "DECODE_PASSES", "PROMPT_TOKENS", "SHARED_PROMPT_TOKENS", "PlannedInputs", "StudyCost", "forward_flops",
]  # fmt: skip

PROMPT_TOKENS, SHARED_PROMPT_TOKENS, ANSWER_TOKENS = (
    53,
    24,
    17,
)  # of a packaged question in the default model's chat template
DECODE_PASSES = 33  # passes per batch of answers: the prompts, then one per token of the longest answer


class PlannedInputs(NamedTuple):
    """The sizes of what the model will be shown."""

    passage_tokens: tuple[int, ...] = ()  # estimated tokens of each passage
    questions: int = 0
    step_questions: int = 0  # questions that are worked out in steps
    steps: int = 0
    functions: int = 0  # cognitive functions of these steps
    reference: bool = False  # whether a second model is compared with


class StudyCost(NamedTuple):
    """The cost of one study."""

    examples: int
    tokens: int
    flops: float
    batch_tokens: int  # per forward pass
    stored: int  # numbers in the atlas, four bytes each
    fitting: float = 0.0  # seconds besides the forward passes
    slowdown: float = 1.25  # relative to its matrix work alone
    unit: str = "examples"  # what the examples are
    passes_per_batch: int = 1  # one, plus one per decoded token
    shard: int = 64  # examples per commit
    stored_per_example: int = 0  # numbers that its shards hold until the study is finalized; 0: what the atlas stores

    @property
    def passes(self) -> int:
        """How often all weights are read."""
        return -(-self.tokens // max(1, self.batch_tokens)) * self.passes_per_batch if self.tokens else 0

    @property
    def shards(self) -> int:
        """Tasks that can run in parallel."""
        return max(1, -(-self.examples // self.shard))

    @property
    def shard_bytes(self) -> int:
        """Disk space of all shards until the study is finalized."""
        return 4 * (self.stored_per_example * self.examples if self.stored_per_example else self.stored)


def forward_flops(card: Any, lengths: Sequence[int]) -> float:
    """Matrix work of forward passes over texts of these lengths, with one additional QK^T; ``card``: a `ModelCard`."""
    embedding = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    pairs = sum(length * length / 2 for length in lengths)
    heads = sum(layer.heads * (2 * layer.head_dim + layer.value_dim) for layer in card.per_layer)
    return 2.0 * (card.parameters - embedding) * sum(lengths) + 2.0 * pairs * heads
