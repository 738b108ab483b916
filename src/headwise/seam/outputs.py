"""A layer's real output, z, from a fused kernel; with the log-sum-exp where the kernel gives it away.

In order of preference:

1. torch's own fused kernels (CPU; on a GPU flash or cuDNN's, in half precision), called directly: the kernel that
   `scaled_dot_product_attention` would choose, but its log-sum-exp is kept, which saves the reductions a softmax;
2. transformers' own SDPA function, for every mask and device; for a single query whose heads share keys, SDPA with the
   heads of a group as its rows, so that keys and values are not repeated (a decode step takes a sixth less time);
3. the family's own `eager_attention_forward`, where SDPA cannot express what the family does (soft-cap, learned
   sinks). It is called on slices of queries, so that no T x T map is held for long prompts.

A sparse model's gates come before all of these: its z is `model.gate`'s, on every device.

z is (batch, query, head, value width): the input of the output projection, one slice a head.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from headwise.core.errors import SeamError
from headwise.model.gate import attend_gated, gate_of

Kernel = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]  # q, k, v, scale: z as SDPA has it, and lse
EAGER_ROWS = 512  # queries handed to a family's eager function at a time


def attention_output(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """The layer's z and, from the first way only, the log-sum-exp (batch, head, query)."""
    if gate_of(module) is not None:
        return attend_gated(module, q, k, v, mask, scale, **options)[0], None
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        return _eager_output(module, q, k, v, mask, scale, options), None
    if _is_plain(q, k, v, mask, options) and (kernel := _kernel_with_lse(q, k, v, scale)) is not None:
        z, lse = kernel(q, k, v, scale)
        return z.transpose(1, 2).contiguous(), lse
    if (
        q.shape[2] == 1
        and q.shape[1] > k.shape[1]
        and (mask is None or mask.shape[1] == 1)
        and not options.get("dropout")
    ):
        return _one_query(q, k, v, mask, scale), None
    return sdpa_attention_forward(module, q, k, v, mask, scaling=scale, **options)[0], None


def _one_query(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """A decode step: (batch, 1, head, width) of queries (batch, head, 1, width) that see every key the mask shows."""
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # (batch, kv_head, group, width)
    z = scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scale)
    return z.reshape(q.shape[0], 1, q.shape[1], v.shape[3])


def eager_function(module: nn.Module) -> Callable[..., Any]:
    """The `eager_attention_forward` of the file that defines this attention module: the family's own definition."""
    found = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if found is None:
        raise SeamError(
            f"{type(module).__name__} has no eager_attention_forward beside it, so its soft-capped or sink attention "
            "has no exact reference: this family is not supported"
        )
    return found


def eager_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """The additive mask (batch, 1, query, key) that eager functions take."""
    if mask is None:
        queries, keys = q.shape[2], k.shape[2]
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)[None, None]
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, torch.finfo(q.dtype).min)


def _eager_output(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, options: dict[str, Any]
) -> Tensor:
    eager = eager_function(module)
    slices = []
    for start in range(0, q.shape[2], EAGER_ROWS):
        rows = slice(start, start + EAGER_ROWS)
        part = mask[:, :, rows] if mask is not None else eager_mask(None, q, k)[:, :, rows]
        slices.append(eager(module, q[:, :, rows], k, v, eager_mask(part, q, k), scaling=scale, **options)[0])
    return torch.cat(slices, dim=1)


def _is_plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether torch's flash kernels may be called by hand: plain causal sight, equal widths, no gradient."""
    return (
        mask is None
        and q.shape[2] == k.shape[2]
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and not options.get("dropout")
        and options.get("is_causal") is not False
        and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))
    )


def _kernel_with_lse(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Kernel | None:
    """The fused kernel that SDPA would choose for plain causal attention, if it gives its log-sum-exp away."""
    if q.device.type == "cpu":
        return _flash_on_cpu
    if not q.is_cuda or torch.version.hip is not None or q.dtype not in (torch.bfloat16, torch.float16):
        return None
    grouped = q.shape[1] != k.shape[1]
    chosen = torch._fused_sdp_choice(q, k, v, None, 0.0, q.shape[2] > 1, scale=scale, enable_gqa=grouped)
    return _GPU_KERNELS.get(SDPBackend(chosen))


def _flash_on_cpu(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(q, k, v, 0.0, q.shape[2] > 1, scale=scale)[:2]


def _flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, q.shape[2] > 1, scale=scale)[:2]


def _cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    attend = torch.ops.aten._scaled_dot_product_cudnn_attention
    z, lse = attend(q, k, v, None, True, 0.0, q.shape[2] > 1, False, scale=scale)[:2]
    return z, lse.squeeze(-1)


_GPU_KERNELS: dict[SDPBackend, Kernel] = {SDPBackend.FLASH_ATTENTION: _flash, SDPBackend.CUDNN_ATTENTION: _cudnn}
