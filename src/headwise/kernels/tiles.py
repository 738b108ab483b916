"""What the Triton kernels share: a tile of log-weights, and the log-sum-exp where the forward pass left none.

With the log-sum-exp of a row known, its log-weights are one matrix product away, log a = scale q k^T - lse; so no row has
to be seen twice, and a tile of (query, key) is made, summed and forgotten. Logs are to base 2 inside, since that is the
exponential a GPU has. A number below `FAR` stands for minus infinity: it is finite, so that 0 * FAR is 0.

Who holds what decides the speed. A sum along the loop costs an addition a weight; a sum across it costs shuffles between
threads at every tile. So `column_tiles` holds keys and walks over queries, `row_tiles` holds queries and walks over keys,
and where both are asked for QK^T is made twice: quicker on an H200 than one product whose tiles are summed both ways.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FAR = tl.constexpr(-1.0e30)


@triton.jit
def log2_logits(products, qk_scale, softcap, HAS_CAP: tl.constexpr):
    """Logits to base 2 from raw products."""
    if HAS_CAP:
        x = products * (qk_scale / LOG2E / softcap)
        e = tl.exp2(tl.abs(x) * -2.8853900817779268)  # tanh
        t = (1.0 - e) / (1.0 + e)
        return tl.where(x < 0, -t, t) * (softcap * LOG2E)
    return products * qk_scale


@triton.jit
def block_of(
    X, b, h, place, d, stride_b, stride_h, stride_t, stride_d, LENGTH, D: tl.constexpr, INSIDE: tl.constexpr
):  # fmt: skip
    """(place, width): the vectors of some places of one head. Places beyond the ends (INSIDE: there are none) get one of the
    vectors at the ends, and whoever asked strikes them out: a mask would cost three instructions for every sixteen bytes.
    """
    if not INSIDE:
        place = tl.minimum(tl.maximum(place, 0), LENGTH - 1)
    at = X + b * stride_b + h * stride_h + place[:, None] * stride_t + d[None, :] * stride_d
    if d.shape[0] == D:
        return tl.load(at)
    return tl.load(at, mask=(d < D)[None, :], other=0.0)


@triton.jit
def log_sum_exp(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr,
    qk_scale, softcap, window, LSE, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Natural log-sum-exp of the visible logits of each row, without the sink."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = block_of(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False)
    position = row + OFFSET
    zero = tl.zeros([BM], tl.float32)
    peak = zero + FAR
    total = zero
    low = 0
    if HAS_WINDOW:
        low = tl.maximum(0, block * BM + OFFSET - window + 1) // BN * BN
    high = tl.minimum(TK, block * BM + BM + OFFSET)
    for start in range(low, high, BN):
        key = start + tl.arange(0, BN)
        seen = (key[None, :] <= position[:, None]) & (key < TK)[None, :]
        if HAS_WINDOW:
            seen = seen & (position[:, None] - key[None, :] < window)
        if HAS_VALID:
            seen = seen & (tl.load(VALID + b * TK + key, mask=key < TK, other=0) != 0)[None, :]
        k = block_of(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP)
        s = tl.where(seen, s, FAR)
        new = tl.maximum(peak, tl.max(s, 1))
        total = total * tl.exp2(peak - new) + tl.sum(tl.where(seen, tl.exp2(s - new[:, None]), 0.0), 1)
        peak = new
    tl.store(LSE + bh * TQ + row, (peak + tl.log2(total)) / LOG2E, mask=row < TQ)


@triton.jit
def near_logs(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, OUT, FIRST, out_stride,
    HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr, COUNT: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Log a at the distances FIRST, FIRST + 1, ... of each query, one plane each: -inf where nothing is to be seen."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = block_of(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False).to(tl.float32)
    lse2 = tl.load(LSE2 + bh * TQ + row, mask=row < TQ, other=-FAR)
    for n in tl.static_range(COUNT):
        key = row + OFFSET - FIRST - n
        seen = (key >= 0) & (key < TK)
        if HAS_WINDOW:
            seen = seen & (row + OFFSET - key < window)
        if HAS_VALID:
            seen = seen & (tl.load(VALID + b * TK + key, mask=seen, other=0) != 0)
        k = block_of(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False).to(tl.float32)
        s = log2_logits(tl.sum(q * k, 1), qk_scale, softcap, HAS_CAP) - lse2
        tl.store(OUT + n * out_stride + bh * TQ + row, tl.where(seen, s / LOG2E, float("-inf")), mask=row < TQ)
