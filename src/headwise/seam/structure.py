"""The parts of a model the seam needs, found by property and not by name.

- the decoder: the module that holds the list of layers; one call of it is one forward pass;
- which layer each module belongs to: by containment, so vision towers and other encoders stay out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.dims import head_name
from headwise.core.errors import DataError, SeamError
from headwise.model import ModelCard, decoder_layers, runs_on


class Structure:
    """A transformers model with its parts at hand. Make one and hand it to many observations."""

    def __init__(self, model: Any):
        self.hf: nn.Module = getattr(model, "hf", model)
        self.card: ModelCard = getattr(model, "card", None) or ModelCard.from_config(self.hf.config)
        self.layers = decoder_layers(self.hf, self.card)
        self.decoder = _parent(self.hf, self.layers)

    @classmethod
    def of(cls, model: Any) -> Structure:
        """The structure of a model, or the one that was made of it before."""
        return model if isinstance(model, Structure) else cls(model)

    @cached_property
    def layer_of(self) -> dict[int, int]:
        """id(module) -> layer, for every module inside a layer."""
        return {id(module): index for index, layer in enumerate(self.layers) for module in layer.modules()}

    @cached_property
    def files(self) -> frozenset[str]:
        """The modules, in Python's sense, that the layers are written in."""
        return frozenset(type(module).__module__ for layer in self.layers for module in layer.modules())

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that must show up at the seam."""
        return self.card.attention_layers

    def require_heads(self, heads: Iterable[tuple[int, int]]) -> None:
        """Refuse (layer, head) pairs that this model does not have."""
        for layer, head in heads:
            name = head_name(layer, head)
            if not 0 <= layer < self.card.layers:
                raise DataError(f"there is no head {name}: {self.card.id} has layers 0 to {self.card.layers - 1}")
            found = self.card.per_layer[layer]
            if found.reason is not None:
                raise DataError(f"there is no head {name}: layer {layer} has none ({found.reason})")
            if not 0 <= head < found.heads:
                raise DataError(
                    f"there is no head {name}: layer {layer} of {self.card.id} has heads 0 to {found.heads - 1}"
                )

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return runs_on(self.hf)

    def few_tokens(self, count: int = 3) -> Tensor:
        """Some token ids any model accepts, (1, count)."""
        return (torch.arange(count, device=self.device)[None] * 7 + 5) % self.card.vocabulary_size


def _parent(root: nn.Module, child: nn.Module) -> nn.Module:
    for module in root.modules():
        if any(one is child for one in module.children()):
            return module
    raise SeamError("the layers belong to no module that can be called; load the whole model")
