"""nnsight: a trace over a model with eager attention, whose attention modules give their maps as their second output.

Each layer's map is reduced inside the trace, when the layer has run, and only the sums and the diagonal are saved. The
model that is handed in is switched to eager attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nnsight
import torch
from torch import Tensor


def observer(model: Any, tokenizer: Any, *, logits: bool = True) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Column sums and diagonal of all heads, in a trace. The tokenizer is not needed."""
    model.set_attn_implementation("eager")
    traced = nnsight.NNsight(model if logits else model.model)
    layers = traced.model.layers if logits else traced.layers

    def observe(ids: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), traced.trace(ids, use_cache=False):
            sums, diagonals = nnsight.save([]), nnsight.save([])
            for layer in layers:
                weights = layer.self_attn.output[1]  # (batch, head, query, key)
                sums.append(weights.sum(dim=2))
                diagonals.append(weights.diagonal(dim1=-2, dim2=-1).clone())
        return torch.stack(sums), torch.stack(diagonals)

    return observe
