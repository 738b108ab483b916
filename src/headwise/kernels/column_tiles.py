"""What each key receives: a program holds a block of keys of one head and walks over the queries that can see them.

    received_j = sum_i w_i a_ij        with w all ones, or given row weights: up to two such sums in one walk

The weights of a tile are added to an accumulator of a tile's shape, so that a weight costs one addition; threads meet only
once, after the last tile. No two programs write to the same place, and a run gives the same bits every time. Queries that
do not answer have a log-sum-exp without bound, hence no weight; keys that are padding are struck out in the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headwise.kernels.tiles import FAR, block_of, log2_logits

ABSENT = tl.constexpr(0)  # kinds of a sum
EVEN = tl.constexpr(1)  # every query counts once
GIVEN = tl.constexpr(2)  # by row weights


@triton.jit
def _walk(
    first, second, k, key, low, high, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t, q_d, TQ, OFFSET,
    D: tl.constexpr, d, qk_scale, softcap, window,
    FIRST: tl.constexpr, SECOND: tl.constexpr, EDGE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Both sums over the queries [low, high)."""
    for start in range(low, high, BM):
        row = start + tl.arange(0, BM)
        q = block_of(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False)
        lse2 = tl.load(LSE2 + bh * TQ + row, mask=row < TQ, other=-FAR)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP) - lse2[:, None]
        if EDGE:
            lag = (row + OFFSET)[:, None] - key[None, :]
            seen = lag >= 0
            if HAS_WINDOW:
                seen = seen & (lag < window)
            s = tl.where(seen, s, FAR)
        a = tl.exp2(s)
        if FIRST == EVEN:
            first += a
        else:
            first += a * tl.load(ROWS + b * TQ + row, mask=row < TQ, other=0.0)[:, None]
        if SECOND == GIVEN:
            second += a * tl.load(ROWS + rows_stride + b * TQ + row, mask=row < TQ, other=0.0)[:, None]
    return first, second


@triton.jit
def received(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, ROWS, rows_stride, OUT, out_stride,
    FIRST: tl.constexpr, SECOND: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr,
    HAS_WINDOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One key block of one head. ROWS points to the first given weights, a `rows_stride` before the second's."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    key = block * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)
    k = block_of(K, b, h // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, False)
    first = tl.zeros([BM, BN], tl.float32)
    second = first
    low = tl.maximum(0, block * BN - OFFSET) // BM * BM
    high = TQ
    whole = tl.minimum(tl.cdiv(tl.maximum(0, block * BN + BN - 1 - OFFSET), BM) * BM, high)  # from here on all is seen
    if HAS_WINDOW:
        high = tl.minimum(TQ, tl.maximum(0, block * BN + BN - 1 + window - OFFSET))
        whole = high
    first, second = _walk(
        first, second, k, key, low, whole, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t, q_d, TQ, OFFSET, D, d,
        qk_scale, softcap, window, FIRST, SECOND, True, HAS_CAP, HAS_WINDOW, BM, PRECISION,
    )  # fmt: skip
    if not HAS_WINDOW:
        first, second = _walk(
            first, second, k, key, tl.maximum(low, whole), high, Q, LSE2, ROWS, b, h, bh, rows_stride, q_b, q_h, q_t,
            q_d, TQ, OFFSET, D, d, qk_scale, softcap, window, FIRST, SECOND, False, HAS_CAP, HAS_WINDOW, BM, PRECISION,
        )  # fmt: skip
    inside = key < TK
    counts = inside
    if HAS_VALID:
        counts = tl.load(VALID + b * TK + key, mask=inside, other=0) != 0
    tl.store(OUT + bh * TK + key, tl.where(counts, tl.sum(first, 0), 0.0), mask=inside)
    if SECOND == GIVEN:
        tl.store(OUT + out_stride + bh * TK + key, tl.where(counts, tl.sum(second, 0), 0.0), mask=inside)


@triton.jit
def gathered(
    PARTS, OUT, TK, OFFSET, window, BLOCKS,
    HAS_WINDOW: tl.constexpr, LINES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Column sums from what `row_tiles` left of each block of BM queries: LINES partial sums of every key that it saw.

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
        begin = line // LINES * BM + OFFSET  # the place of the block's first query
        there = (line < lines)[:, None] & (key < TK)[None, :] & (tile[None, :] < (begin + BM)[:, None])
        if HAS_WINDOW:
            there = there & (tile[None, :] >= (tl.maximum(0, begin - window + 1) // BN * BN)[:, None])
        at = PARTS + (bh.to(tl.int64) * lines + line)[:, None] * TK + key[None, :]
        total += tl.load(at, mask=there, other=0.0)
    tl.store(OUT + bh * TK + key, tl.sum(total, 0), mask=key < TK)
