"""What queries give to the few keys they ask for: a program holds some sorted queries (see `meetings`), each in several heads.

It walks over the stretches of sorted keys that may be theirs; vectors are fetched by their places, so nothing is moved in
memory. Heads that share their keys are held together, HEADS of them: fewer queries a tile, hence shorter stretches, and
each key is fetched once for all. A weight counts where the ids are the same and the key is earlier than the query.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headwise.kernels.tiles import FAR, block_of, log2_logits


@triton.jit
def met(
    Q, K, VALID, q_b, q_h, q_t, q_d, k_b, k_h, k_t, k_d, H, GROUP, TQ, TK, OFFSET, D: tl.constexpr, qk_scale, softcap, window,
    LSE2, QUERIES, QUERY_IDS, KEYS, KEY_IDS, LOW, HIGH, OUT, out_stride, SIDES: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_VALID: tl.constexpr, HAS_WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of sorted queries of HEADS heads, for one asking and all its lists of keys."""
    block, group, asking = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    several = H // HEADS
    b, first = group // several, group % several * HEADS
    batch = tl.num_programs(1) // several
    slot = block * (BM // HEADS) + tl.arange(0, BM) // HEADS
    head = first + tl.arange(0, BM) % HEADS
    inside = slot < TQ
    row = tl.load(QUERIES + (asking * batch + b) * TQ + slot, mask=inside, other=0)
    wanted = tl.load(QUERY_IDS + (asking * batch + b) * TQ + slot, mask=inside, other=-2)
    own = row + OFFSET
    d = tl.arange(0, BD)
    q = block_of(Q, b, head[:, None], row, d, q_b, q_h, q_t, q_d, TQ, D, True)
    line = (b * H + head) * TQ + row
    lse2 = tl.load(LSE2 + line, mask=inside, other=-FAR)
    for side in tl.static_range(SIDES):
        plane = asking * SIDES + side
        stretch = (plane * batch + b) * tl.num_programs(0) + block
        keys = (plane * batch + b) * TK
        high = tl.load(HIGH + stretch)
        total = tl.zeros([BM, BN], tl.float32)
        for start in range(tl.load(LOW + stretch), high, BN):
            place = start + tl.arange(0, BN)
            there = place < high
            key = tl.load(KEYS + keys + place, mask=there, other=0)
            named = tl.load(KEY_IDS + keys + place, mask=there, other=-1)
            k = block_of(K, b, first // GROUP, key, d, k_b, k_h, k_t, k_d, TK, D, True)
            s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            s = log2_logits(s, qk_scale, softcap, HAS_CAP) - lse2[:, None]
            seen = (wanted[:, None] == named[None, :]) & (key[None, :] < own[:, None])
            if HAS_WINDOW:
                seen = seen & (own[:, None] - key[None, :] < window)
            if HAS_VALID:
                seen = seen & (tl.load(VALID + b * TK + key) != 0)[None, :]
            total += tl.exp2(tl.where(seen, s, FAR))
        tl.store(OUT + plane * out_stride + line, tl.sum(total, 1), mask=inside)
