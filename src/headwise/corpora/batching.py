"""Batches of token sequences.

Batches are padded on the right and run *without* an attention mask: in a causal model later tokens cannot reach
earlier ones, so padding changes nothing, and the fast kernels apply. `valid` marks the real tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.corpora.sequences import Example

__all__ = ["Batch", "batches"]


@dataclass(frozen=True)
class Batch:
    """Several examples, padded to one length."""

    indices: tuple[int, ...]  # of each row in the list the batch was made from
    ids: Tensor  # (batch, token)
    valid: Tensor  # (batch, token) bool


def batches(examples: Sequence[Example], tokens: int, device: torch.device) -> Iterator[Batch]:
    """Batches of at most `tokens` tokens, padding included, of examples of similar length.

    A short row is padded with its own last token (a padding token would make transformers ask for a mask). The batches
    depend on the examples alone, never on the machine, so a resumed run makes the same ones.
    """
    order = sorted(range(len(examples)), key=lambda index: (-len(examples[index].ids), index))
    while order:
        longest = len(examples[order[0]].ids)
        count = max(1, tokens // max(1, longest))
        indices, order = order[:count], order[count:]
        ids = torch.empty(len(indices), longest, dtype=torch.long)
        valid = torch.zeros(len(indices), longest, dtype=torch.bool)
        for row, index in enumerate(indices):
            own = examples[index].ids
            ids[row] = torch.tensor(own + own[-1:] * (longest - len(own)))
            valid[row, : len(own)] = True
        yield Batch(tuple(indices), ids.to(device), valid.to(device))
