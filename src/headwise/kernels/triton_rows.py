"""Triton kernel of the row statistics: a program holds a block of queries of one head and loops over the keys they see.

    mass, sum a log a      for the entropy
    mean and squares       of the distance, merged tile by tile after Chan (a mean of squares loses the digits of a sink)
    row max                the largest log-weight
    named sums             up to four: weighted keys, matching keys, counts above a threshold, ranges of distance
    columns                the attention that each key gets from the block, one line per warp, added by
                           `column_sum_finish_kernel`

Before the causal edge all queries of a tile see all of its keys, and the keys are earlier: nothing is masked, and distances
are summed by the index j of a key in its tile, two multiplications by constants. At the edge (and with a window everywhere)
tiles are masked, and distances are summed about the tile's own mean: near the diagonal a head may attend to a single key,
and its variance must be 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headwise.kernels.triton_reductions import FAR, LOG2E, load_block, log2_logits

TINY = tl.constexpr(1.0e-37)
SLOTS = 4  # named sums per launch
PLANES = 5  # mass, sum a log a, mean distance, its squares, row max; the named sums come after


@triton.jit
def parts(x):
    """(row, key) as (row, eight keys, part, pair): part p of a row are the keys 2p and 2p + 1 of every eight.

    After a matrix product one thread holds one part of a row, so a part is summed without communication between threads.
    That concerns speed only; the sums are correct for any layout. In this order a sum of products is a chain of fused
    multiply-adds.
    """
    return tl.reshape(x, [x.shape[0], x.shape[1] // 8, 4, 2])


@triton.jit
def part_sums(x):
    """(row, part)."""
    return tl.sum(tl.sum(parts(x), 1), 2)


@triton.jit
def lines(x, LINES: tl.constexpr):
    """(line, key): sums over the rows of each of LINES warps, sixteen of every 16 LINES: no warp waits for another."""
    return tl.sum(tl.sum(tl.reshape(x, [x.shape[0] // (16 * LINES), LINES, 16, x.shape[1]]), 0), 1)


@triton.jit
def _load_keyed(
    slot: tl.constexpr, b, key, TK, KEY_WEIGHTS, KEY_IDS, weights_stride, ids_stride,
    N_KEYED: tl.constexpr, N_MATCHES: tl.constexpr,
):  # fmt: skip
    """The weights or ids of a tile's keys for a slot. Loaded before the product, which hides the latency."""
    if slot < N_KEYED:
        return tl.load(KEY_WEIGHTS + slot * weights_stride + b * TK + key, mask=key < TK, other=0.0)
    elif slot < N_KEYED + N_MATCHES:  # noqa: RET505  (Triton needs one return per branch)
        return tl.load(KEY_IDS + (slot - N_KEYED) * ids_stride + b * TK + key, mask=key < TK, other=-1)
    else:
        return key


@triton.jit
def _add(
    slot: tl.constexpr, total, a, position, key, keyed, mine,
    N_KEYED: tl.constexpr, N_MATCHES: tl.constexpr, ABOVE: tl.constexpr, NEAR: tl.constexpr, UPTO: tl.constexpr,
    N_COUNTS: tl.constexpr, N_RANGES: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add a tile to one named sum: slots are key weights, then matches, then thresholds, then ranges."""
    counts: tl.constexpr = N_KEYED + N_MATCHES
    ranges: tl.constexpr = N_KEYED + N_MATCHES + N_COUNTS
    if slot < N_KEYED:
        total += part_sums(a * keyed[None, :])
    elif slot < counts:
        same = mine[:, None] == keyed[None, :]
        if EDGE:
            same = same & (key[None, :] < position[:, None])
        total += part_sums(tl.where(same, a, 0.0))
    elif slot < ranges:
        total += part_sums((a > ABOVE[slot - counts]).to(tl.float32))
    elif slot < ranges + N_RANGES:
        lag = position[:, None] - key[None, :]
        total += part_sums(tl.where((lag >= NEAR[slot - ranges]) & (lag < UPTO[slot - ranges]), a, 0.0))
    return total


@triton.jit
def _sum_over_keys(
    mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3, q, lse2, position, low, high, K, VALID, k_t, k_d, TK,
    D: tl.constexpr, d, b,
    qk_scale, softcap, window, KEY_WEIGHTS, KEY_IDS, mine0, mine1, mine2, mine3, weights_stride, ids_stride,
    COLUMNS, EDGE: tl.constexpr, LINES: tl.constexpr, WANT_ENTROPY: tl.constexpr, WANT_DISTANCE: tl.constexpr,
    WANT_ROW_MAX: tl.constexpr,
    N_KEYED: tl.constexpr, N_MATCHES: tl.constexpr, ABOVE: tl.constexpr, NEAR: tl.constexpr, UPTO: tl.constexpr,
    N_COUNTS: tl.constexpr, N_RANGES: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr,
    HAS_WINDOW: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All sums over the keys [low, high)."""
    middle: tl.constexpr = BN // 2
    index = (tl.arange(0, BN // 8) * 8 - middle).to(tl.float32)  # of eight keys in their tile, about its middle
    origin = (tl.arange(0, 4) * 2 + middle).to(tl.float32)  # the zero of a part
    for start in range(low, high, BN):
        key = start + tl.arange(0, BN)
        k0 = _load_keyed(0, b, key, TK, KEY_WEIGHTS, KEY_IDS, weights_stride, ids_stride, N_KEYED, N_MATCHES)
        k1 = _load_keyed(1, b, key, TK, KEY_WEIGHTS, KEY_IDS, weights_stride, ids_stride, N_KEYED, N_MATCHES)
        k2 = _load_keyed(2, b, key, TK, KEY_WEIGHTS, KEY_IDS, weights_stride, ids_stride, N_KEYED, N_MATCHES)
        k3 = _load_keyed(3, b, key, TK, KEY_WEIGHTS, KEY_IDS, weights_stride, ids_stride, N_KEYED, N_MATCHES)
        k = load_block(K, 0, 0, key, d, 0, 0, k_t, k_d, TK, D, not EDGE)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP) - lse2[:, None]
        if EDGE:
            visible = (key[None, :] <= position[:, None]) & (key < TK)[None, :]
            if HAS_WINDOW:
                visible = visible & (position[:, None] - key[None, :] < window)
            s = tl.where(visible, s, FAR)
        if HAS_VALID:
            s = tl.where((tl.load(VALID + b * TK + key, mask=key < TK, other=0) != 0)[None, :], s, FAR)
        a = tl.exp2(s)
        if WANT_ENTROPY:
            a_log_a += part_sums(a * s)
        if WANT_ROW_MAX:
            row_max = tl.maximum(row_max, tl.max(tl.max(parts(s), 1), 2))
        if LINES > 0:
            line = tl.arange(0, LINES)[:, None] * TK
            tl.store(COLUMNS + line + key[None, :], lines(a, LINES), mask=(key < TK)[None, :])
        if WANT_ENTROPY or WANT_DISTANCE:
            own = part_sums(a)
            if WANT_DISTANCE:
                if EDGE:
                    lag = (position[:, None] - key[None, :]).to(tl.float32)
                    centre = part_sums(a * lag) / tl.maximum(own, TINY)
                    off = parts(lag) - centre[:, None, :, None]
                    spread = tl.sum(tl.sum(parts(a) * off * off, 1), 2)
                else:
                    even, odd = tl.split(parts(a))  # (row, eight keys, part) of indices 8n - middle, and one further
                    both = even + odd
                    first = tl.sum(both * index[None, :, None], 1) + tl.sum(odd, 1)
                    second = tl.sum(both * (index * index)[None, :, None], 1)
                    second += tl.sum(odd * (2 * index + 1)[None, :, None], 1)
                    shift = first / tl.maximum(own, TINY)
                    centre = (position - start).to(tl.float32)[:, None] - origin[None, :] - shift
                    spread = tl.maximum(second - first * shift, 0.0)
                joined = mass + own
                share = own / tl.maximum(joined, TINY)
                delta = centre - mean
                m2 += spread + delta * delta * mass * share
                mean += delta * share
            mass += own
        x0 = _add(0, x0, a, position, key, k0, mine0, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO, N_COUNTS, N_RANGES, EDGE)
        x1 = _add(1, x1, a, position, key, k1, mine1, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO, N_COUNTS, N_RANGES, EDGE)
        x2 = _add(2, x2, a, position, key, k2, mine2, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO, N_COUNTS, N_RANGES, EDGE)
        x3 = _add(3, x3, a, position, key, k3, mine3, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO, N_COUNTS, N_RANGES, EDGE)
    return mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3


@triton.jit
def _query_ids(slot: tl.constexpr, QUERY_IDS, query_stride, b, row, TQ, N_KEYED: tl.constexpr, N_MATCHES: tl.constexpr):
    """The ids of the queries for a matching slot; for any other slot an unused value."""
    if (slot >= N_KEYED) & (slot < N_KEYED + N_MATCHES):
        return tl.load(QUERY_IDS + (slot - N_KEYED) * query_stride + b * TQ + row, mask=row < TQ, other=-2)
    return row


@triton.jit
def row_stats_kernel(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, KEY_WEIGHTS, weights_stride, KEY_IDS, ids_stride, QUERY_IDS, query_stride, OUT, out_stride,
    COLUMNS, FIRST, LINES: tl.constexpr, N_KEYED: tl.constexpr, N_MATCHES: tl.constexpr, ABOVE: tl.constexpr,
    NEAR: tl.constexpr, UPTO: tl.constexpr, N_COUNTS: tl.constexpr, N_RANGES: tl.constexpr,
    WANT_ENTROPY: tl.constexpr, WANT_DISTANCE: tl.constexpr, WANT_ROW_MAX: tl.constexpr, HAS_CAP: tl.constexpr,
    HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One query block of one head, heads from FIRST on. COLUMNS (head, block, line, key) is written where LINES > 0."""
    block, bh = tl.program_id(0), tl.program_id(1)
    block = tl.num_programs(0) - 1 - block  # the longest rows first
    columns = COLUMNS
    if LINES > 0:
        columns += (bh * tl.num_programs(0) + block).to(tl.int64) * LINES * TK
    bh += FIRST
    b, h = bh // H, bh % H
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = load_block(Q, b, h, row, d, q_b, q_h, q_t, q_d, TQ, D, False)
    lse2 = tl.load(LSE2 + bh * TQ + row, mask=row < TQ, other=-FAR)
    position = row + OFFSET
    keys = K + b * k_b + (h // GROUP) * k_h
    zero = tl.zeros([BM, 4], tl.float32)  # one sum per part of a row
    low = 0
    high = tl.minimum(TK, block * BM + BM + OFFSET)
    edge = tl.maximum(0, block * BM + OFFSET) // BN * BN  # keys before it are earlier than every query
    edge = tl.minimum(edge, TK // BN * BN)
    if HAS_WINDOW:
        low = tl.maximum(0, block * BM + OFFSET - window + 1) // BN * BN
        edge = low
    mine0 = _query_ids(0, QUERY_IDS, query_stride, b, row, TQ, N_KEYED, N_MATCHES)
    mine1 = _query_ids(1, QUERY_IDS, query_stride, b, row, TQ, N_KEYED, N_MATCHES)
    mine2 = _query_ids(2, QUERY_IDS, query_stride, b, row, TQ, N_KEYED, N_MATCHES)
    mine3 = _query_ids(3, QUERY_IDS, query_stride, b, row, TQ, N_KEYED, N_MATCHES)
    mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3 = zero, zero, zero, zero, zero + FAR, zero, zero, zero, zero
    if not HAS_WINDOW:
        mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3 = _sum_over_keys(
            mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3, q, lse2, position, low, edge, keys, VALID, k_t, k_d, TK, D,
            d, b, qk_scale, softcap, window, KEY_WEIGHTS, KEY_IDS, mine0, mine1, mine2, mine3, weights_stride, ids_stride,
            columns, False, LINES, WANT_ENTROPY, WANT_DISTANCE, WANT_ROW_MAX, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO,
            N_COUNTS, N_RANGES, HAS_CAP, HAS_VALID, HAS_WINDOW, BN, PRECISION,
        )  # fmt: skip
    mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3 = _sum_over_keys(
        mass, a_log_a, mean, m2, row_max, x0, x1, x2, x3, q, lse2, position, edge, high, keys, VALID, k_t, k_d, TK, D,
        d, b, qk_scale, softcap, window, KEY_WEIGHTS, KEY_IDS, mine0, mine1, mine2, mine3, weights_stride, ids_stride,
        columns, True, LINES, WANT_ENTROPY, WANT_DISTANCE, WANT_ROW_MAX, N_KEYED, N_MATCHES, ABOVE, NEAR, UPTO,
        N_COUNTS, N_RANGES, HAS_CAP, HAS_VALID, HAS_WINDOW, BN, PRECISION,
    )  # fmt: skip
    base = OUT + bh * TQ + row
    inside = row < TQ
    total = tl.sum(mass, 1)
    if WANT_ENTROPY or WANT_DISTANCE:
        tl.store(base, total, mask=inside)
    if WANT_ENTROPY:
        tl.store(base + out_stride, tl.sum(a_log_a, 1) / LOG2E, mask=inside)
    if WANT_DISTANCE:
        centre = tl.sum(mass * mean, 1) / tl.maximum(total, TINY)
        off = mean - centre[:, None]
        tl.store(base + 2 * out_stride, centre, mask=inside)
        tl.store(base + 3 * out_stride, tl.sum(m2 + mass * off * off, 1), mask=inside)
    if WANT_ROW_MAX:
        tl.store(base + 4 * out_stride, tl.exp2(tl.max(row_max, 1)), mask=inside)
    used: tl.constexpr = N_KEYED + N_MATCHES + N_COUNTS + N_RANGES
    if used > 0:
        tl.store(base + 5 * out_stride, tl.sum(x0, 1), mask=inside)
    if used > 1:
        tl.store(base + 6 * out_stride, tl.sum(x1, 1), mask=inside)
    if used > 2:
        tl.store(base + 7 * out_stride, tl.sum(x2, 1), mask=inside)
    if used > 3:
        tl.store(base + 8 * out_stride, tl.sum(x3, 1), mask=inside)
