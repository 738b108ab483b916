"""A task's pairs on a model: prompts as tensors, the pass over them, and how far the right tokens lie above the wrong.

    score = logsumexp(logits of the right tokens) - logsumexp(logits of the wrong ones), at the last token

With one token on each side that is their logit difference. It is over 0 where the model holds right likelier than wrong.

This module does not know heads or edges.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.corpora import TaskPairs
from headwise.seam import Structure

__all__ = ["Bench"]


class Bench:
    """The pairs of one task as a model takes them."""

    def __init__(self, structure: Structure, pairs: TaskPairs):
        self.structure, self.pairs = structure, pairs
        self.clean = torch.tensor(pairs.clean, device=structure.device)  # (prompt, token)
        self.corrupt = torch.tensor(pairs.corrupt, device=structure.device)
        self.right, self.wrong = _padded(pairs.right, structure.device), _padded(pairs.wrong, structure.device)
        last_only = "logits_to_keep" in inspect.signature(structure.hf.forward).parameters
        self.options: dict[str, Any] = {"use_cache": False} | ({"logits_to_keep": 1} if last_only else {})

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def tokens(self) -> int:
        """Of a prompt."""
        return self.clean.shape[1]

    def only(self, places: Sequence[int]) -> Bench:
        """Some of the pairs."""
        return Bench(self.structure, self.pairs.only(places))

    def chunks(self, rows: int) -> list[Bench]:
        """The pairs, at most so many at a time."""
        return [self.only(range(len(self))[start : start + rows]) for start in range(0, len(self), rows)]

    def logits(self, ids: Tensor) -> Tensor:
        """(row, vocabulary) of the token after the last."""
        hf: Any = self.structure.hf
        logits: Tensor = hf(input_ids=ids, **self.options).logits
        return logits[:, -1].float()

    def score(self, logits: Tensor) -> Tensor:
        """(row,); the rows are the prompts in order, any number of times over."""
        times = len(logits) // len(self)
        sides = []
        for index in (self.right, self.wrong):
            index = index.repeat(times, 1)
            found = logits.gather(1, index.clamp(min=0)).masked_fill(index < 0, -torch.inf)
            sides.append(found.logsumexp(dim=1))
        return sides[0] - sides[1]

    @torch.no_grad()
    def scores(self, *, corrupt: bool = False) -> Tensor:
        """(prompt,) of the model as it is."""
        return self.score(self.logits(self.corrupt if corrupt else self.clean))


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(row, most), -1 behind a short row's end."""
    width = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], device=device)
