"""Triton kernels: a tile of log-weights, the log-sum-exp, attention near the diagonal, column sums, and norms of head outputs.

With the log-sum-exp of a row known, its log-weights are one matrix product away, log a = scale q k^T - lse; so each row is
processed once, and a tile of (query, key) is computed, summed and discarded. Logs are to base 2, since that is the exponential
of a GPU. `FAR` stands for minus infinity: it is finite, so that 0 * FAR is 0.

The operand that a program holds determines the speed. A sum along the loop costs one addition per weight; a sum across it costs
shuffles between threads at every tile. So the column kernel holds keys and loops over queries, the row kernel (`triton_rows`)
holds queries and loops over keys, and where both are needed QK^T is computed twice: faster on an H200 than one product whose
tiles are summed both ways.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FAR = tl.constexpr(-1.0e30)
ABSENT = tl.constexpr(0)  # the query weights of a column sum
UNIFORM = tl.constexpr(1)
WEIGHTED = tl.constexpr(2)


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
def load_block(
    X, b, h, index, d, stride_b, stride_h, stride_t, stride_d, LENGTH, D: tl.constexpr, INSIDE: tl.constexpr
):  # fmt: skip
    """(index, width): some vectors of one head. Indices out of range (INSIDE: there are none) are clamped, and the caller masks
    the results: a mask here would cost three instructions per sixteen bytes.
    """
    if not INSIDE:
        index = tl.minimum(tl.maximum(index, 0), LENGTH - 1)
    at = X + b * stride_b + h * stride_h + index[:, None] * stride_t + d[None, :] * stride_d
    if d.shape[0] == D:
        return tl.load(at)
    return tl.load(at, mask=(d < D)[None, :], other=0.0)


@triton.jit
def log_sum_exp_kernel(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr,
    qk_scale, softcap, window, LSE, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The natural log-sum-exp of the visible logits of each row, without the sink."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = load_block(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False)
    position = row + OFFSET
    zero = tl.zeros([BM], tl.float32)
    highest = zero + FAR
    total = zero
    low = 0
    if HAS_WINDOW:
        low = tl.maximum(0, block * BM + OFFSET - window + 1) // BN * BN
    high = tl.minimum(TK, block * BM + BM + OFFSET)
    for start in range(low, high, BN):
        key = start + tl.arange(0, BN)
        visible = (key[None, :] <= position[:, None]) & (key < TK)[None, :]
        if HAS_WINDOW:
            visible = visible & (position[:, None] - key[None, :] < window)
        if HAS_VALID:
            visible = visible & (tl.load(VALID + b * TK + key, mask=key < TK, other=0) != 0)[None, :]
        k = load_block(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP)
        s = tl.where(visible, s, FAR)
        new = tl.maximum(highest, tl.max(s, 1))
        total = total * tl.exp2(highest - new) + tl.sum(tl.where(visible, tl.exp2(s - new[:, None]), 0.0), 1)
        highest = new
    tl.store(LSE + bh * TQ + row, (highest + tl.log2(total)) / LOG2E, mask=row < TQ)


@triton.jit
def near_diagonal_kernel(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, OUT, FIRST, out_stride,
    HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr, COUNT: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Log a at the distances FIRST, FIRST + 1, ... of each query, one plane each: -inf where the key is not visible."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = load_block(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False).to(tl.float32)
    lse2 = tl.load(LSE2 + bh * TQ + row, mask=row < TQ, other=-FAR)
    for n in tl.static_range(COUNT):
        key = row + OFFSET - FIRST - n
        visible = (key >= 0) & (key < TK)
        if HAS_WINDOW:
            visible = visible & (row + OFFSET - key < window)
        if HAS_VALID:
            visible = visible & (tl.load(VALID + b * TK + key, mask=visible, other=0) != 0)
        k = load_block(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False).to(tl.float32)
        s = log2_logits(tl.sum(q * k, 1), qk_scale, softcap, HAS_CAP) - lse2
        tl.store(OUT + n * out_stride + bh * TQ + row, tl.where(visible, s / LOG2E, float("-inf")), mask=row < TQ)


@triton.jit
def _sum_over_queries(
    first, second, k, key, low, high, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t, q_d, TQ, OFFSET,
    D: tl.constexpr, d, qk_scale, softcap, window,
    FIRST: tl.constexpr, SECOND: tl.constexpr, EDGE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Both sums over the queries [low, high)."""
    for start in range(low, high, BM):
        row = start + tl.arange(0, BM)
        q = load_block(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False)
        lse2 = tl.load(LSE2 + bh * TQ + row, mask=row < TQ, other=-FAR)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP) - lse2[:, None]
        if EDGE:
            lag = (row + OFFSET)[:, None] - key[None, :]
            visible = lag >= 0
            if HAS_WINDOW:
                visible = visible & (lag < window)
            s = tl.where(visible, s, FAR)
        a = tl.exp2(s)
        if FIRST == UNIFORM:
            first += a
        else:
            first += a * tl.load(ROWS + b * TQ + row, mask=row < TQ, other=0.0)[:, None]
        if SECOND == WEIGHTED:
            second += a * tl.load(ROWS + rows_stride + b * TQ + row, mask=row < TQ, other=0.0)[:, None]
    return first, second


@triton.jit
def column_sum_kernel(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, ROWS, rows_stride, OUT, out_stride,
    FIRST: tl.constexpr, SECOND: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr,
    HAS_WINDOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The attention that each key of one block and head receives: sum_i w_i a_ij, for one or two sets of query weights.

    Weights of a tile are added to an accumulator of the tile's shape, one addition per weight; threads are reduced once, after
    the last tile. No two programs write to the same address, so a run is deterministic. Queries without keys have a huge
    log-sum-exp, hence no weight; padding keys are masked in the end. ROWS points to the first given weights, a `rows_stride`
    before the second.
    """
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    key = block * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)
    k = load_block(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False)
    first = tl.zeros([BM, BN], tl.float32)
    second = first
    low = tl.maximum(0, block * BN - OFFSET) // BM * BM
    high = TQ
    whole = tl.minimum(
        tl.cdiv(tl.maximum(0, block * BN + BN - 1 - OFFSET), BM) * BM, high
    )  # from here on all is visible
    if HAS_WINDOW:
        high = tl.minimum(TQ, tl.maximum(0, block * BN + BN - 1 + window - OFFSET))
        whole = high
    first, second = _sum_over_queries(
        first, second, k, key, low, whole, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t, q_d, TQ, OFFSET, D, d,
        qk_scale, softcap, window, FIRST, SECOND, True, HAS_CAP, HAS_WINDOW, BM, PRECISION,
    )  # fmt: skip
    if not HAS_WINDOW:
        first, second = _sum_over_queries(
            first, second, k, key, tl.maximum(low, whole), high, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t,
            q_d, TQ, OFFSET, D, d, qk_scale, softcap, window, FIRST, SECOND, False, HAS_CAP, HAS_WINDOW, BM, PRECISION,
        )  # fmt: skip
    inside = key < TK
    counts = inside
    if HAS_VALID:
        counts = tl.load(VALID + b * TK + key, mask=inside, other=0) != 0
    tl.store(OUT + bh * TK + key, tl.where(counts, tl.sum(first, 0), 0.0), mask=inside)
    if SECOND == WEIGHTED:
        tl.store(OUT + out_stride + bh * TK + key, tl.where(counts, tl.sum(second, 0), 0.0), mask=inside)


@triton.jit
def column_sum_finish_kernel(
    PARTS, OUT, TK, OFFSET, window, BLOCKS,
    HAS_WINDOW: tl.constexpr, LINES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Column sums from the LINES partial sums per block of BM queries that `triton_rows` wrote.

    Blocks wrote whole tiles of BN keys, from the first tile that one of their queries sees to the last; the rest of their
    lines was never written. PARTS is (head, block, line, key), OUT (head, key).
    """
    bh = tl.program_id(1)
    key = tl.program_id(0) * HELD + tl.arange(0, HELD)
    tile = key // BN * BN
    lines = BLOCKS * LINES
    first = tl.maximum(0, (tl.program_id(0) * HELD - OFFSET) // BM * LINES) // STEP * STEP
    total = tl.zeros([STEP, HELD], tl.float32)
    for start in range(first, lines, STEP):
        line = start + tl.arange(0, STEP)
        begin = line // LINES * BM + OFFSET  # the position of the block's first query
        there = (line < lines)[:, None] & (key < TK)[None, :] & (tile[None, :] < (begin + BM)[:, None])
        if HAS_WINDOW:
            there = there & (tile[None, :] >= (tl.maximum(0, begin - window + 1) // BN * BN)[:, None])
        at = PARTS + (bh.to(tl.int64) * lines + line)[:, None] * TK + key[None, :]
        total += tl.load(at, mask=there, other=0.0)
    tl.store(OUT + bh * TK + key, tl.sum(total, 0), mask=key < TK)


@triton.jit
def sq_norm_kernel(
    Z, COARSE, FINE, OUT, z_b, z_t, z_h, z_d, T, H, D,
    BM: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """||z W_O^h||^2 = z G z^T with G = W W^T (width x width), for one block of tokens of one head and example.

    z is in half precision and read once. G is given as a sum of two matrices of that precision, exact to sixteen bits or more:
    two products on the tensor cores are as good as float32, and faster.
    """
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    token = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    rows = Z + b * z_b + h * z_h + token[:, None] * z_t
    z = tl.load(rows + d[None, :] * z_d, mask=(token < T)[:, None] & (d < D)[None, :], other=0.0)
    total = tl.zeros([BM], tl.float32)
    for start in range(0, D, BC):
        c = start + tl.arange(0, BC)
        offset = h * D * D + d[:, None] * D + c[None, :]
        inside = (d < D)[:, None] & (c < D)[None, :]
        written = tl.dot(z, tl.load(COARSE + offset, mask=inside, other=0.0))
        written = tl.dot(z, tl.load(FINE + offset, mask=inside, other=0.0), acc=written)
        own = tl.load(rows + c[None, :] * z_d, mask=(token < T)[:, None] & (c < D)[None, :], other=0.0)
        total += tl.sum(written * own.to(tl.float32), 1)
    tl.store(OUT + bh * T + token, total, mask=token < T)
