"""TransformerLens: a hook on every `hook_pattern` that reduces the map at once; nothing of T x T is kept.

TransformerLens reimplements the model's attention in plain torch, so that its hooks can see scores and maps; the model
that is handed in is changed for good. It cannot go without its logits unless it stops after the last block, which
leaves out the last norm too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge


def observer(model: Any, tokenizer: Any, *, logits: bool = True) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Column sums and diagonal of all heads, by hooks."""
    device = next(model.parameters()).device
    name = model.config.name_or_path or "random weights"
    bridge = TransformerBridge.boot_transformers(
        name, hf_model=model, tokenizer=tokenizer, device=device, dtype=model.dtype
    )
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
    ends = {} if logits else {"stop_at_layer": bridge.cfg.n_layers}

    def observe(ids: Tensor) -> tuple[Tensor, Tensor]:
        sums: dict[str, Tensor] = {}
        diagonals: dict[str, Tensor] = {}

        def reduce(pattern: Tensor, hook: Any) -> None:  # (batch, head, query, key)
            sums[hook.name] = pattern.sum(dim=2)
            diagonals[hook.name] = pattern.diagonal(dim1=-2, dim2=-1).clone()

        hooks = [(name, reduce) for name in names]
        with torch.no_grad():
            bridge.run_with_hooks(ids, return_type="logits", fwd_hooks=hooks, use_cache=False, **ends)
        return torch.stack([sums[name] for name in names]), torch.stack([diagonals[name] for name in names])

    return observe
