"""Gated attention on a GPU: three Triton kernels in the style of flash attention; see `gated` for the maths.

    gated_forward_kernel       a tile of rows loops over its keys: online softmax, gates applied to the sum and not to the
                               normaliser; writes y, the log-sum-exp, and the expected and actual number of open edges per row
    gated_backward_q_kernel    the same loop again, for dq
    gated_backward_kv_kernel   a tile of keys loops over the rows of all query heads that read it, for dk and dv

Each kernel recomputes the noise from (seed, head, row, key) with a counter-based generator, so none is stored. Only the plain
causal mask of whole sequences (`can_gate`), which is what training uses. `gated` computes everything else in blocks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headwise.kernels.attention import Attention

LOG2E = tl.constexpr(1.4426950408889634)
ROUNDS = tl.constexpr(7)  # of the generator; seven pass the usual tests of randomness
TILE = 64


def can_gate(attention: Attention, v: Tensor) -> bool:
    """Whether these kernels support it."""
    mask = attention.mask
    return (
        mask.explicit is None
        and mask.window is None
        and mask.key_valid is None
        and mask.query_valid is None
        and mask.queries == mask.keys
        and attention.softcap is None
        and attention.q.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and attention.q.shape[-1] == v.shape[-1]
        and attention.q.shape[-1] in (16, 32, 64, 128)
    )


def gated(attention: Attention, v: Tensor, noise: int | None, straight: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns y (batch, query, head, width), expected and opened (batch, head)."""
    assert attention.gate is not None
    return _Tiled.apply(attention.q, attention.k, v, attention.scale, attention.gate, noise, straight)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: float, noise: int | None, straight: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, width = q.shape
        y = torch.empty(batch, tokens, heads, width, dtype=q.dtype, device=q.device)
        lse, expected, opened = torch.empty(3, batch, heads, tokens, dtype=torch.float32, device=q.device)
        settings = _settings(q, k, scale, bias, noise)
        grid = (triton.cdiv(tokens, TILE), batch * heads)
        gated_forward_kernel[grid](q, k, v, y, lse, expected, opened, **settings)
        ctx.save_for_backward(q, k, v, y, lse)
        ctx.rest = (settings, straight)
        opened = opened.sum(-1)
        ctx.mark_non_differentiable(opened)
        return y, expected.sum(-1), opened

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dexpected: Tensor, _: Tensor) -> Any:
        q, k, v, y, lse = ctx.saved_tensors
        settings, straight = ctx.rest
        batch, heads, tokens, _width = q.shape
        dy = dy.contiguous()
        level = (dy.float() * y.float()).sum(-1).transpose(1, 2).contiguous()  # (batch, head, query)
        penalty = dexpected.float().contiguous()
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        given = (q, k, v, dy, lse, level, penalty)
        shared = {**settings, "STRAIGHT": straight}
        gated_backward_q_kernel[(triton.cdiv(tokens, TILE), batch * heads)](*given, dq, **shared)
        gated_backward_kv_kernel[(triton.cdiv(tokens, TILE), batch * k.shape[1])](*given, dk, dv, **shared)
        return dq, dk, dv, None, None, None, None


def _settings(q: Tensor, k: Tensor, scale: float, bias: float, noise: int | None) -> dict[str, Any]:
    return {
        "scale": scale,
        "bias": bias,
        "seed": 0 if noise is None else noise,
        "tokens": q.shape[2],
        "HEADS": q.shape[1],
        "GROUP": q.shape[1] // k.shape[1],
        "WIDTH": q.shape[3],
        "TILE": TILE,
        "NOISY": noise is not None,
        "num_warps": 4,
    }


@triton.jit
def _tile(pointer, first, tokens, stride, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """(TILE, WIDTH): rows from `first` on, 0 beyond the last."""
    row = first + tl.arange(0, TILE)
    index = row[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(pointer + index, mask=row[:, None] < tokens, other=0.0)


@triton.jit
def _gates(s, row, key, item, seed, bias, tokens, NOISY: tl.constexpr):
    """The probability of each gate to be open, and whether it is, as 0 or 1; `s` is -inf where the key is hidden."""
    p_open = 1.0 / (1.0 + tl.exp2(-(s + bias) * LOG2E))
    if NOISY:
        u = tl.rand(seed + item * 1013904223, row[:, None] * tokens + key[None, :], ROUNDS)
        is_open = (u < p_open).to(tl.float32)
    else:
        is_open = (s + bias > 0).to(tl.float32)
    return p_open, is_open


@triton.jit
def _logits(q, k, row, key, scale, tokens):
    """The logits, scale * q . k; -inf where the key is after the query or out of range."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    return tl.where((key[None, :] <= row[:, None]) & (key[None, :] < tokens), s, float("-inf"))


@triton.jit
def gated_forward_kernel(
    Q, K, V, Y, Lse, Expected, Opened, scale, bias, seed, tokens,
    HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, NOISY: tl.constexpr,
):  # fmt: skip
    first, item = tl.program_id(0) * TILE, tl.program_id(1)  # item: example and query head
    example, head = item // HEADS, item % HEADS
    kv_offset = (example * (HEADS // GROUP) + head // GROUP).to(tl.int64) * tokens * WIDTH
    row = first + tl.arange(0, TILE)
    q = _tile(Q + item.to(tl.int64) * tokens * WIDTH, first, tokens, WIDTH, WIDTH, TILE)
    highest = tl.full([TILE], -1.0e30, tl.float32)
    total = tl.zeros([TILE], tl.float32)
    expected = tl.zeros([TILE], tl.float32)
    opened = tl.zeros([TILE], tl.float32)
    y = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, tl.minimum(first + TILE, tokens), TILE):
        key = start + tl.arange(0, TILE)
        k = _tile(K + kv_offset, start, tokens, WIDTH, WIDTH, TILE)
        v = _tile(V + kv_offset, start, tokens, WIDTH, WIDTH, TILE)
        s = _logits(q, k, row, key, scale, tokens)
        p_open, is_open = _gates(s, row, key, item, seed, bias, tokens, NOISY)
        higher = tl.maximum(highest, tl.max(s, 1))
        weight = tl.exp2((s - higher[:, None]) * LOG2E)
        shrink = tl.exp2((highest - higher) * LOG2E)
        total = total * shrink + tl.sum(weight, 1)
        y = y * shrink[:, None] + tl.dot((weight * is_open).to(v.dtype), v, input_precision="ieee")
        expected += tl.sum(p_open, 1)
        opened += tl.sum(is_open, 1)
        highest = higher
    y = y / total[:, None]
    inside = row < tokens
    index = (example * tokens + row).to(tl.int64)[:, None] * HEADS * WIDTH + head * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(Y + index, y.to(Y.dtype.element_ty), mask=inside[:, None])
    at = item * tokens + row
    tl.store(Lse + at, highest + tl.log(total), mask=inside)
    tl.store(Expected + at, expected, mask=inside)
    tl.store(Opened + at, opened, mask=inside)


@triton.jit
def _logit_gradient(
    q, k, v, dy, lse, level, penalty, row, key, item, scale, bias, seed, tokens,
    NOISY: tl.constexpr, STRAIGHT: tl.constexpr,
):  # fmt: skip
    """The gradient ds of a tile, and its weights with open gates."""
    s = _logits(q, k, row, key, scale, tokens)
    p_open, is_open = _gates(s, row, key, item, seed, bias, tokens, NOISY)
    p = tl.where(row[:, None] < tokens, tl.exp2((s - lse[:, None]) * LOG2E), 0.0)
    along = tl.dot(dy, tl.trans(v), input_precision="ieee")
    weight = p * is_open
    through = penalty + along * p if STRAIGHT else penalty + 0.0 * p
    sharp = tl.where(row[:, None] < tokens, p_open * (1.0 - p_open), 0.0)
    return weight * along - p * level[:, None] + through * sharp, weight


@triton.jit
def _load_rows(
    DY, Lse, Level, example, head, item, first, tokens, HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    """What the gradient needs from a tile of rows: dy, log-sum-exp, level."""
    row = first + tl.arange(0, TILE)
    dy = _tile(DY + (example.to(tl.int64) * tokens * HEADS + head) * WIDTH, first, tokens, HEADS * WIDTH, WIDTH, TILE)
    lse = tl.load(Lse + item * tokens + row, mask=row < tokens, other=0.0)
    level = tl.load(Level + item * tokens + row, mask=row < tokens, other=0.0)
    return row, dy, lse, level


@triton.jit
def gated_backward_q_kernel(
    Q, K, V, DY, Lse, Level, Penalty, DQ, scale, bias, seed, tokens,
    HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, NOISY: tl.constexpr,
    STRAIGHT: tl.constexpr,
):  # fmt: skip
    first, item = tl.program_id(0) * TILE, tl.program_id(1)
    example, head = item // HEADS, item % HEADS
    kv_offset = (example * (HEADS // GROUP) + head // GROUP).to(tl.int64) * tokens * WIDTH
    mine = item.to(tl.int64) * tokens * WIDTH
    q = _tile(Q + mine, first, tokens, WIDTH, WIDTH, TILE)
    row, dy, lse, level = _load_rows(DY, Lse, Level, example, head, item, first, tokens, HEADS, WIDTH, TILE)
    penalty = tl.load(Penalty + item)
    dq = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, tl.minimum(first + TILE, tokens), TILE):
        key = start + tl.arange(0, TILE)
        k = _tile(K + kv_offset, start, tokens, WIDTH, WIDTH, TILE)
        v = _tile(V + kv_offset, start, tokens, WIDTH, WIDTH, TILE)
        ds, _ = _logit_gradient(
            q, k, v, dy, lse, level, penalty, row, key, item, scale, bias, seed, tokens, NOISY, STRAIGHT
        )  # fmt: skip
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    index = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(DQ + mine + index, (dq * scale).to(DQ.dtype.element_ty), mask=row[:, None] < tokens)


@triton.jit
def gated_backward_kv_kernel(
    Q, K, V, DY, Lse, Level, Penalty, DK, DV, scale, bias, seed, tokens,
    HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, NOISY: tl.constexpr,
    STRAIGHT: tl.constexpr,
):  # fmt: skip
    first, shared = tl.program_id(0) * TILE, tl.program_id(1)  # shared: example and kv head
    example = shared // (HEADS // GROUP)
    mine = shared.to(tl.int64) * tokens * WIDTH
    k = _tile(K + mine, first, tokens, WIDTH, WIDTH, TILE)
    v = _tile(V + mine, first, tokens, WIDTH, WIDTH, TILE)
    key = first + tl.arange(0, TILE)
    dk = tl.zeros([TILE, WIDTH], tl.float32)
    dv = tl.zeros([TILE, WIDTH], tl.float32)
    for member in range(GROUP):
        head = (shared % (HEADS // GROUP)) * GROUP + member
        item = example * HEADS + head
        penalty = tl.load(Penalty + item)
        for start in range(first, tokens, TILE):
            q = _tile(Q + item.to(tl.int64) * tokens * WIDTH, start, tokens, WIDTH, WIDTH, TILE)
            row, dy, lse, level = _load_rows(DY, Lse, Level, example, head, item, start, tokens, HEADS, WIDTH, TILE)
            ds, weight = _logit_gradient(
                q, k, v, dy, lse, level, penalty, row, key, item, scale, bias, seed, tokens, NOISY, STRAIGHT
            )  # fmt: skip
            dk += tl.dot(tl.trans(ds).to(q.dtype), q, input_precision="ieee")
            dv += tl.dot(tl.trans(weight).to(dy.dtype), dy, input_precision="ieee")
    index = key[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = key[:, None] < tokens
    tl.store(DK + mine + index, (dk * scale).to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + mine + index, dv.to(DV.dtype.element_ty), mask=inside)
