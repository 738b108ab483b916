"""The parts of a model the seam needs, found by property and not by name, and what the seam refuses to measure.

- The decoder is the module that holds the list of layers; one call of it is one forward pass.
- Modules belong to a layer by containment, so vision towers and other encoders are left out.
- What cannot be measured correctly is refused, with the reason: before, during or after a pass.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.dims import head_name
from headwise.core.errors import DataError, SeamError
from headwise.model import ModelCard, decoder_layers, execution_device

KNOWN_TENSORS = {"s_aux", "position_ids", "cache_position", "attention_mask"}  # that a layer may pass to its attention


class Structure:
    """A transformers model and its parts. Make one and use it for many observations."""

    def __init__(self, model: Any):
        self.hf: nn.Module = getattr(model, "hf", model)
        self.card: ModelCard = getattr(model, "card", None) or ModelCard.from_config(self.hf.config)
        self.layers = decoder_layers(self.hf, self.card)
        self.decoder = parent_of(self.hf, self.layers)[0]
        self.first_layer = 0  # layers before it do not run: their outputs are those of an earlier pass (`resume`)

    @classmethod
    def of(cls, model: Any) -> Structure:
        """The structure of a model; a structure is returned as it is."""
        return model if isinstance(model, Structure) else cls(model)

    @cached_property
    def layer_of(self) -> dict[int, int]:
        """id(module) -> layer, for every module inside a layer."""
        return {id(module): index for index, layer in enumerate(self.layers) for module in layer.modules()}

    @cached_property
    def files(self) -> frozenset[str]:
        """The Python modules that define the layers."""
        return frozenset(type(module).__module__ for layer in self.layers for module in layer.modules())

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that must reach the seam in every pass."""
        return self.card.attention_layers

    def require_heads(self, heads: Iterable[tuple[int, int]]) -> None:
        """Refuse (layer, head) pairs that this model does not have."""
        for layer, head in heads:
            require_head(self.card, layer, head)

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return execution_device(self.hf)

    def few_tokens(self, count: int = 3) -> Tensor:
        """Some token ids any model accepts, (1, count)."""
        return (torch.arange(count, device=self.device)[None] * 7 + 5) % self.card.vocabulary_size


def require_head(card: ModelCard, layer: int, head: int) -> None:
    """Refuse a head that the model does not have."""
    name = head_name(layer, head)
    if not 0 <= layer < card.layers:
        raise DataError(f"there is no head {name}: {card.id} has layers 0 to {card.layers - 1}")
    found = card.per_layer[layer]
    if found.reason is not None:
        raise DataError(f"there is no head {name}: layer {layer} has none ({found.reason})")
    if not 0 <= head < found.heads:
        raise DataError(f"there is no head {name}: layer {layer} of {card.id} has heads 0 to {found.heads - 1}")


def parent_of(root: nn.Module, child: nn.Module) -> tuple[nn.Module, str]:
    """The module that holds a child, and the name of the child in it."""
    for module in root.modules():
        for name, one in module.named_children():
            if one is child:
                return module, name
    raise SeamError("the layers belong to no module that can be called; load the whole model")


def refuse_unseeable(structure: Structure) -> None:
    """Before a pass: families without softmax heads, or that never look up the attention function."""
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
    """Before a pass: layers that are recomputed in the backward pass would run without their interventions."""
    if any(getattr(layer, "gradient_checkpointing", False) and layer.training for layer in structure.layers):
        raise SeamError(
            f"{structure.card.id} is in training mode with gradient checkpointing, which runs layers again after the "
            "pass was observed; call model.eval() or model.gradient_checkpointing_disable() first"
        )


def refuse_unseen(structure: Structure, seen: Counter[int]) -> None:
    """After a pass: every attention layer that runs must have reached the seam exactly once."""
    expected = {layer for layer in structure.attention_layers if layer >= structure.first_layer}
    missing = sorted(expected - seen.keys())
    extra = sorted(seen.keys() - expected)
    twice = sorted(layer for layer, times in seen.items() if times > 1)
    for layers, what in (
        (missing, "did not reach the attention interface"),
        (extra, "was declared to have no softmax attention, but called it"),
        (twice, "called its attention more than once"),
    ):
        if layers:
            raise SeamError(
                f"{structure.card.id}: layer {', '.join(map(str, layers))} {what} in this pass, so its heads cannot be "
                "identified; this model is refused rather than measured in part"
            )


def refuse_heads(structure: Structure, layer: int, heads: int) -> None:
    """During a pass: a layer whose number of heads is not that of the config, by which maps are sized and named."""
    expected = structure.card.per_layer[layer].heads
    if structure.card.per_layer[layer].reason is None and heads != expected:
        raise SeamError(
            f"layer {layer} of {structure.card.id} attends with {heads} heads, and its config says {expected}; "
            "correct the config, or report this family"
        )


def refuse_unlike_padding(structure: Structure, valid: Tensor | None, masked: Tensor | None) -> None:
    """During a pass: a layer's mask hides tokens that are real by the decoder's arguments. None: every token is real."""
    if masked is not None and bool((~masked if valid is None else valid & ~masked).any()):
        raise SeamError(
            f"a layer's mask in {structure.card.id} hides tokens that no argument of its decoder marks as padding, so "
            "it is not clear which tokens are real; pass attention_mask to the model"
        )


def refuse_options(layer: int, module: nn.Module, mask: Any, options: dict[str, Any]) -> None:
    """During a pass: what a layer passes to its attention beyond q, k, v and a mask."""
    if mask is not None and not isinstance(mask, Tensor):
        raise SeamError(f"layer {layer} uses a {type(mask).__name__} as its mask; load the model with SDPA attention")
    if options.get("is_causal") is False or (mask is None and getattr(module, "is_causal", True) is False):
        raise SeamError(f"layer {layer} attends in both directions; Headwise reads causal decoders only")
    if options.get("dropout"):
        raise SeamError("the model is in training mode with attention dropout; call model.eval() first")
    for name, value in options.items():
        if isinstance(value, Tensor) and name not in KNOWN_TENSORS:
            raise SeamError(
                f"layer {layer} ({type(module).__name__}) passes its attention a tensor {name!r} that changes the "
                "weights in a way the reductions do not know; this family is refused rather than measured wrong"
            )
