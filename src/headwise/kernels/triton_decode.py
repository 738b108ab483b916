"""Triton kernel of a decode step: z of one query per example and, from the same sweep over K and V, statistics of its row.

    z = sum_j a_j v_j        and        `RowStatistics` (see `contract`): entropy, weight on the own token, the prompt ...

A program holds the heads that share one kv head and sweeps over a stretch of the keys, as in flash-decoding: with the running
maximum m of the logits it adds exp2(s - m), (s - m) exp2(s - m) and exp2(s - m) v, and rescales what it has when m grows. Each
program writes its partial sums; the last one to arrive at an example's kv head merges them, so one launch serves a layer.

Sums over keys are held per lane of a tile and added across lanes once, after the sweep; per tile only m is reduced. The weights
on the own, previous and first key need no comparison in the sweep: their logits are three dot products at the end.

Cost: K and V are read once, as the step's plain attention does. The sums add arithmetic, not reads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headwise.kernels.triton_reductions import FAR, LOG2E, log2_logits

FLOOR = tl.constexpr(-80.0)  # `blocked.FLOOR`
STATISTICS = tl.constexpr(5)  # per row: `contract.RowStatistics`
PLACES = tl.constexpr(6)  # per example: `contract.RowMarks`
PARTS = tl.constexpr(8)  # numbers of a partial row next to its z: m, prompt, answer, sum p log p, keys
UNSPECIALISED = ("VISIBLE", "SINKS", "visible_b", "out_b", "out_at", "high", "gone", "span")  # never compiled in


@triton.jit
def _vectors(at, d, D: tl.constexpr):
    if d.shape[0] == D:
        return tl.load(at)
    return tl.load(at, mask=(d < D)[None, :], other=0.0)


@triton.jit(do_not_specialize=UNSPECIALISED)
def decode_kernel(
    Q, K, V, Z, SINKS, out_at, VISIBLE, MARKS, OUT, PARTIAL, ARRIVED,
    q_b, q_h, k_b, k_h, k_t, v_b, v_h, v_t, visible_b, out_b, high, gone, span, qk_scale, softcap,
    GROUP: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VISIBLE: tl.constexpr,
    HAS_SINKS: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The keys [split span, split span + span) below `high`, for the GROUP heads of one kv head of one example.

    `gone`: tokens that the cache has forgotten; marks count from the first token. PARTIAL is (example, kv head, split, head of
    the group, BV + 8). ARRIVED (example, kv head) is 0 before and after.
    """
    split, kv, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    splits = tl.num_programs(0)
    unit = b * tl.num_programs(1) + kv
    d, e, row = tl.arange(0, BD), tl.arange(0, BV), tl.arange(0, BM)
    keys = K + b * k_b + kv.to(tl.int64) * k_h
    values = V + b * v_b + kv.to(tl.int64) * v_h
    queries = Q + b * q_b + kv * GROUP * q_h
    q = tl.load(queries + row[:, None] * q_h + d[None, :], mask=(row < GROUP)[:, None] & (d < D)[None, :], other=0.0)
    boundary = tl.load(MARKS + b * PLACES + 3) - gone
    highest = tl.zeros([BM], tl.float32) + FAR
    prompt, answer, p_log_p = (
        tl.zeros([BM, BN], tl.float32),
        tl.zeros([BM, BN], tl.float32),
        tl.zeros([BM, BN], tl.float32),
    )
    counted = tl.zeros([BN], tl.int32)
    z = tl.zeros([BM, BV], tl.float32)
    lane = tl.arange(0, BN)
    for start in range(split * span, tl.minimum(high, split * span + span), BN):
        index = (start + tl.minimum(lane, high - 1 - start)).to(tl.int64)  # clamped, and hidden below
        visible = lane < high - start
        if HAS_VISIBLE:
            visible = visible & (tl.load(VISIBLE + b * visible_b + index) != 0)
            counted += visible.to(tl.int32)
        k = _vectors(keys + index[:, None] * k_t + d[None, :], d, D)
        v = _vectors(values + index[:, None] * v_t + e[None, :], e, DV)
        s = log2_logits(tl.dot(q, tl.trans(k), input_precision=PRECISION), qk_scale, softcap, HAS_CAP)
        s = tl.where(visible[None, :], s, FAR)
        new = tl.maximum(highest, tl.max(s, 1))
        shrink = tl.exp2(highest - new)[:, None]
        off = s - new[:, None]
        p = tl.where(visible[None, :], tl.exp2(off), 0.0)
        p_log_p = shrink * (p_log_p + (highest - new)[:, None] * (prompt + answer)) + p * off
        asked = (start + lane < boundary)[None, :]
        prompt = shrink * prompt + tl.where(asked, p, 0.0)
        answer = shrink * answer + tl.where(asked, 0.0, p)
        z = tl.dot(p.to(v.dtype), v, acc=z * shrink, input_precision=PRECISION)
        highest = new
    line = PARTIAL + ((unit * splits + split) * GROUP + row) * (BV + PARTS)
    mine = row < GROUP
    tl.store(line[:, None] + e[None, :], z, mask=mine[:, None])
    tl.store(line + BV, highest, mask=mine)
    tl.store(line + BV + 1, tl.sum(prompt, 1), mask=mine)
    tl.store(line + BV + 2, tl.sum(answer, 1), mask=mine)
    tl.store(line + BV + 3, tl.sum(p_log_p, 1), mask=mine)
    if HAS_VISIBLE:
        tl.store(line + BV + 4, tl.zeros([BM], tl.float32) + tl.sum(counted, 0).to(tl.float32), mask=mine)
    tl.debug_barrier()  # all of this program's partial sums are written before it arrives
    if tl.atomic_add(ARRIVED + unit, 1) == splits - 1:
        tl.store(ARRIVED + unit, 0)
        _merge(
            Q, keys, Z, VISIBLE, SINKS, MARKS, OUT, PARTIAL, queries, q_h, k_t, visible_b, out_b, out_at, high, gone, qk_scale,
            softcap, splits, kv, b, unit, d, e, row, GROUP, D, DV, HAS_CAP, HAS_VISIBLE, HAS_SINKS, BM, BH, BD, BV,
        )  # fmt: skip


@triton.jit
def _merge(
    Q, keys, Z, VISIBLE, SINKS, MARKS, OUT, PARTIAL, queries, q_h, k_t, visible_b, out_b, out_at, high, gone, qk_scale,
    softcap, splits, kv, b, unit, d, e, row,
    GROUP: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, HAS_CAP: tl.constexpr, HAS_VISIBLE: tl.constexpr,
    HAS_SINKS: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Merge the partial sums of all splits, BM / BH of them at a time, and write z and the row's statistics."""
    at_once: tl.constexpr = BM // BH
    zero = tl.zeros([BM], tl.float32)
    highest, prompt, answer, p_log_p, counted = zero + FAR, zero, zero, zero, zero
    z = tl.zeros([BM, BV], tl.float32)
    for first in range(0, splits, at_once):
        split, head = first + row // BH, row % BH
        there = (split < splits) & (head < GROUP)
        line = PARTIAL + ((unit * splits + split) * GROUP + head) * (BV + PARTS)
        part = tl.load(line[:, None] + e[None, :], mask=there[:, None], other=0.0, cache_modifier=".cg")
        top = tl.load(line + BV, mask=there, other=FAR, cache_modifier=".cg")
        on_prompt = tl.load(line + BV + 1, mask=there, other=0.0, cache_modifier=".cg")
        on_answer = tl.load(line + BV + 2, mask=there, other=0.0, cache_modifier=".cg")
        logs = tl.load(line + BV + 3, mask=there, other=0.0, cache_modifier=".cg")
        if HAS_VISIBLE:
            counted += tl.load(line + BV + 4, mask=there, other=0.0, cache_modifier=".cg")
        new = tl.maximum(highest, top)
        old, more = tl.exp2(highest - new), tl.exp2(top - new)
        p_log_p = old * (p_log_p + (highest - new) * (prompt + answer))
        p_log_p += more * (logs + (top - new) * (on_prompt + on_answer))
        prompt = old * prompt + more * on_prompt
        answer = old * answer + more * on_answer
        z = old[:, None] * z + more[:, None] * part
        highest = new
    tops = tl.reshape(highest, [at_once, BH])
    new = tl.max(tops, 0)  # (head of the group,)
    more = tl.exp2(tops - new[None, :])
    mass = tl.reshape(prompt + answer, [at_once, BH])
    p_log_p = tl.sum(more * (tl.reshape(p_log_p, [at_once, BH]) + (tops - new[None, :]) * mass), 0)
    on_prompt = tl.sum(more * tl.reshape(prompt, [at_once, BH]), 0)
    on_answer = tl.sum(more * tl.reshape(answer, [at_once, BH]), 0)
    total_z = tl.sum(more[:, :, None] * tl.reshape(z, [at_once, BH, BV]), 0)  # (head, value width)
    head = tl.arange(0, BH)
    inside = head < GROUP
    mass = on_prompt + on_answer
    seen = mass > 0
    whole = tl.where(seen, mass, 1.0)
    norm = whole
    if HAS_SINKS:
        sink = tl.load(SINKS + kv * GROUP + head, mask=inside, other=FAR).to(tl.float32) * LOG2E
        norm += tl.exp2(sink - tl.where(seen, new, 0.0))
    number = b * tl.num_programs(1) * GROUP + kv * GROUP + head
    total_z = total_z / norm[:, None]
    at = Z + number[:, None] * DV + e[None, :]
    tl.store(at, total_z.to(Z.dtype.element_ty), mask=inside[:, None] & (e < DV)[None, :])
    out = OUT + out_at + b * out_b + (kv * GROUP + head) * STATISTICS
    keys_seen = tl.zeros([BH], tl.float32) + high
    if HAS_VISIBLE:
        keys_seen = tl.sum(tl.reshape(counted, [at_once, BH]), 0)
    entropy = (tl.log2(whole) - p_log_p / whole) / tl.log2(tl.maximum(keys_seen, 2.0))
    tl.store(out + 1, tl.where(seen, entropy, 0.0), mask=inside)
    x = on_prompt / norm / tl.maximum(tl.load(MARKS + b * PLACES + 4), 1).to(tl.float32)
    y = on_answer / norm / tl.maximum(tl.load(MARKS + b * PLACES + 5), 1).to(tl.float32)
    tl.store(out + 4, x / tl.maximum(x + y, 1.0e-30), mask=inside)
    lse2 = tl.where(seen, new + tl.log2(norm), 0.0)
    q = tl.load(queries + head[:, None] * q_h + d[None, :], mask=inside[:, None] & (d < D)[None, :], other=0.0)
    for mark in tl.static_range(3):  # own, previous, first
        token = tl.load(MARKS + b * PLACES + mark)
        key = token - gone
        there = (token >= 0) & (key >= 0) & (key < high)
        key = tl.where(there, key, 0)
        if HAS_VISIBLE:
            there = there & (tl.load(VISIBLE + b * visible_b + key) != 0)
        k = tl.load(keys + key * k_t + d, mask=d < D, other=0.0)
        s = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], 1)
        s = log2_logits(s, qk_scale, softcap, HAS_CAP) - lse2
        if mark == 0:
            tl.store(out, tl.where(there & seen, tl.maximum(s / LOG2E, FLOOR), FLOOR), mask=inside)
        else:
            tl.store(out + (4 - mark), tl.where(there & seen, tl.exp2(s), 0.0), mask=inside)
