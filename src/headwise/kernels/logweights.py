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
from headwise.kernels.visibility import HIDDEN

FLOOR = -80.0


class LogWeights:
    """log a_ij for some examples and kv heads, block of rows by block of rows, in one reused buffer."""

    def __init__(self, attention: Attention, batch: slice, heads: slice, height: int):
        self.sight, self.softcap = attention.visibility, attention.softcap
        self.batch, self.heads = batch, heads
        group = attention.group
        query_heads = slice(heads.start * group, heads.stop * group)
        self.sinks = None if attention.sinks is None else attention.sinks[query_heads].float().view(-1, group)
        self.gate = attention.gate
        self.known = attention.lse is not None and attention.softcap is None and attention.gate is None
        answers = self.sight.answers(attention.q.shape[0])[batch]
        answers = answers[:, query_heads] if answers.shape[1] > 1 else answers  # (batch, head or 1, query)
        q = attention.q[batch, query_heads].float()
        k = attention.k[batch, heads].float() * attention.scale  # there are fewer keys than queries to scale
        extra_q, extra_k = [], []
        if self.known:
            assert attention.lse is not None
            lse = attention.lse[batch, query_heads].float()
            if self.sinks is not None:
                lse = torch.logaddexp(lse, self.sinks.flatten()[:, None])
            lse = torch.where(answers, lse, -HIDDEN)  # rows that do not answer get no weight at all
            extra_q.append(-lse[..., None])
            extra_k.append(torch.ones_like(k[..., :1]))
        bias = self.sight.key_bias()
        self.late_bias = None if bias is None or self.softcap is None else bias[batch, None, None, None]
        if bias is not None and self.softcap is None:
            extra_q.append(torch.ones_like(q[..., :1]))
            extra_k.append(bias[batch, None, :, None].expand(-1, k.shape[1], -1, -1))
        self.q = torch.cat([q, *extra_q], dim=-1).unflatten(1, (-1, group))  # (batch, kv_head, group, query, width)
        self.k = torch.cat([k, *extra_k], dim=-1).transpose(-1, -2).contiguous()  # (batch, kv_head, width, key)
        self.answers = answers.unflatten(
            1, (-1, group if answers.shape[1] > 1 else 1)
        )  # (batch, kv_head, group, query)
        items = self.q.shape[0] * self.q.shape[1] * group
        self.buffer = torch.empty(items * height * k.shape[2], dtype=torch.float32, device=k.device)

    def block(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """(batch, kv_head, group, query, key) of rows [start, stop) and keys [low, high); overwritten by the next."""
        q = self.q[:, :, :, start:stop]
        shape = (*q.shape[:4], high - low)
        flat = self.buffer[: torch.Size(shape).numel()]
        torch.bmm(
            q.reshape(-1, shape[2] * shape[3], q.shape[-1]),
            self.k[..., low:high].flatten(0, 1),
            out=flat.view(-1, shape[2] * shape[3], high - low),
        )
        logits = flat.view(shape)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
            if self.late_bias is not None:
                logits += self.late_bias[..., low:high]
        self.sight.hide(logits, start, stop, low, self.batch, self.heads)
        if not self.known:
            closed = None if self.gate is None else logits <= -self.gate
            logits -= self._normaliser(logits, start, stop)[..., None]
            if closed is not None:
                logits.masked_fill_(closed, HIDDEN)
        return logits

    def _normaliser(self, logits: Tensor, start: int, stop: int) -> Tensor:
        """Whole rows' log-sum-exp, the learned sink included; without bound for rows that do not answer."""
        lse = logits.logsumexp(dim=-1)  # (batch, kv_head, group, query)
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sinks[None, :, :, None])
        return torch.where(self.answers[..., start:stop], lse, -HIDDEN)
