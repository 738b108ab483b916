"""Attention on matching keys (`ReductionRequest.token_matches`) of many queries: sort by id, so that matches are contiguous.

A query matches earlier keys with the id of its own token. Queries are sorted by id, then by position, and so are keys; the
keys that a block of sorted queries matches are then one stretch,

    from the first key with the first query's id    up to the last query itself

and other keys in it (other ids, later positions) are masked in registers. In a text a block of queries has a stretch of about
as many keys, whatever the length of the text: 1 % of QK^T for 32,768 tokens.

Cost: a sort of T numbers for each list of ids, once per pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from headwise.kernels.triton_reductions import FAR, load_block, log2_logits

MAX_KEY_LISTS = 2  # lists of keys per set of queries
NO_ID = 2**62  # the code of a query without an id: sorted last


@dataclass(frozen=True)
class MatchIds:
    """The ids of queries, and of one or two lists of keys. A negative id matches nothing."""

    query: Tensor  # (batch, query)
    keys: tuple[Tensor, ...]  # (batch, key), each


@dataclass(frozen=True)
class SortedMatch:
    """Several sets of ids, sorted. All int32."""

    queries: Tensor  # (set, batch, query): indices of the sorted queries
    query_ids: Tensor  # (set, batch, query)
    keys: Tensor  # (set, list, batch, key)
    key_ids: Tensor  # (set, list, batch, key)
    low: Tensor  # (set, list, batch, block): the stretch of sorted keys for a block of sorted queries
    high: Tensor  # (set, list, batch, block)


def sort_matches(ids: Sequence[MatchIds], offset: int, block: int) -> SortedMatch:
    """Sort queries and keys; `offset` is the position of the first query, `block` the number of queries per stretch."""
    query = torch.stack([one.query for one in ids]).long()
    key = torch.stack([_key_lists(one.keys) for one in ids]).long()
    own = torch.arange(query.shape[-1], device=query.device) + offset
    position = torch.arange(key.shape[-1], device=query.device)
    span = max(query.shape[-1] + offset, key.shape[-1]) + 1
    query_codes, queries = torch.where(query < 0, NO_ID, query * span + own.clamp(min=0)).sort(dim=-1)
    key_codes, keys = torch.where(key < 0, -1, key * span + position).sort(dim=-1)
    low, high = _stretches(query_codes, key_codes, span, block)
    query_ids = query.gather(-1, queries)
    query_ids = query_ids.masked_fill(query_ids < 0, -2)  # not the id of any key
    parts = (queries, query_ids, keys, key.gather(-1, keys), low, high)
    return SortedMatch(*(part.int().contiguous() for part in parts))


def _key_lists(keys: Sequence[Tensor]) -> Tensor:
    """(list, batch, key); missing lists have no id that matches."""
    return torch.stack([*keys, *[torch.full_like(keys[0], -1)] * (MAX_KEY_LISTS - len(keys))])


def _stretches(query_codes: Tensor, key_codes: Tensor, span: int, block: int) -> tuple[Tensor, Tensor]:
    """(set, list, batch, block), twice: from the first key with the block's first id up to the block's last query."""
    begin = torch.arange(0, query_codes.shape[-1], block, device=query_codes.device).expand(*query_codes.shape[:-1], -1)
    with_id = (query_codes < NO_ID).sum(dim=-1, keepdim=True)
    end = (begin + block).minimum(with_id).clamp(min=1) - 1
    empty = (begin >= with_id)[:, None]
    first = query_codes.gather(-1, begin) // span * span
    last = query_codes.gather(-1, end)
    shape = (-1, key_codes.shape[1], -1, -1)
    low, high = (torch.searchsorted(key_codes, codes[:, None].expand(*shape).contiguous()) for codes in (first, last))
    return low.masked_fill(empty, 0), high.masked_fill(empty, 0)


@triton.jit
def match_mass_kernel(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, QUERIES, QUERY_IDS, KEYS, KEY_IDS, LOW, HIGH, OUT, out_stride, LISTS: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attention on matching keys, for one block of sorted queries, HEADS heads, one set of queries and all its lists of keys.

    A program loops over the stretches of sorted keys; vectors are loaded by index, so nothing is moved in memory. Heads that
    share their keys are held together: fewer queries per tile, hence shorter stretches, and each key is loaded once for all.
    A weight counts where the ids are equal and the key is earlier than the query.
    """
    block, group, item = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    groups = H // HEADS
    b, first = group // groups, group % groups * HEADS
    batch = tl.num_programs(1) // groups
    slot = block * (BM // HEADS) + tl.arange(0, BM) // HEADS
    head = first + tl.arange(0, BM) % HEADS
    inside = slot < TQ
    row = tl.load(QUERIES + (item * batch + b) * TQ + slot, mask=inside, other=0)
    query_id = tl.load(QUERY_IDS + (item * batch + b) * TQ + slot, mask=inside, other=-2)
    own = row + OFFSET
    d = tl.arange(0, BD)
    q = load_block(Q, b, head[:, None], row, d, q_b, q_h, q_t, q_d, TQ, D, True)
    line = (b * H + head) * TQ + row
    lse2 = tl.load(LSE2 + line, mask=inside, other=-FAR)
    for key_list in tl.static_range(LISTS):
        plane = item * LISTS + key_list
        stretch = (plane * batch + b) * tl.num_programs(0) + block
        keys = (plane * batch + b) * TK
        high = tl.load(HIGH + stretch)
        total = tl.zeros([BM, BN], tl.float32)
        for start in range(tl.load(LOW + stretch), high, BN):
            index = start + tl.arange(0, BN)
            inside_stretch = index < high
            key = tl.load(KEYS + keys + index, mask=inside_stretch, other=0)
            key_id = tl.load(KEY_IDS + keys + index, mask=inside_stretch, other=-1)
            k = load_block(K, b, first // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, True)
            s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            s = log2_logits(s, qk_scale, softcap, HAS_CAP) - lse2[:, None]
            visible = (query_id[:, None] == key_id[None, :]) & (key[None, :] < own[:, None])
            if HAS_WINDOW:
                visible = visible & (own[:, None] - key[None, :] < window)
            if HAS_VALID:
                visible = visible & (tl.load(VALID + b * TK + key) != 0)[None, :]
            total += tl.exp2(tl.where(visible, s, FAR))
        tl.store(OUT + plane * out_stride + line, tl.sum(total, 1), mask=inside)
