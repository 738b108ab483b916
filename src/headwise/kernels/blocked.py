"""All reductions in one pass over blocks of query rows; no T x T tensor is ever held.

For rows [i0, i1) the visible keys form a block of at most `BLOCK` numbers, over the heads and examples processed together.
Each block is computed as log-weights, passed to the reducers, converted to weights in place, passed to the reducers again
(`reducers`), and overwritten by the next.

Cost: one QK^T product and one exponential per visible pair, plus a light pass for each further reduction. Memory:
O(BLOCK), whatever T. A block never crosses the causal edge by more than its own height. Query heads that share a kv
head share one product, so keys are not repeated.

Weights below e^FLOOR (2e-35) are raised to it: below that float32 leaves its normal range, where a CPU's exponential
is thirty times slower, and no sum in float32 can tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.kernels.attention import HIDDEN, Attention
from headwise.kernels.contract import ReductionRequest, Reductions
from headwise.kernels.reducers import Block, Reducer, reducers_for

BLOCK = 1_200_000  # numbers per block: about 5 MB, so that a block stays in a CPU's cache between passes
BLOCK_ON_DEVICE = 64_000_000
MIN_BLOCK_ROWS = 16  # with fewer rows the overhead of calls dominates
FLOOR = -80.0  # smallest log-weight


def reduce(attention: Attention, request: ReductionRequest, *, block: int | None = None) -> Reductions:
    """All requested reductions, streamed. `block` bounds the numbers held at once; results do not depend on it."""
    reducers = reducers_for(request, attention)
    if block is None:
        block = BLOCK if attention.q.device.type == "cpu" else BLOCK_ON_DEVICE
    for batch, heads in _parts(attention, block):
        for part in _blocks(attention, batch, heads, block, reducers):
            for reducer in reducers:
                reducer.on_logs(part)
            torch.exp(part.logs.clamp_(min=FLOOR), out=part.weights)
            for reducer in reducers:
                reducer.on_weights(part)
    out = Reductions()
    for reducer in reducers:
        reducer.finish(out)
    return out


def _parts(attention: Attention, block: int) -> Iterator[tuple[slice, slice]]:
    """Slices of (batch, kv_head), each small enough that a block of it has MIN_BLOCK_ROWS rows."""
    batch, kv_heads, keys, _ = attention.k.shape
    rows = min(MIN_BLOCK_ROWS, attention.q.shape[2])
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
    height = min(queries, max(MIN_BLOCK_ROWS, min(block // (items * keys), queries // 8, 256)))
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


class LogWeights:
    """log a_ij for some examples and kv heads, one block of rows at a time, in one reused buffer.

    What is constant over a row or a column is an extra column of q and k, so that one matrix product yields log-weights:

        q' = [q, -lse, 1]        k' = [scale k, 1, key bias]        q' . k' = log a_ij, padding keys hidden

    Without a log-sum-exp from the forward kernel (soft-cap, sinks, explicit masks) it is computed from the block, which holds
    all keys that its rows see. Under a soft-cap the key bias is added after the cap, which would undo it otherwise. In a
    sparse model closed edges are hidden after the log-sum-exp, which needs the logits themselves.
    """

    def __init__(self, attention: Attention, batch: slice, heads: slice, height: int):
        self.mask, self.softcap = attention.mask, attention.softcap
        self.batch, self.heads = batch, heads
        group = attention.group
        query_heads = slice(heads.start * group, heads.stop * group)
        self.sinks = None if attention.sinks is None else attention.sinks[query_heads].float().view(-1, group)
        self.gate = attention.gate
        self.lse_known = attention.lse is not None and attention.softcap is None and attention.gate is None
        with_keys = self.mask.rows_with_keys(attention.q.shape[0])[batch]
        with_keys = with_keys[:, query_heads] if with_keys.shape[1] > 1 else with_keys  # (batch, head or 1, query)
        self.q = attention.q[batch, query_heads].unflatten(1, (-1, group))  # (batch, kv_head, group, query, width)
        k = attention.k[batch, heads].transpose(-1, -2)  # (batch, kv_head, width, key)
        extra_q, extra_k = [], []
        if self.lse_known:
            assert attention.lse is not None
            lse = attention.lse[batch, query_heads].float()
            if self.sinks is not None:
                lse = torch.logaddexp(lse, self.sinks.flatten()[:, None])
            lse = torch.where(with_keys, lse, -HIDDEN)  # rows without keys get no weight
            extra_q.append(-lse.unflatten(1, (-1, group)))
            extra_k.append(torch.ones_like(k[:, :, 0]))
        bias = self.mask.key_bias()
        self.late_bias = None if bias is None or self.softcap is None else bias[batch, None, None, None]
        if bias is not None and self.softcap is None:
            extra_q.append(torch.ones_like(self.q[..., 0]))
            extra_k.append(bias[batch, None].expand(-1, k.shape[1], -1))
        self.extra_q = extra_q  # (batch, kv_head, group, query), each
        self.k = k.new_empty((*k.shape[:2], k.shape[2] + len(extra_k), k.shape[3]), dtype=torch.float32)
        torch.mul(k.float(), attention.scale, out=self.k[:, :, : k.shape[2]])  # fewer keys than queries to scale
        for index, extra in enumerate(extra_k, start=k.shape[2]):
            self.k[:, :, index] = extra
        per_head = group if with_keys.shape[1] > 1 else 1
        self.with_keys = with_keys.unflatten(1, (-1, per_head))  # (batch, kv_head, group, query)
        items = self.q.shape[0] * self.q.shape[1] * group
        self.rows = self.k.new_empty(items * height * self.k.shape[2])
        self.buffer = self.k.new_empty(items * height * k.shape[3])

    def block(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """(batch, kv_head, group, query, key) of rows [start, stop) and keys [low, high); overwritten by the next."""
        q = self._rows(start, stop)
        shape = (*q.shape[:4], high - low)
        flat = self.buffer[: torch.Size(shape).numel()]
        torch.bmm(
            q.view(-1, shape[2] * shape[3], q.shape[-1]),
            self.k[..., low:high].flatten(0, 1),
            out=flat.view(-1, shape[2] * shape[3], high - low),
        )
        logits = flat.view(shape)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
            if self.late_bias is not None:
                logits += self.late_bias[..., low:high]
        self.mask.hide(logits, start, stop, low, self.batch, self.heads)
        if not self.lse_known:
            closed = None if self.gate is None else logits <= -self.gate
            logits -= self._normaliser(logits, start, stop)[..., None]
            if closed is not None:
                logits.masked_fill_(closed, HIDDEN)
        return logits

    def _rows(self, start: int, stop: int) -> Tensor:
        """Q' of these rows, (batch, kv_head, group, query, width), contiguous."""
        q = self.q[:, :, :, start:stop]
        shape = torch.Size((*q.shape[:4], self.k.shape[2]))
        rows = self.rows[: shape.numel()].view(shape)
        rows[..., : q.shape[-1]] = q
        for index, extra in enumerate(self.extra_q, start=q.shape[-1]):
            rows[..., index] = extra[..., start:stop]
        return rows

    def _normaliser(self, logits: Tensor, start: int, stop: int) -> Tensor:
        """The log-sum-exp of whole rows, the learned sink included; huge for rows without keys."""
        lse = logits.logsumexp(dim=-1)  # (batch, kv_head, group, query)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sinks[None, :, :, None])
        return torch.where(self.with_keys[..., start:stop], lse, -HIDDEN)
