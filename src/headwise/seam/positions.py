"""Which tokens? One notation for instruments and interventions.

| given                     | means                                                                            |
|---------------------------|----------------------------------------------------------------------------------|
| "all"                     | every real token of the pass                                                     |
| "last", "first"           | the last real token of each example in the pass / the first one of its text      |
| "decode", "prompt"        | tokens of decode steps (a pass with a KV cache) / tokens of the first pass       |
| 5, [3, 7]                 | counted from each example's first real token, over prompt and decode steps       |
| -1, [-2, -1]              | counted from the end of each example in the pass                                 |
| LongTensor (batch, n)     | token indices in the first pass, one row per example; -1: none                   |

Padding never counts as a token. Under `generate` a number occurs in one pass only: a decode step has one token, and matches
only its own number.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from headwise.core.errors import DataError
from headwise.seam.instrument import ForwardContext

Positions = str | int | Sequence[int] | Tensor
"""Which tokens: any form of the table."""

NAMES = ("all", "last", "first", "decode", "prompt")
KINDS = "'all', 'last', 'first', 'decode', 'prompt', a number, a list of numbers, or a tensor (batch, n) of indices"


def check_positions(positions: Positions) -> Positions:
    """The same positions, or an error that lists the possible forms."""
    if isinstance(positions, Tensor):
        good = positions.ndim == 2 and not positions.is_floating_point() and positions.dtype != torch.bool
        found = f"a {str(positions.dtype).removeprefix('torch.')} tensor of shape {tuple(positions.shape)}"
    elif isinstance(positions, str):
        good, found = positions in NAMES, repr(positions)
    else:
        numbers = positions if isinstance(positions, Sequence) else [positions]
        good, found = bool(numbers) and all(isinstance(n, Integral) for n in numbers), repr(positions)
    if not good:
        raise DataError(f"positions are {KINDS}; got {found}")
    return positions


def position_mask(positions: Positions, context: ForwardContext) -> Tensor:
    """(batch, query) bool: the chosen tokens of this pass."""
    if isinstance(positions, str) and positions in ("all", "decode", "prompt"):
        chosen = positions == "all" or positions == ("decode" if context.cached else "prompt")
        return context.valid if chosen else torch.zeros_like(context.valid)
    index = position_index(positions, context)  # (batch, n), -1: none
    batch, queries = context.valid.shape
    mask = torch.zeros(batch, queries + 1, dtype=torch.bool, device=context.valid.device)
    mask.scatter_(1, torch.where(index < 0, queries, index), True)
    return mask[:, :-1]


def position_index(positions: Positions, context: ForwardContext) -> Tensor:
    """(batch, n) long: indices of the chosen tokens in this pass, -1 where an example has no such token."""
    valid = context.valid
    if isinstance(positions, Tensor):
        return _given(positions.to(valid.device), context)
    if isinstance(positions, str):
        if positions not in ("first", "last"):
            raise DataError(f"positions {positions!r} differ in number between examples; name single tokens instead")
        positions = 0 if positions == "first" else -1
    numbers = torch.tensor(list(positions) if isinstance(positions, Sequence) else [positions], device=valid.device)
    count = valid.sum(dim=1, keepdim=True)  # (batch, 1)
    rank = torch.where(numbers < 0, count + numbers, numbers - context.before[:, None])  # among the pass's real tokens
    order = torch.argsort(~valid, dim=1, stable=True)  # real tokens first, in order
    index = order.gather(1, rank.clamp(0, valid.shape[1] - 1))
    return torch.where((rank >= 0) & (rank < count), index, -1)


def _given(index: Tensor, context: ForwardContext) -> Tensor:
    batch, queries = context.valid.shape
    if context.cached:
        return torch.full_like(index, -1)
    if len(index) != batch:
        raise DataError(f"positions have {len(index)} rows and the batch has {batch} examples; give one row for each")
    if bool((index >= queries).any()):
        raise DataError(f"positions name token {int(index.max())}, but the batch has {queries} tokens, counted from 0")
    real = context.valid.gather(1, index.clamp(min=0))
    return torch.where((index >= 0) & real, index, -1)
