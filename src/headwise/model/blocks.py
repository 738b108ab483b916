"""A model's decoder layers, embedding and unembedding, found by property instead of by name.

The decoder's layers are the one ``ModuleList`` below the text decoder with as many members as the card has layers, each
with weights that read and write the hidden state. Lists inside such a list (the experts of a layer) are parts of a layer.
Not exactly one list: refused, with what was found. The attention inside a layer is found at the seam.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard

__all__ = ["decoder_layers", "embedding", "unembedding"]


def decoder_layers(model: Any, card: ModelCard | None = None) -> nn.ModuleList:
    """The decoder's layers, in order; ``model`` is a ``transformers`` model or a `Model`."""
    hf = getattr(model, "hf", model)
    card = card or getattr(model, "card", None) or ModelCard.from_config(hf.config)
    decoder = hf.get_decoder() if hasattr(hf, "get_decoder") else hf  # excludes a vision tower of the same depth
    outer = _layer_lists(decoder, card) or _layer_lists(hf, card)
    if len(outer) != 1:
        names = f"several ({', '.join(outer)}) were" if outer else "none was"
        raise ModelError(
            f"{card.id} should have exactly one list of {card.layers} decoder layers, but {names} found; Headwise "
            "cannot identify its layers, so it does not read this model."
        )
    return next(iter(outer.values()))


def embedding(model: Any) -> nn.Module:
    """The module that maps token ids to hidden states."""
    return _required(getattr(model, "hf", model), "get_input_embeddings", "input embedding")


def unembedding(model: Any) -> nn.Module:
    """The module that maps hidden states to logits."""
    return _required(getattr(model, "hf", model), "get_output_embeddings", "output embedding")


def _layer_lists(root: nn.Module, card: ModelCard) -> dict[str, nn.ModuleList]:
    found = {
        name: module
        for name, module in root.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == card.layers
        and all(_uses_hidden_state(member, card.hidden_size) for member in module)
    }
    return {name: m for name, m in found.items() if not any(name.startswith(f"{other}.") for other in found)}


def _uses_hidden_state(member: nn.Module, hidden: int) -> bool:
    """A block both reads and writes the hidden state: at least two matrices have a side of its width."""
    return sum(p.dim() >= 2 and hidden in p.shape for p in member.parameters()) >= 2


def _required(hf: Any, getter: str, what: str) -> nn.Module:
    module = getattr(hf, getter)() if hasattr(hf, getter) else None
    if module is None:
        raise ModelError(f"A {type(hf).__name__} has no {what}; load it with its language-model head.")
    return module
