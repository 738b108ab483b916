"""Finds a model's blocks by what they are, not by what they are called.

The decoder's layers are the one ``ModuleList`` below the text decoder that has as many members as the card has layers
and whose members each hold weights that read or write the hidden state. Lists inside a found list (the experts of a
layer, say) are parts of a layer and do not count. Not exactly one: refused, with what was found.

This module does not know attention: which of a layer's parts is its attention, and where a head's output leaves it,
is found at the seam.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard

__all__ = ["decoder_layers", "embedding", "unembedding"]


def decoder_layers(model: Any, card: ModelCard | None = None) -> nn.ModuleList:
    """The layers of the decoder, in order; ``model`` is a ``transformers`` model, or what ``load`` returned."""
    hf = getattr(model, "hf", model)
    card = card or getattr(model, "card", None) or ModelCard.from_config(hf.config)
    decoder = hf.get_decoder() if hasattr(hf, "get_decoder") else hf  # beside it: a vision tower, as deep perhaps
    outer = _layer_lists(decoder, card) or _layer_lists(hf, card)
    if len(outer) != 1:
        names = f"several ({', '.join(outer)}) were" if outer else "none was"
        raise ModelError(
            f"{card.id} should have exactly one list of {card.layers} decoder layers, but {names} found; Headwise "
            "cannot tell its layers apart, so it does not read this model."
        )
    return next(iter(outer.values()))


def embedding(model: Any) -> nn.Module:
    """The module that turns token ids into hidden states."""
    return _required(getattr(model, "hf", model), "get_input_embeddings", "input embedding")


def unembedding(model: Any) -> nn.Module:
    """The module that turns hidden states into logits."""
    return _required(getattr(model, "hf", model), "get_output_embeddings", "output embedding")


def _layer_lists(root: nn.Module, card: ModelCard) -> dict[str, nn.ModuleList]:
    found = {name: m for name, m in root.named_modules() if isinstance(m, nn.ModuleList) and _is_layers(m, card)}
    return {name: m for name, m in found.items() if not any(name.startswith(f"{other}.") for other in found)}


def _is_layers(members: nn.ModuleList, card: ModelCard) -> bool:
    return len(members) == card.layers and all(_touches_hidden_state(member, card.hidden_size) for member in members)


def _touches_hidden_state(member: nn.Module, hidden: int) -> bool:
    """A block both reads and writes the hidden state: two matrices or more have a side of its width."""
    return sum(p.dim() >= 2 and hidden in p.shape for p in member.parameters()) >= 2


def _required(hf: Any, getter: str, what: str) -> nn.Module:
    module = getattr(hf, getter)() if hasattr(hf, getter) else None
    if module is None:
        raise ModelError(f"A {type(hf).__name__} has no {what}; load it with its language-model head.")
    return module
