"""The norm of each head's output, ||z W_O^h||, from the Gram matrix of W_O, without a tensor of the residual stream's size.

Cost: tokens x heads x width^2 products. On a GPU in half precision, one Triton launch that reads z once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.kernels.dispatch import triton_module

KERNELS = "headwise.kernels.triton_reductions"
HALF = (torch.bfloat16, torch.float16)
MAX_WIDTH = 256  # of a head
BLOCK, CHUNK = 256, 64  # tokens, and columns of G, at a time; for heads wider than 128, half as many


@dataclass(frozen=True)
class Gram:
    """G = W W^T of every head of a layer: ||z W||^2 = z G z, without a product with W."""

    whole: Tensor  # (head, width, width) float32
    halves: tuple[Tensor, Tensor, Tensor] | None  # coarse and fine, in z's half precision, and their unit (head,)

    @classmethod
    def of(cls, weight: Tensor) -> Gram:
        """Of W (head, width, hidden)."""
        if not (weight.is_cuda and weight.dtype in HALF):
            weight = weight.float()
            return cls(weight @ weight.transpose(-1, -2), None)
        whole = torch.bmm(weight, weight.transpose(1, 2), out_dtype=torch.float32)  # exact products, summed in float32
        return cls(whole, in_halves(whole, weight.dtype))

    def norms(self, z: Tensor) -> Tensor:
        """||z W|| of z (batch, token, head, width): (batch, head, token)."""
        fits = self.halves is not None and z.dtype == self.halves[0].dtype and z.shape[-1] <= MAX_WIDTH
        if fits and self.halves is not None and triton_module(KERNELS):
            square = fused_sq_norms(z, *self.halves)
        else:
            heads = z.float().transpose(1, 2)  # (batch, head, token, width)
            square = ((heads @ self.whole.to(z.device)) * heads).sum(dim=-1)
        return square.clamp_(min=0).sqrt_()


def in_halves(whole: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Two matrices in half precision whose sum, times the unit (head,), is G up to the last of sixteen bits or more."""
    unit = whole.abs().amax(dim=(1, 2)).clamp(min=torch.finfo(torch.float32).tiny)
    scaled = whole / unit[:, None, None]
    coarse = scaled.to(dtype)
    return coarse, (scaled - coarse.float()).to(dtype), unit


def fused_sq_norms(z: Tensor, coarse: Tensor, fine: Tensor, unit: Tensor) -> Tensor:
    """||z W||^2, (batch, head, token), by the Triton kernel."""
    kernels = triton_module(KERNELS)
    assert kernels is not None
    batch, tokens, heads, width = z.shape
    out = torch.empty(batch, heads, tokens, dtype=torch.float32, device=z.device)
    padded = max(16, 1 << (width - 1).bit_length())
    block, chunk = (BLOCK, CHUNK) if padded <= 128 else (BLOCK // 2, CHUNK // 2)
    kernels.sq_norm_kernel[(-(-tokens // block), batch * heads)](
        z, coarse, fine, out, *z.stride(), tokens, heads, width, BM=block, BC=min(chunk, padded), BD=padded, num_warps=8
    )
    return out.mul_(unit[:, None])
