"""||z W_O^h|| of every head and token, in Triton: z is read once, and nothing of its size is written.

    ||z W||^2 = z G z^T,   G = W W^T  (width x width)

z is in half precision. G comes as two matrices of that precision whose sum it is, to sixteen bits or more: multiplied
twice on the tensor cores, that is as good as float32 and quicker.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def squares(
    Z, COARSE, FINE, OUT, z_b, z_t, z_h, z_d, T, H, D,
    BM: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """(batch, head, token) of one block of tokens of one head and example."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    token = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    rows = Z + b * z_b + h * z_h + token[:, None] * z_t
    z = tl.load(rows + d[None, :] * z_d, mask=(token < T)[:, None] & (d < D)[None, :], other=0.0)
    total = tl.zeros([BM], tl.float32)
    for start in range(0, D, BC):
        c = start + tl.arange(0, BC)
        place = h * D * D + d[:, None] * D + c[None, :]
        inside = (d < D)[:, None] & (c < D)[None, :]
        written = tl.dot(z, tl.load(COARSE + place, mask=inside, other=0.0))
        written = tl.dot(z, tl.load(FINE + place, mask=inside, other=0.0), acc=written)
        own = tl.load(rows + c[None, :] * z_d, mask=(token < T)[:, None] & (c < D)[None, :], other=0.0)
        total += tl.sum(written * own.to(tl.float32), 1)
    tl.store(OUT + bh * T + token, total, mask=token < T)
