"""What a layer's weights and output should be, computed the plain way: what `verify` holds the seam to.

For a dense model that is the family's own eager function. For a sparse one (see `kernels.gated`) it is the same with the
closed edges cut, on whole maps, in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise.kernels import Attention
from headwise.model.gate import gate_of
from headwise.seam.attention_call import AttentionCall
from headwise.seam.mask import parse_mask
from headwise.seam.outputs import eager_function, eager_mask
from headwise.seam.structure import Structure

WHOLE_MAPS = "headwise_gates_on_whole_maps"


def eager_weights(call: AttentionCall, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weights (batch, head, query, key) that the family's own eager function gives every value in this call.

    Read off its output for values that are unit vectors, not from the weights it returns: some families scale these
    afterwards. It gets the mask that transformers made, not what the seam has made of it. Most families take their
    softmax in float32, whatever `dtype` says.
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
    """(batch, head, query, key): what a sparse model's edges are open above nought by, from q and k by the book."""
    a = call.attention
    logits = a.q.double() @ a.k.double().repeat_interleave(a.group, dim=1).transpose(-1, -2) * a.scale
    if a.softcap is not None:
        logits = torch.tanh(logits / a.softcap) * a.softcap
    assert a.gate is not None
    return logits + a.gate


def plain_route(structure: Structure) -> str:
    """The attention to compare with: the family's eager one, or for a sparse model gates on whole maps."""
    if gate_of(structure.hf) is None:
        return "eager"
    AttentionInterface.register(WHOLE_MAPS, _gates_on_whole_maps)
    AttentionMaskInterface.register(WHOLE_MAPS, sdpa_mask)
    return WHOLE_MAPS


def _gates_on_whole_maps(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None, **rest: Any
) -> tuple[Tensor, None]:
    sight = parse_mask(mask, q.shape[2], k.shape[2], q.device)
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    a = Attention(q, k, scale, sight, rest.get("softcap"), gate=gate_of(module))
    z = a.weights(dtype=torch.float64) @ v.double().repeat_interleave(a.group, dim=1)
    return z.transpose(1, 2).to(q.dtype).contiguous(), None
