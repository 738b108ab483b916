"""Chosen rows of attention: one query of a decode step, or the few queries that emit an answer.

    log a_j = s_j - log(exp(sink) + sum_j exp(s_j))        s_j = scale * q . k_j, soft-capped where the family caps
    z       = sum_j a_j v_j

A decode step has one query per example, and its row is as small as a reduction of it. In float32 and float64 the step's output
is taken from the row, which then replaces the fused kernel instead of running next to it (`RowStep`); in half precision the
output stays the fused kernel's, with whose rounding the model otherwise runs. On a GPU `decode` computes output and
`row_statistics` in one sweep instead; what is here serves every other device, and what that kernel does not support. Hidden
keys and closed gates have log a = -inf.

Cost: one QK^T product for the chosen queries and a log-softmax; memory: chosen queries x keys numbers per head. The statistics
of a step are computed for many layers at once, since for a single one a dozen small operations take longer than its attention.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.kernels.attention import Attention, AttentionMask
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import RowMarks, RowStatistics

WIDE = (torch.float32, torch.float64)  # in which the output may be taken from the row
HELD_CELLS = 2**18  # weights that are held before they are reduced: they stay in the cache


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


def row_output(weights: Tensor, v: Tensor) -> Tensor:
    """z, (batch, query, head, value width), of whole rows and the values (batch, kv_head, key, value width)."""
    batch, heads, rows, keys = weights.shape
    kv_heads = v.shape[1]
    of_group = weights.to(v.dtype).view(batch * kv_heads, heads // kv_heads * rows, keys)
    return torch.bmm(of_group, v.flatten(0, 1)).view(batch, heads, rows, v.shape[3]).transpose(1, 2)


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


def row_statistics(logs: Tensor, keys: RowKeys, *, mass: bool = False, weights: Tensor | None = None) -> RowStatistics:
    """The statistics of rows, each (..., batch, head, row).

    Args:
        logs: (..., batch, head, row, key) log-weights; the dims in front may be layers.
        keys: which keys mean what.
        mass: whether rows may sum to less than 1 (a learned sink, closed gates), so that the entropy needs their sum.
        weights: e^logs, where they are known.
    """
    logs = logs.clamp(min=FLOOR)
    if weights is None:
        weights = logs.exp().sub_(
            math.exp(FLOOR)
        )  # 0 for what was raised to the floor; no other weight changes by a bit
    entropy = -torch.einsum("...k,...k->...", weights, logs)
    if mass:
        total = weights.sum(dim=-1)
        entropy = torch.where(total > 0, entropy / total.clamp(min=1e-30) + total.clamp(min=1e-30).log(), 0.0)
    prompt, answer = (
        torch.einsum("...k,...k->...", weights, one[:, None, None].to(weights.dtype))
        for one in (keys.prompt, keys.answer)
    )
    x = prompt / keys.prompts.clamp(min=1)[:, None, None]
    y = answer / keys.answers.clamp(min=1)[:, None]
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


class HeldRows:
    """The rows of one decode step, a layer at a time; their statistics are written into the marks, many layers at once.

    Args:
        marks: which keys mean what, and where the statistics go.
    """

    def __init__(self, marks: RowMarks):
        self._marks = marks
        self._alike: dict[tuple[object, ...], _Alike] = {}
        self._cells = 0

    def hold(
        self, layer: int, logs: Tensor, mask: AttentionMask, *, weights: Tensor | None = None,
        query: Tensor | None = None, mass: bool = False,
    ) -> None:  # fmt: skip
        """Hold the row of a layer until it is reduced.

        Args:
            layer: of the model.
            logs: (batch, head, 1, key).
            mask: of the layer.
            weights: e^logs, where they are known.
            query: (batch, 1) which query the row is of; None: the only one.
            mass: see `row_statistics`.
        """
        key = (logs.shape, logs.device, id(mask), weights is None, mass)
        alike = self._alike.setdefault(key, _Alike(mask, query, mass, [], [], []))
        alike.layers.append(layer)
        alike.logs.append(logs)
        if weights is not None:
            alike.weights.append(weights)
        self._cells += logs.numel()
        if self._cells > HELD_CELLS:
            self.reduce()

    def reduce(self) -> None:
        """Write the statistics of all rows that are held."""
        for mask, query, mass, layers, rows, known in self._alike.values():
            logs, weights = torch.stack(rows), torch.stack(known) if known else None
            visible = mask.n_visible_keys(len(rows[0]))  # (batch, 1 or head, query)
            if query is not None:
                index = query.to(visible.device).clamp(min=0)[:, None]
                visible = visible.gather(2, index.expand(-1, visible.shape[1], -1))
            keys = RowKeys.of_step(self._marks, visible, mask.keys)
            found = torch.stack(row_statistics(logs, keys, mass=mass, weights=weights), dim=-1)
            self._marks.write(layers, found[:, :, :, 0])
        self._alike.clear()
        self._cells = 0


class _Alike(NamedTuple):
    """Rows of layers with the same shape and mask."""

    mask: AttentionMask
    query: Tensor | None
    mass: bool
    layers: list[int]
    logs: list[Tensor]  # (batch, head, 1, key)
    weights: list[Tensor]  # likewise; empty: not known


class RowStep:
    """The layers of one decode step: output and statistics from the row. The counterpart of `decode.DecodeStep` without a GPU.

    Args:
        marks: which keys mean what, and where the statistics go.
    """

    def __init__(self, marks: RowMarks):
        self._rows = HeldRows(marks)
        self._alike: dict[tuple[Any, ...], Attention] = {}

    def again(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, alike: tuple[Any, ...]
    ) -> Tensor | None:
        """The z of a layer like one before it; None where there was none. ``alike``: all but shapes that must be the same."""
        one = self._alike.get((q.shape, k.shape, q.dtype, alike))
        if one is None:
            return None
        return self._read(layer, Attention(q, k, one.scale, one.mask, one.softcap, sinks), v)

    def first(self, layer: int, attention: Attention, v: Tensor, alike: tuple[Any, ...]) -> Tensor | None:
        """The z of a layer unlike those before it; None where the output is not taken from the row."""
        if attention.q.dtype not in WIDE or attention.gate is not None:
            return None
        self._alike[attention.q.shape, attention.k.shape, attention.q.dtype, alike] = attention
        return self._read(layer, attention, v)

    def _read(self, layer: int, attention: Attention, v: Tensor) -> Tensor:
        logs = row_logs(attention)
        weights = logs.exp()
        self._rows.hold(layer, logs, attention.mask, weights=weights, mass=attention.sinks is not None)
        return row_output(weights, v)

    def finish(self) -> None:
        """Write what is still held."""
        self._rows.reduce()
