"""Which tokens: one way to say it for instruments and interventions alike.

| given                     | means                                                                            |
|---------------------------|----------------------------------------------------------------------------------|
| "all"                     | every real token of the pass                                                     |
| "last", "first"           | the last / first real token of each example                                      |
| "decode", "prompt"        | tokens of decode steps (a pass on top of a cache) / tokens of the first pass      |
| 5, -1, [3, -2]            | counted from each example's first real token, or from its end                    |
| LongTensor (batch, n)     | indices into the pass's tokens, row by row; -1 stands for "none here"            |

Padding never counts as a token. In a decode step a non-negative number is a place in the whole sequence, so it is
found only in the step that makes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import DataError

Positions = str | int | Sequence[int] | Tensor

NAMES = ("all", "last", "first", "decode", "prompt")


def check_positions(positions: Positions) -> Positions:
    """The same positions, or an error that says what is possible."""
    if isinstance(positions, str) and positions not in NAMES:
        raise DataError(f"positions are {', '.join(NAMES)}, a number, a list of numbers or a tensor; got {positions!r}")
    return positions


def position_mask(positions: Positions, valid: Tensor, start: int) -> Tensor:
    """(batch, query) bool: the chosen tokens of this pass. `valid` as in a frame; `start`: where query 0 stands."""
    if isinstance(positions, str):
        decoding = start > 0
        if positions == "all" or positions == ("decode" if decoding else "prompt"):
            return valid
        if positions in ("decode", "prompt"):
            return torch.zeros_like(valid)
    index = position_index(positions, valid, start)  # (batch, n), -1: none
    chosen = torch.zeros(valid.shape[0], valid.shape[1] + 1, dtype=torch.bool, device=valid.device)
    chosen.scatter_(1, index.clamp(min=-1) % (valid.shape[1] + 1), True)
    return chosen[:, :-1]


def position_index(positions: Positions, valid: Tensor, start: int = 0) -> Tensor:
    """(batch, n) long: indices of the chosen tokens in this pass, -1 where an example has no such token."""
    if isinstance(positions, Tensor):
        return positions.to(valid.device)
    if isinstance(positions, str):
        if positions not in ("first", "last"):
            raise DataError(f"positions {positions!r} differ in number between examples; name single tokens instead")
        positions = 0 if positions == "first" else -1
    numbers = torch.tensor([positions] if isinstance(positions, int) else list(positions), device=valid.device)
    count = valid.sum(dim=1, keepdim=True)  # (batch, 1)
    rank = torch.where(numbers < 0, count + numbers, numbers - start)  # place among the real tokens of this pass
    order = torch.argsort(~valid, dim=1, stable=True)  # real tokens first, in order
    index = order.gather(1, rank.clamp(0, valid.shape[1] - 1))
    return torch.where((rank >= 0) & (rank < count), index, -1)
