"""Chosen rows of attention: one query of a decode step, or the few queries that emit an answer.

    log a_j = s_j - log(exp(sink) + sum_j exp(s_j))        s_j = scale * q . k_j, soft-capped where the family caps
    z       = sum_j a_j v_j

A decode step has one query per example, and its row is as small as a reduction of it. In float32 and float64 the step's output
is taken from the row, which then replaces the fused kernel instead of running next to it; in half precision the output stays
the fused kernel's, with whose rounding the model otherwise runs. On a GPU `decode` computes output and `row_statistics` in one
sweep instead; what is here serves every other device, and what that kernel does not support. Hidden keys and closed gates have
log a = -inf.

Cost: one QK^T product for the chosen queries and a log-softmax; memory: chosen queries x keys numbers per head.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.kernels.attention import Attention
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import RowMarks, RowStatistics

WIDE = (torch.float32, torch.float64)  # in which the output may be taken from the row


def row_logs(attention: Attention, index: Tensor | None = None) -> Tensor:
    """The log a_ij of chosen queries, (batch, head, n, key), in float32 or wider.

    Args:
        attention: of one layer.
        index: (batch, n) queries; -1: none, whose row is -inf. None: all queries.

    Examples:
        >>> from headwise.kernels import AttentionMask
        >>> q, k = torch.zeros(1, 2, 1, 4), torch.ones(1, 1, 3, 4)
        >>> row_logs(Attention(q, k, 0.5, AttentionMask(1, 3, 2, q.device))).exp()[0, :, 0]
        tensor([[0.3333, 0.3333, 0.3333],
                [0.3333, 0.3333, 0.3333]])
    """
    batch, kv_heads, keys, width = attention.k.shape
    q, k = attention.q, attention.k
    if index is not None:
        q = q.gather(2, index.clamp(min=0)[:, None, :, None].expand(-1, q.shape[1], -1, width))
    rows = q.shape[2]
    if q.dtype not in WIDE:
        q, k = q.float(), k.float()
    q = (q * attention.scale).reshape(batch * kv_heads, attention.group * rows, width)  # heads of a group share keys
    logits = torch.bmm(q, k.flatten(0, 1).transpose(1, 2)).view(batch, kv_heads * attention.group, rows, keys)
    if attention.softcap is not None:
        logits = torch.tanh(logits / attention.softcap) * attention.softcap
    visible = attention.mask.rows(index)
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    closed = None if attention.gate is None else logits + attention.gate <= 0
    if attention.sinks is None:
        logs = logits.log_softmax(dim=-1)
    else:
        sinks = attention.sinks.to(logits.dtype).view(1, -1, 1, 1)
        logs = logits - torch.logaddexp(logits.logsumexp(dim=-1, keepdim=True), sinks)
    if visible is not None:  # a row without keys would be -inf - -inf
        logs = logs.masked_fill(~visible, -torch.inf)
    return logs if closed is None else logs.masked_fill(closed, -torch.inf)


def row_output(logs: Tensor, v: Tensor) -> Tensor:
    """z, (batch, query, head, value width), of whole rows and the values (batch, kv_head, key, value width)."""
    batch, heads, rows, keys = logs.shape
    kv_heads = v.shape[1]
    weights = logs.exp().to(v.dtype).view(batch * kv_heads, heads // kv_heads * rows, keys)
    return torch.bmm(weights, v.flatten(0, 1)).view(batch, heads, rows, v.shape[3]).transpose(1, 2)


class RowKeys(NamedTuple):
    """Which keys of a layer mean what to some rows. A key of -1 is not (or no longer) among them."""

    own: Tensor  # (batch, row) the row's own token
    previous: Tensor  # (batch, row) the real token before it
    first: Tensor  # (batch,) the first real token
    prompt: Tensor  # (batch, key) float: 1 for prompt tokens
    answer: Tensor  # (batch, key) float: 1 for answer tokens
    prompts: Tensor  # (batch,) tokens of the prompt
    answers: Tensor  # (batch, row) answer tokens that the row can see
    visible: Tensor  # (batch, 1 or head, row) float: keys that the row can see

    def of_rows(self, rows: slice) -> RowKeys:
        """Some of the rows."""
        own, previous, answers = self.own[:, rows], self.previous[:, rows], self.answers[:, rows]
        return self._replace(own=own, previous=previous, answers=answers, visible=self.visible[..., rows])

    @classmethod
    def of_step(cls, marks: RowMarks, visible: Tensor, keys: int) -> RowKeys:
        """Of a decode step in a layer with so many keys: a sliding window's cache holds only the last ones.

        Args:
            marks: of the step.
            visible: (batch, 1 or head, 1) float.
            keys: of this layer, unused places of a static cache included.
        """
        gone = max(0, marks.tokens - keys)
        places = marks.places.to(visible.device)
        own, previous, first, end = (places[:, :4] - gone).split(1, dim=1)
        prompt = (torch.arange(keys, device=places.device) < end).float()
        return cls(own, previous, first[:, 0], prompt, 1 - prompt, places[:, 4], places[:, 5:], visible)


def row_statistics(logs: Tensor, keys: RowKeys, *, mass: bool = False) -> RowStatistics:
    """The statistics of rows, each (..., batch, head, row).

    Args:
        logs: (..., batch, head, row, key) log-weights; the dims in front may be layers.
        keys: which keys mean what.
        mass: whether rows may sum to less than 1 (a learned sink, closed gates), so that the entropy needs their sum.
    """
    logs = logs.clamp(min=FLOOR)
    weights = logs.exp().sub_(math.exp(FLOOR))  # 0 for what was raised to the floor; no other weight changes by a bit
    entropy = -torch.einsum("...k,...k->...", weights, logs)
    if mass:
        total = weights.sum(dim=-1)
        entropy = torch.where(total > 0, entropy / total.clamp(min=1e-30) + total.clamp(min=1e-30).log(), 0.0)
    batch, _, rows, count = weights.shape[-4:]
    marks = torch.stack([keys.prompt, keys.answer], dim=-1).to(weights.dtype)  # (batch, key, 2)
    of_examples = weights.movedim(-4, 0).reshape(batch, -1, count)  # one product per example, of all layers and heads
    on = (
        (of_examples @ marks).view(batch, *weights.shape[:-4], -1, rows, 2).movedim(0, -4)
    )  # (..., batch, head, row, 2)
    x = on[..., 0] / keys.prompts.clamp(min=1)[:, None, None]
    y = on[..., 1] / keys.answers.clamp(min=1)[:, None]
    return RowStatistics(
        _at(logs, keys.own, FLOOR),
        entropy / keys.visible.clamp(min=2).log(),
        _at(weights, keys.first[:, None].expand_as(keys.own), 0.0),
        _at(weights, keys.previous, 0.0),
        x / (x + y).clamp(min=1e-30),
    )


def _at(values: Tensor, key: Tensor, missing: float) -> Tensor:
    """(..., batch, head, row): the entry of one key (batch, row) in each row; ``missing`` where the key is -1."""
    index = key.clamp(min=0)[:, None, :, None].expand(*values.shape[:-1], 1)
    return torch.where((key >= 0)[:, None], values.gather(-1, index)[..., 0], missing)
