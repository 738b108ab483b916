"""Where a sequence repeats itself: the places an induction or a duplicate-token head would look at."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.kernels import Pairs


def repeats(ids: Tensor, valid: Tensor | None = None) -> tuple[Pairs, Pairs]:
    """Duplicate and induction places of token ids (batch, token).

    For query i and every earlier j with the same token: duplicate looks at j; induction at j + 1, the token that
    followed it last time (left out where that is i itself).

        tokens     a b c a b          query 3 (a): duplicate 0, induction 1
                   0 1 2 3 4          query 4 (b): duplicate 1, induction 2
    """
    same = (ids[:, :, None] == ids[:, None, :]).tril(-1)
    if valid is not None:
        same &= valid[:, :, None] & valid[:, None, :]
    batch, query, key = same.nonzero(as_tuple=True)
    follows = key + 1 < query
    return Pairs(batch, query, key), Pairs(batch[follows], query[follows], key[follows] + 1)


def has_pairs(pairs: Pairs, shape: torch.Size | tuple[int, int], device: torch.device) -> Tensor:
    """(batch, token) bool: the queries that have any place to look at."""
    found = torch.zeros(*shape, dtype=torch.bool, device=device)
    found[pairs.batch, pairs.query] = True
    return found
