"""Blocks of log attention weights, log a_ij, made by one matrix product each.

What is constant over a row or a column enters the product as a further column of q and k, where it costs nothing:

    q' = [q, -lse, 1]        k' = [scale k, 1, key bias]        q' . k' = log a_ij, padding keys hidden

Without a log-sum-exp from the forward kernel (soft-cap, sinks, explicit masks), the block's own rows give it: a block
holds all keys its rows can see. Under a soft-cap the key bias is added after the cap, which would lift it otherwise.

In a sparse model the closed edges are hidden after the rows' log-sum-exp was taken, which needs the logits themselves.

Weights below e^FLOOR (2e-35) are lifted to it: under that float32 leaves its normal range, where a CPU's exponential
is thirty times slower, and no sum in float32 can tell the difference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.kernels.attention import Attention
from headwise.kernels.mask import HIDDEN

FLOOR = -80.0


class LogWeights:
    """log a_ij for some examples and kv heads, block of rows by block of rows, in one reused buffer."""

    def __init__(self, attention: Attention, batch: slice, heads: slice, height: int):
        self.mask, self.softcap = attention.mask, attention.softcap
        self.batch, self.heads = batch, heads
        group = attention.group
        query_heads = slice(heads.start * group, heads.stop * group)
        self.sinks = None if attention.sinks is None else attention.sinks[query_heads].float().view(-1, group)
        self.gate = attention.gate
        self.known = attention.lse is not None and attention.softcap is None and attention.gate is None
        answers = self.mask.rows_with_keys(attention.q.shape[0])[batch]
        answers = answers[:, query_heads] if answers.shape[1] > 1 else answers  # (batch, head or 1, query)
        self.q = attention.q[batch, query_heads].unflatten(1, (-1, group))  # (batch, kv_head, group, query, width)
        k = attention.k[batch, heads].transpose(-1, -2)  # (batch, kv_head, width, key)
        extra_q, extra_k = [], []
        if self.known:
            assert attention.lse is not None
            lse = attention.lse[batch, query_heads].float()
            if self.sinks is not None:
                lse = torch.logaddexp(lse, self.sinks.flatten()[:, None])
            lse = torch.where(answers, lse, -HIDDEN)  # rows that do not answer get no weight at all
            extra_q.append(-lse.unflatten(1, (-1, group)))
            extra_k.append(torch.ones_like(k[:, :, 0]))
        bias = self.mask.key_bias()
        self.late_bias = None if bias is None or self.softcap is None else bias[batch, None, None, None]
        if bias is not None and self.softcap is None:
            extra_q.append(torch.ones_like(self.q[..., 0]))
            extra_k.append(bias[batch, None].expand(-1, k.shape[1], -1))
        self.extra_q = extra_q  # (batch, kv_head, group, query), each
        self.k = k.new_empty((*k.shape[:2], k.shape[2] + len(extra_k), k.shape[3]), dtype=torch.float32)
        torch.mul(
            k.float(), attention.scale, out=self.k[:, :, : k.shape[2]]
        )  # there are fewer keys than queries to scale
        for place, extra in enumerate(extra_k, start=k.shape[2]):
            self.k[:, :, place] = extra
        self.answers = answers.unflatten(
            1, (-1, group if answers.shape[1] > 1 else 1)
        )  # (batch, kv_head, group, query)
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
        if not self.known:
            closed = None if self.gate is None else logits <= -self.gate
            logits -= self._normaliser(logits, start, stop)[..., None]
            if closed is not None:
                logits.masked_fill_(closed, HIDDEN)
        return logits

    def _rows(self, start: int, stop: int) -> Tensor:
        """The queries' side of these rows, (batch, kv_head, group, query, width), in one piece."""
        q = self.q[:, :, :, start:stop]
        shape = torch.Size((*q.shape[:4], self.k.shape[2]))
        rows = self.rows[: shape.numel()].view(shape)
        rows[..., : q.shape[-1]] = q
        for place, extra in enumerate(self.extra_q, start=q.shape[-1]):
            rows[..., place] = extra[..., start:stop]
        return rows

    def _normaliser(self, logits: Tensor, start: int, stop: int) -> Tensor:
        """Whole rows' log-sum-exp, the learned sink included; without bound for rows that do not answer."""
        lse = logits.logsumexp(dim=-1)  # (batch, kv_head, group, query)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sinks[None, :, :, None])
        return torch.where(self.answers[..., start:stop], lse, -HIDDEN)
