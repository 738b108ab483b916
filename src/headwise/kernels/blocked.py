"""All reductions in one pass over blocks of query rows; no T x T tensor is ever held.

For rows [i0, i1) the keys they can see form a block of at most `BLOCK` numbers, over the heads and examples worked on
together. Each block is made (`logweights`), shown to the reducers as log-weights, turned to weights in place, shown
again (`reducers`), and overwritten by the next.

Cost: one QK^T product and one exponential per visible pair, plus a light pass for each further reduction. Memory:
O(BLOCK), whatever T. A block never crosses the causal edge by more than its own height. Query heads that share a kv
head share one product, so keys are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions
from headwise.kernels.logweights import FLOOR, LogWeights
from headwise.kernels.reducers import Block, Reducer, reducers_for

BLOCK = 1_200_000  # numbers in a block: about 5 MB, so that a block stays in a CPU's cache between passes
BLOCK_ON_DEVICE = 64_000_000
LEAST_ROWS = 16  # a lower block would spend its time on calls


def reduce(attention: Attention, wanted: ReductionRequest, *, block: int | None = None) -> Reductions:
    """All that is wanted, streamed. `block` bounds the numbers held at once; results do not depend on it."""
    reducers = reducers_for(wanted, attention)
    if block is None:
        block = BLOCK if attention.q.device.type == "cpu" else BLOCK_ON_DEVICE
    for batch, heads in _parts(attention, block):
        for part in _blocks(attention, batch, heads, block, reducers):
            _show(part, reducers)
    out = Reductions()
    for reducer in reducers:
        reducer.finish(out)
    return out


def _show(block: Block, reducers: list[Reducer]) -> None:
    for reducer in reducers:
        reducer.see_logs(block)
    torch.exp(block.logs.clamp_(min=FLOOR), out=block.weights)
    for reducer in reducers:
        reducer.see_weights(block)


def _parts(attention: Attention, block: int) -> Iterator[tuple[slice, slice]]:
    """Slices of (batch, kv_head), each so small that a block of it has LEAST_ROWS rows."""
    batch, kv_heads, keys, _ = attention.k.shape
    rows = min(LEAST_ROWS, attention.q.shape[2])
    room = max(1, block // (rows * keys * attention.group))  # (batch, kv_head) items whose block fits
    kv_step = min(room, kv_heads)
    for b in range(0, batch, max(1, room // kv_heads)):
        for h in range(0, kv_heads, kv_step):
            yield slice(b, min(batch, b + max(1, room // kv_heads))), slice(h, min(kv_heads, h + kv_step))


def _blocks(attention: Attention, batch: slice, heads: slice, block: int, reducers: list[Reducer]) -> Iterator[Block]:
    """The blocks of one part, from the first query to the last."""
    keep_logs = any(reducer.needs_logs for reducer in reducers)
    scratch = any(reducer.needs_scratch for reducer in reducers)
    mask, group = attention.mask, attention.group
    queries, keys = attention.q.shape[2], attention.k.shape[2]
    items = (batch.stop - batch.start) * (heads.stop - heads.start) * group
    height = min(queries, max(LEAST_ROWS, min(block // (items * keys), queries // 8, 256)))
    source = LogWeights(attention, batch, heads, height)
    second = torch.empty_like(source.buffer) if keep_logs or scratch else source.buffer
    query_heads = slice(heads.start * group, heads.stop * group)
    for start in range(0, queries, height):
        stop = min(start + height, queries)
        low, high = mask.span(start, stop)
        logs = source.block(start, stop, low, high).flatten(1, 2)
        other = second[: logs.numel()].view_as(logs)
        weights, spare = (other, logs) if keep_logs else (logs, other)
        yield Block(batch, query_heads, start, stop, low, high, mask.offset, logs, weights, spare)
