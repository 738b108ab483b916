"""The Triton kernels: tiles of (query, key) that are made, summed and forgotten. `fused` says what they are for.

A program holds the rows of one query block of one head and walks over the key blocks they can see. With the log-sum-exp
known, a tile of log-weights is one matrix product away, log a = scale q k^T - lse, and all that a row is asked for is
summed in registers. Logs are to base 2 inside, since that is the exponential a GPU has.

    mass, sum a log a      for the entropy
    mean and squares       of the distance, joined tile by tile after Chan (a mean of squares loses the digits of a sink)
    peak                   the largest log
    named sums             marks, ranges of distance, counts over a threshold: one lane each

Column sums go to memory by atomic additions of integers in units of 2^-40: those commute, so that a run gives the same
bits every time, as additions of floats would not.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNIT = tl.constexpr(2.0**40)  # of column sums: the largest is 2^23
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _log2_weights(s, lse2, qk_scale, softcap, HAS_CAP: tl.constexpr):
    """log2 of weights from raw products, (BM, BN)."""
    if HAS_CAP:
        x = s * (qk_scale / LOG2E / softcap)
        e = tl.exp2(tl.abs(x) * -2.8853900817779268)  # tanh
        t = (1.0 - e) / (1.0 + e)
        return tl.where(x < 0, -t, t) * (softcap * LOG2E) - lse2[:, None]
    return s * qk_scale - lse2[:, None]


@triton.jit
def log_sum_exp(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D, qk_scale, softcap, window, LSE,
    HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Natural log-sum-exp of the visible logits of each row, without the sink."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    row_in, d_in = row < TQ, d < D
    q = tl.load(
        Q + b * q_b + h * q_h + row[:, None] * q_t + d[None, :] * q_d, mask=row_in[:, None] & d_in[None, :], other=0.0
    )
    position = row + OFFSET
    zero = tl.zeros([BM], tl.float32)
    peak = zero - 1.0e30
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
        k = tl.load(K + b * k_b + (h // GROUP) * k_h + key[:, None] * k_t + d[None, :] * k_d,
                    mask=(key < TK)[:, None] & d_in[None, :], other=0.0)  # fmt: skip
        s = _log2_weights(tl.dot(q, tl.trans(k), input_precision=PRECISION), zero, qk_scale, softcap, HAS_CAP)
        s = tl.where(seen, s, -1.0e30)
        new = tl.maximum(peak, tl.max(s, 1))
        total = total * tl.exp2(peak - new) + tl.sum(tl.where(seen, tl.exp2(s - new[:, None]), 0.0), 1)
        peak = new
    tl.store(LSE + bh * TQ + row, (peak + tl.log2(total)) / LOG2E, mask=row_in)


@triton.jit
def reductions(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D, qk_scale, softcap, window,
    LSE, MARKS, ROWS, COLUMNS, ROW_COLUMNS, OUT, DIAGONAL, out_stride,
    NEAR: tl.constexpr, FAR: tl.constexpr, OVER: tl.constexpr,
    N_MARKS: tl.constexpr, N_ROWS: tl.constexpr, N_OFFSETS: tl.constexpr, N_OVER: tl.constexpr,
    WANT_COLUMNS: tl.constexpr, WANT_ENTROPY: tl.constexpr, WANT_DISTANCE: tl.constexpr, WANT_PEAK: tl.constexpr,
    WANT_DIAGONAL: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One query block of one head. OUT planes: mass, sum a log a, mean distance, M2, peak, then the named sums."""
    block, bh = tl.program_id(0), tl.program_id(1)
    block = tl.num_programs(0) - 1 - block  # the longest rows first
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    row_in, d_in = row < TQ, d < D
    q = tl.load(
        Q + b * q_b + h * q_h + row[:, None] * q_t + d[None, :] * q_d, mask=row_in[:, None] & d_in[None, :], other=0.0
    )
    lse2 = tl.load(LSE + bh * TQ + row, mask=row_in, other=1.0e30) * LOG2E
    position = row + OFFSET
    kb = K + b * k_b + (h // GROUP) * k_h
    zero = tl.zeros([BM], tl.float32)
    mass, a_log_a, mean, m2, peak = zero, zero, zero, zero, zero - 1.0e30
    lane = tl.arange(0, LANES)
    sums = tl.zeros([BM, LANES], tl.float32)  # marks, then offsets, then over
    low = 0
    if HAS_WINDOW:
        low = tl.maximum(0, block * BM + OFFSET - window + 1) // BN * BN
    high = tl.minimum(TK, block * BM + BM + OFFSET)
    first_edge = (block * BM + OFFSET + 1) // BN * BN  # from here on some key is ahead of some row
    for start in range(low, high, BN):
        key = start + tl.arange(0, BN)
        key_in = key < TK
        ok = key_in
        if HAS_VALID:
            ok = tl.load(VALID + b * TK + key, mask=key_in, other=0) != 0
        pointers = kb + key[:, None] * k_t + d[None, :] * k_d
        k = tl.load(pointers, mask=key_in[:, None] & d_in[None, :], other=0.0)
        s = _log2_weights(tl.dot(q, tl.trans(k), input_precision=PRECISION), lse2, qk_scale, softcap, HAS_CAP)
        if HAS_WINDOW:
            seen = (key[None, :] <= position[:, None]) & key_in[None, :] & (position[:, None] - key[None, :] < window)
            s = tl.where(seen, s, -1.0e30)
        else:
            if start >= first_edge:
                seen = (key[None, :] <= position[:, None]) & key_in[None, :]
                s = tl.where(seen, s, -1.0e30)
        if HAS_VALID:
            s = tl.where(ok[None, :], s, -1.0e30)
        a = tl.exp2(s)
        if WANT_COLUMNS:
            received = tl.sum(a, 0)
            tl.atomic_add(COLUMNS + bh * TK + key, (received * UNIT).to(tl.int64), mask=key_in, sem="relaxed")
        for n in tl.static_range(N_ROWS):
            w = tl.load(ROWS + (n * (tl.num_programs(1) // H) + b) * TQ + row, mask=row_in, other=0.0)
            received = tl.sum(a * w[:, None], 0)
            tl.atomic_add(
                ROW_COLUMNS + (n * tl.num_programs(1) + bh) * TK + key,
                (received * UNIT).to(tl.int64),
                mask=key_in,
                sem="relaxed",
            )
        if WANT_ENTROPY:
            a_log_a += tl.sum(a * tl.maximum(s, -120.0), 1)
        if WANT_PEAK:
            peak = tl.maximum(peak, tl.max(s, 1))
        if WANT_ENTROPY or WANT_DISTANCE:
            own = tl.sum(a, 1)
            if WANT_DISTANCE:
                lag = (
                    position.to(tl.float32)[:, None] - key.to(tl.float32)[None, :]
                )  # of each row: keeps near heads' digits
                centre = tl.sum(a * lag, 1) / tl.maximum(own, 1.0e-37)
                off = lag - centre[:, None]
                square = tl.sum(a * off * off, 1)
                joined = mass + own
                share = own / tl.maximum(joined, 1.0e-37)
                delta = centre - mean
                m2 += square + delta * delta * mass * share
                mean += delta * share
            mass += own
        for n in tl.static_range(N_MARKS):
            marks = tl.load(MARKS + (n * (tl.num_programs(1) // H) + b) * TK + key, mask=key_in, other=0.0)
            if tl.max(tl.abs(marks), 0) > 0.0:
                sums += tl.where(lane[None, :] == n, tl.sum(a * marks[None, :], 1)[:, None], 0.0)
        for n in tl.static_range(N_OFFSETS):
            furthest = block * BM + BM - 1 + OFFSET - start
            nearest = block * BM + OFFSET - (start + BN - 1)
            if (furthest >= NEAR[n]) & (nearest < FAR[n]):
                distance = position[:, None] - key[None, :]
                part = tl.sum(tl.where((distance >= NEAR[n]) & (distance < FAR[n]), a, 0.0), 1)
                sums += tl.where(lane[None, :] == N_MARKS + n, part[:, None], 0.0)
        for n in tl.static_range(N_OVER):
            part = tl.sum((a > OVER[n]).to(tl.float32), 1)
            sums += tl.where(lane[None, :] == N_MARKS + N_OFFSETS + n, part[:, None], 0.0)
    base = OUT + bh * TQ + row
    if WANT_ENTROPY or WANT_DISTANCE:
        tl.store(base, mass, mask=row_in)
    if WANT_ENTROPY:
        tl.store(base + out_stride, a_log_a / LOG2E, mask=row_in)
    if WANT_DISTANCE:
        tl.store(base + 2 * out_stride, mean, mask=row_in)
        tl.store(base + 3 * out_stride, m2, mask=row_in)
    if WANT_PEAK:
        tl.store(base + 4 * out_stride, tl.exp2(peak), mask=row_in)
    named: tl.constexpr = N_MARKS + N_OFFSETS + N_OVER
    if named > 0:
        planes = base[:, None] + (5 + lane[None, :]) * out_stride
        tl.store(planes, sums, mask=row_in[:, None] & (lane < named)[None, :])
    if WANT_DIAGONAL:
        there = row_in & (position < TK) & (position >= 0)
        k_own = tl.load(kb + position[:, None] * k_t + d[None, :] * k_d, mask=there[:, None] & d_in[None, :], other=0.0)
        s = tl.sum(q.to(tl.float32) * k_own.to(tl.float32), 1) * qk_scale
        if HAS_CAP:
            x = s / (LOG2E * softcap)
            e = tl.exp2(tl.abs(x) * -2.8853900817779268)
            t = (1.0 - e) / (1.0 + e)
            s = tl.where(x < 0, -t, t) * (softcap * LOG2E)
        if HAS_VALID:
            there = there & (tl.load(VALID + b * TK + position, mask=there, other=0) != 0)
        tl.store(DIAGONAL + bh * TQ + row, tl.where(there, (s - lse2) / LOG2E, float("-inf")), mask=row_in)
