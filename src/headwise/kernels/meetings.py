"""Which keys has each block of queries to be shown, where it asks for few? Both are sorted: those who meet lie together.

A query asks for earlier keys by an id, as a match does: those with the id of its own token.
Queries are sorted by id, then by place, and so are keys; the keys that 64 sorted queries ask for are then one stretch,

    from the first key of the first query's id    up to the last query itself

and what lies in it beyond what was asked for (other ids, later places) is struck out in registers. In a text a block of queries
has a stretch of about as many keys, whatever the length of the text: of 32,768 tokens 1 % of QK^T.

Cost: a sort of T numbers for each list of ids, once a pass. This module does not know what is summed over the stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SIDES", "Asking", "Meetings", "meetings"]

SIDES = 2  # lists of keys that queries are held for
NOBODY = 2**62  # the code of a query that asks for nothing: it is sorted last


@dataclass(frozen=True)
class Asking:
    """Queries that ask for keys by id, in one list of keys or in two; an id below nought asks for nothing, and is nobody's."""

    query: Tensor  # (batch, query)
    keys: tuple[Tensor, ...]  # (batch, key), each


@dataclass(frozen=True)
class Meetings:
    """Several askings, sorted. All int32."""

    queries: Tensor  # (asking, batch, query): the queries' places among all queries, sorted
    query_ids: Tensor  # (asking, batch, query): what they ask for
    keys: Tensor  # (asking, side, batch, key)
    key_ids: Tensor  # (asking, side, batch, key)
    low: Tensor  # (asking, side, batch, block): the stretch of sorted keys that a block of sorted queries is shown
    high: Tensor  # (asking, side, batch, block)


def meetings(askings: Sequence[Asking], offset: int, block: int) -> Meetings:
    """Sort them; `offset` is where the first query stands among the keys, `block` how many queries a stretch is for."""
    query = torch.stack([one.query for one in askings]).long()
    key = torch.stack([_sides(one.keys) for one in askings]).long()
    own = torch.arange(query.shape[-1], device=query.device) + offset
    place = torch.arange(key.shape[-1], device=query.device)
    span = max(query.shape[-1] + offset, key.shape[-1]) + 1
    query_codes, queries = torch.where(query < 0, NOBODY, query * span + own.clamp(min=0)).sort(dim=-1)
    key_codes, keys = torch.where(key < 0, -1, key * span + place).sort(dim=-1)
    low, high = _stretches(query_codes, key_codes, span, block)
    query_ids = query.gather(-1, queries)
    query_ids = query_ids.masked_fill(query_ids < 0, -2)  # which is no key's
    parts = (queries, query_ids, keys, key.gather(-1, keys), low, high)
    return Meetings(*(part.int().contiguous() for part in parts))


def _sides(keys: Sequence[Tensor]) -> Tensor:
    """(side, batch, key); a side that is not asked for has no key that anybody requested."""
    return torch.stack([*keys, *[torch.full_like(keys[0], -1)] * (SIDES - len(keys))])


def _stretches(query_codes: Tensor, key_codes: Tensor, span: int, block: int) -> tuple[Tensor, Tensor]:
    """(asking, side, batch, block), twice: from the first key of the block's first id up to the block's last query."""
    begin = torch.arange(0, query_codes.shape[-1], block, device=query_codes.device).expand(*query_codes.shape[:-1], -1)
    asking = (query_codes < NOBODY).sum(dim=-1, keepdim=True)
    end = (begin + block).minimum(asking).clamp(min=1) - 1
    nobody = (begin >= asking)[:, None]
    first = query_codes.gather(-1, begin) // span * span
    last = query_codes.gather(-1, end)
    shape = (-1, key_codes.shape[1], -1, -1)
    low, high = (torch.searchsorted(key_codes, codes[:, None].expand(*shape).contiguous()) for codes in (first, last))
    return low.masked_fill(nobody, 0), high.masked_fill(nobody, 0)
