"""Token sequences and the batches they are shown in.

Batches are padded on the right and run *without* an attention mask: in a causal model later tokens cannot reach
earlier ones, so padding changes nothing, and the fast kernels apply. `valid` says which tokens are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Example:
    """One example: its name, its kind, and its token ids."""

    id: str
    register: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Several examples side by side."""

    places: tuple[int, ...]  # where each row stands in the list the batch was made from
    ids: Tensor  # (batch, token)
    valid: Tensor  # (batch, token) bool


def batches(examples: Sequence[Example], tokens: int, device: torch.device) -> Iterator[Batch]:
    """Batches of at most `tokens` tokens, padding included; examples of like length go together.

    A short row is filled with its own last token (a padding token would make transformers ask for a mask). The cut
    depends on the examples alone, never on the machine, so that a resumed run makes the same batches.
    """
    order = sorted(range(len(examples)), key=lambda place: (-len(examples[place].ids), place))
    while order:
        longest = len(examples[order[0]].ids)
        count = max(1, tokens // max(1, longest))
        rows, order = order[:count], order[count:]
        ids = torch.empty(len(rows), longest, dtype=torch.long)
        valid = torch.zeros(len(rows), longest, dtype=torch.bool)
        for row, place in enumerate(rows):
            own = examples[place].ids
            ids[row] = torch.tensor(own + own[-1:] * (longest - len(own)))
            valid[row, : len(own)] = True
        yield Batch(tuple(rows), ids.to(device), valid.to(device))
