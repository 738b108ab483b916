"""Gated attention: an edge whose logit is not above a threshold is cut, and the others keep their weight.

    s_ij = scale * q_i . k_j (soft-capped where the family caps)     p = softmax of s over the visible keys
    y_i  = sum_j A_ij p_ij v_j                                       no renormalisation; all cut: y_i = 0

    hard      A_ij = 1 where s_ij + b > 0: for a trained model
    noisy     A_ij = 1 with probability sigmoid(s_ij + b): for training. Its gradient is that of the probability,
              dA/ds = sigmoid'(s_ij + b) (straight-through estimator)

Also returned, per example and head: the expected number of open edges, the sum of sigmoid(s_ij + b) over the visible pairs,
which training minimises, and the actual number. Source: Draye, Lei et al., arXiv 2512.05865.

Backward, with D_i = dy_i . y_i and c the gradient of the expected number (t = 1 for straight-through, else 0):

    ds_ij = p_ij (A_ij dy_i.v_j - D_i) + (t p_ij dy_i.v_j + c) sigmoid'(s_ij + b)        dv_j = sum_i A_ij p_ij dy_i

Rows are processed in blocks and recomputed for the gradient, noise included: memory is O(BLOCK), never T x T. On a GPU, a
plain causal mask is computed by `triton_gated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.kernels.attention import Attention
from headwise.kernels.dispatch import triton_module

BLOCK = 4_000_000  # logits held at a time on a CPU
BLOCK_ON_DEVICE = 200_000_000


class Gated(NamedTuple):
    """The result of gated attention."""

    y: Tensor  # (batch, query, head, value width)
    expected: Tensor  # (batch, head) the expected number of open edges
    opened: Tensor  # (batch, head) the number of open edges; no gradient


def gated(attention: Attention, v: Tensor, *, noise: int | None = None, straight: bool = True) -> Gated:
    """The output of gated attention; `attention.gate` is the bias b.

    ``noise``: the seed of noisy gates; None: hard gates. ``straight``: whether gradients flow through the gates.
    """
    assert attention.gate is not None
    if attention.q.is_cuda:
        kernels = triton_module("headwise.kernels.triton_gated")
        if kernels is not None and kernels.can_gate(attention, v):
            return Gated(*kernels.gated(attention, v, noise, straight))
    return Gated(*_Blocked.apply(attention.q, attention.k, v, attention, noise, straight))


class _Rows(NamedTuple):
    """A block of rows: weights, gates and what the gradient needs. All (batch, kv_head, group, query, key)."""

    start: int
    stop: int
    p: Tensor
    p_open: Tensor  # sigmoid(s + b)
    is_open: Tensor
    slope: Tensor | None  # ds/d(uncapped s), under a soft-cap


class _Blocked(torch.autograd.Function):
    """Blocks of rows in plain torch, on any device, under any mask."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, attention: Attention, noise: int | None, straight: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.promote_types(q.dtype, torch.float32)
        batch, heads, queries, _ = q.shape
        y = q.new_empty((batch, queries, heads, v.shape[-1]))
        expected = torch.zeros(batch, heads, dtype=wide, device=q.device)
        opened = torch.zeros_like(expected)
        values = v[:, :, None].to(wide)
        for rows in _blocks(q, k, attention, noise):
            weights = rows.p * rows.is_open
            y[:, rows.start : rows.stop] = (weights @ values).flatten(1, 2).transpose(1, 2).to(y.dtype)
            expected += rows.p_open.sum(dim=(-2, -1)).flatten(1)
            opened += rows.is_open.sum(dim=(-2, -1)).flatten(1)
        ctx.save_for_backward(q, k, v, y)
        ctx.rest = (attention, noise, straight)
        ctx.mark_non_differentiable(opened)
        return y, expected, opened

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dexpected: Tensor, _: Tensor) -> Any:
        q, k, v, y = ctx.saved_tensors
        attention, noise, straight = ctx.rest
        wide = torch.promote_types(q.dtype, torch.float32)
        group = (k.shape[1], q.shape[1] // k.shape[1])
        grouped = (-1, *group)
        dq = torch.empty_like(q, dtype=wide).unflatten(1, group)
        dk, dv = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        penalty = dexpected.to(wide).view(grouped)[..., None, None]
        for rows in _blocks(q, k, attention, noise):
            here = slice(rows.start, rows.stop)
            up = dy[:, here].to(wide).transpose(1, 2).unflatten(1, group)  # (batch, kv_head, group, query, width)
            level = (dy[:, here].to(wide) * y[:, here].to(wide)).sum(-1).transpose(1, 2).unflatten(1, group)[..., None]
            along = up @ v[:, :, None].to(wide).transpose(-1, -2)
            weights = rows.p * rows.is_open
            through = rows.p * along + penalty if straight else penalty
            ds = weights * along - rows.p * level + through * rows.p_open * (1 - rows.p_open)
            if rows.slope is not None:
                ds = ds * rows.slope
            dq[..., here, :] = ds @ k[:, :, None].to(wide) * attention.scale
            into = q[:, :, here].to(wide).unflatten(1, group)
            dk += (ds.transpose(-1, -2) @ into).sum(dim=2) * attention.scale
            dv += (weights.transpose(-1, -2) @ up).sum(dim=2)
        return dq.flatten(1, 2).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _blocks(q: Tensor, k: Tensor, attention: Attention, noise: int | None) -> Iterator[_Rows]:
    """All rows, block by block; the same noise every time."""
    mask, softcap = attention.mask, attention.softcap
    wide = torch.promote_types(q.dtype, torch.float32)
    group = (k.shape[1], q.shape[1] // k.shape[1])
    block = BLOCK if q.device.type == "cpu" else BLOCK_ON_DEVICE
    height = max(1, block // (q.shape[0] * q.shape[1] * k.shape[2]))
    keys = k[:, :, None].to(wide).transpose(-1, -2)  # (batch, kv_head, 1, width, key)
    bias = mask.key_bias()
    for start in range(0, q.shape[2], height):
        stop = min(start + height, q.shape[2])
        s = q[:, :, start:stop].to(wide).unflatten(1, group) @ keys * attention.scale
        slope = None
        if softcap is not None:
            capped = torch.tanh(s / softcap)
            s, slope = capped * softcap, 1 - capped**2
        if bias is not None:
            s = s + bias[:, None, None, None].to(wide)
        mask.hide(s, start, stop, 0, slice(None), slice(None))
        p = s.softmax(dim=-1)
        assert attention.gate is not None
        p_open = torch.sigmoid(s + attention.gate)
        if mask.query_valid is not None:  # rows of padding have no edges
            p_open = p_open * mask.valid_queries(q.shape[0])[:, None, None, start:stop, None]
        is_open = p_open > 0.5 if noise is None else _uniform(p_open, noise, start) < p_open
        yield _Rows(start, stop, p, p_open, is_open, slope)


def _uniform(like: Tensor, noise: int, start: int) -> Tensor:
    generator = torch.Generator(like.device).manual_seed(noise * 1_000_003 + start)
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
