"""What the seam cannot measure right, it refuses, with the reason."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.seam.structure import Structure

UNDERSTOOD = {"s_aux", "position_ids", "cache_position", "attention_mask"}  # tensors a layer may pass along


def refuse_unseeable(structure: Structure) -> None:
    """Before anything runs: families without softmax heads, or whose files never look the attention function up."""
    card = structure.card
    if not structure.attention_layers:
        reasons = {layer.reason for layer in card.per_layer if layer.reason}
        raise SeamError(
            f"{card.id} has no attention heads to read ({'; '.join(sorted(reasons))}); use a model with softmax attention"
        )
    if not any(hasattr(sys.modules.get(file), "ALL_ATTENTION_FUNCTIONS") for file in structure.files):
        raise SeamError(
            f"{card.id} ({card.family}) computes its attention by itself and never asks transformers' "
            "AttentionInterface, so its heads cannot be observed; use a family that does (llama, qwen, gemma, gpt2 ...)"
        )


def refuse_recomputing(structure: Structure) -> None:
    """Before a pass: layers that run a second time in the backward pass would run without their interventions."""
    if any(getattr(layer, "gradient_checkpointing", False) and layer.training for layer in structure.layers):
        raise SeamError(
            f"{structure.card.id} is in training mode with gradient checkpointing, which runs layers again after the "
            "pass was observed; call model.eval() or model.gradient_checkpointing_disable() first"
        )


def refuse_unseen(structure: Structure, seen: Counter[int]) -> None:
    """After a pass: every attention layer must have come by exactly once."""
    expected = set(structure.attention_layers)
    missing = sorted(expected - seen.keys())
    extra = sorted(seen.keys() - expected)
    twice = sorted(layer for layer, times in seen.items() if times > 1)
    for layers, what in (
        (missing, "did not come by the attention interface"),
        (extra, "was declared to have no softmax attention, but called it"),
        (twice, "called its attention more than once"),
    ):
        if layers:
            raise SeamError(
                f"{structure.card.id}: layer {', '.join(map(str, layers))} {what} in this pass, so its heads cannot be "
                "told apart; this model is refused rather than measured in part"
            )


def refuse_heads(structure: Structure, layer: int, heads: int) -> None:
    """Inside a pass: a layer with other heads than its config says. Maps are sized and named by the config."""
    expected = structure.card.per_layer[layer].heads
    if structure.card.per_layer[layer].reason is None and heads != expected:
        raise SeamError(
            f"layer {layer} of {structure.card.id} attends with {heads} heads, and its config says {expected}; "
            "correct the config, or report this family"
        )


def refuse_unlike_padding(structure: Structure, told: Tensor | None, masked: Tensor | None) -> None:
    """Inside a pass: padding that the arguments of the call did not tell of. None: every token is real."""
    if masked is not None and bool((~masked if told is None else told & ~masked).any()):
        raise SeamError(
            f"a layer's mask in {structure.card.id} hides tokens that nothing in the call of its decoder told to be "
            "padding, so it is not clear which tokens are real; pass attention_mask to the model"
        )


def refuse_options(layer: int, module: nn.Module, mask: Any, options: dict[str, Any]) -> None:
    """Inside a pass: what a layer hands to its attention beyond q, k, v and a mask."""
    if mask is not None and not isinstance(mask, Tensor):
        raise SeamError(f"layer {layer} uses a {type(mask).__name__} as its mask; load the model with SDPA attention")
    if options.get("is_causal") is False or (mask is None and getattr(module, "is_causal", True) is False):
        raise SeamError(f"layer {layer} attends in both directions; Headwise reads causal decoders only")
    if options.get("dropout"):
        raise SeamError("the model is in training mode with attention dropout; call model.eval() first")
    for name, value in options.items():
        if isinstance(value, Tensor) and name not in UNDERSTOOD:
            raise SeamError(
                f"layer {layer} ({type(module).__name__}) hands its attention a tensor {name!r} that changes the "
                "weights in a way the reductions do not know; this family is refused rather than measured wrong"
            )
