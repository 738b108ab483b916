"""The attention output z of a layer, from a fused kernel, with the log-sum-exp if the kernel returns it.

In order of preference:

1. torch's own fused kernels (CPU; on a GPU flash or cuDNN's, in half precision), called directly: the kernel that
   `scaled_dot_product_attention` would choose, but with its log-sum-exp, which saves the reductions a softmax;
2. transformers' own SDPA function, for every mask and device; for tokens after a KV cache whose heads share keys, SDPA with
   the heads of a group as its rows, so that keys and values are not repeated (a decode step takes a sixth less time);
3. the family's own `eager_attention_forward`, where SDPA cannot express the attention of the family (soft-cap, learned
   sinks). It is called on slices of queries, so that no T x T map is held for long prompts.

A sparse model uses its gated attention (`model.gate`) instead, on every device.

z is (batch, query, head, value width): the input of the output projection, split by head. The plain computations that
`verify` compares with are here, too: `eager_weights` and `plain_route`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headwise.core.errors import SeamError
from headwise.kernels.attention import Attention
from headwise.model.gate import attend_gated, gate_of
from headwise.seam.instrument import AttentionCall
from headwise.seam.mask import parse_mask

Kernel = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]  # q, k, v, scale: z as SDPA has it, and lse
EAGER_ROWS = 512  # queries per call of a family's eager function
DENSE_GATED = "headwise_dense_gated"  # gated attention on whole maps


def attention_output(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """The z of a layer and, from the first way only, the log-sum-exp (batch, head, query)."""
    if gate_of(module) is not None:
        return attend_gated(module, q, k, v, mask, scale, **options)[0], None
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        return _eager_output(module, q, k, v, mask, scale, options), None
    if _is_plain(module, q, k, v, mask, options) and (kernel := _kernel_with_lse(q, k, v, scale)) is not None:
        z, lse = kernel(q, k, v, scale)
        return z.transpose(1, 2).contiguous(), lse
    shared_keys = q.shape[1] > k.shape[1] and (q.shape[2] == 1 if mask is None else mask.shape[1] == 1)
    if q.shape[2] < k.shape[2] and shared_keys and not options.get("dropout"):  # tokens after a KV cache
        return _grouped_output(q, k, v, mask, scale), None
    return sdpa_attention_forward(module, q, k, v, mask, scaling=scale, **options)[0], None


def _grouped_output(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    batch, heads, queries, width = q.shape
    group = heads // k.shape[1]
    rows = q.reshape(batch, k.shape[1], group * queries, width)  # heads of a group share keys, and a mask
    if mask is not None and queries > 1:
        mask = mask[:, :, None].expand(-1, -1, group, -1, -1).flatten(2, 3)
    z = scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale)
    return z.reshape(batch, heads, queries, v.shape[3]).transpose(1, 2).contiguous()


def eager_function(module: nn.Module) -> Callable[..., Any]:
    """The `eager_attention_forward` of the Python module that defines this attention module."""
    found = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if found is None:
        raise SeamError(
            f"{type(module).__name__} has no eager_attention_forward in its file, so its soft-capped or sink attention "
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


def _is_plain(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether torch's flash kernels may be called directly: plain causal mask, equal widths, no gradient."""
    return (
        mask is None
        and q.shape[2] == k.shape[2]
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and not options.get("dropout")
        and options.get("is_causal") is not False
        and getattr(module, "is_causal", True)  # a vision tower's modules are not
        and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))
    )


def _kernel_with_lse(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Kernel | None:
    """The fused kernel that SDPA would choose for plain causal attention, if it returns its log-sum-exp."""
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


def eager_weights(call: AttentionCall, dtype: torch.dtype = torch.float32) -> Tensor:
    """The attention weights (batch, head, query, key) of the family's own eager function.

    They are its output for values that are unit vectors, not the weights it returns: some families scale these afterwards.
    It gets the mask that transformers made, not the parsed one. Most families compute the softmax in float32, whatever
    `dtype` is.
    """
    a = call.attention
    options = {"softcap": a.softcap} if a.softcap is not None else {}
    if a.sinks is not None:
        options["s_aux"] = a.sinks  # type: ignore[assignment]
    q, k = a.q.to(dtype), a.k.to(dtype)
    v = torch.eye(k.shape[2], dtype=dtype, device=k.device).expand(*k.shape[:2], -1, -1)
    z: Tensor = eager_function(call.module)(
        call.module, q, k, v, eager_mask(call.raw_mask, q, k), scaling=a.scale, dropout=0.0, **options
    )[0]
    weights = z.transpose(1, 2)
    return weights if a.gate is None else weights * (gate_logits(call) > 0)


def gate_logits(call: AttentionCall) -> Tensor:
    """(batch, head, query, key): s + b of a sparse model in float64; edges with a positive value are open."""
    a = call.attention
    logits = a.q.double() @ a.k.double().repeat_interleave(a.group, dim=1).transpose(-1, -2) * a.scale
    if a.softcap is not None:
        logits = torch.tanh(logits / a.softcap) * a.softcap
    assert a.gate is not None
    return logits + a.gate


def plain_route(hf: nn.Module) -> str:
    """The attention to compare with: the family's eager one; for a sparse model the same with closed edges cut, in float64."""
    if gate_of(hf) is None:
        return "eager"
    AttentionInterface.register(DENSE_GATED, _dense_gated)
    AttentionMaskInterface.register(DENSE_GATED, sdpa_mask)
    return DENSE_GATED


def _dense_gated(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None, **rest: Any
) -> tuple[Tensor, None]:
    parsed = parse_mask(mask, q.shape[2], k.shape[2], q.device)
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    a = Attention(q, k, scale, parsed, rest.get("softcap"), gate=gate_of(module))
    z = a.weights(dtype=torch.float64) @ v.double().repeat_interleave(a.group, dim=1)
    return z.transpose(1, 2).to(q.dtype).contiguous(), None
