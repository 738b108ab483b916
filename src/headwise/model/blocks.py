"""A model's modules: its skeleton without values, its decoder layers, embedding and unembedding.

A skeleton is the model built on the ``meta`` device: its parameters have shapes and take no memory (well under a second for
most models). It counts parameters and gives module names before any weight is loaded.

The decoder's layers are found by property: the one ``ModuleList`` below the text decoder with as many members as the card
has layers, each with weights that read and write the hidden state. Lists inside such a list (the experts of a layer) are
parts of a layer. Not exactly one list: refused, with what was found. The attention inside a layer is found at the seam.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from headwise.core.errors import ModelError, reason
from headwise.model.card import ModelCard
from headwise.model.library_calls import silence_transformers
from headwise.model.packed import is_packed


def build_skeleton(config: Any, name: str) -> nn.Module:
    """The model of a config on the ``meta`` device; `name` is for the error message."""
    trusted = type(config).__module__.startswith("transformers_modules")  # its code already runs
    auto = auto_class(config)
    with silence_transformers(), torch.device("meta"):
        try:
            return auto.from_config(config, trust_remote_code=trusted)
        except Exception as error:  # a model's own code may raise anything
            raise ModelError(
                f"transformers could not build {name} from its config ({reason(error)}); correct the "
                "config, or install the transformers version that the model was made with."
            ) from error


def auto_class(config: Any) -> Any:
    """The ``transformers`` class that builds a text-generating model from this config."""
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto._model_mapping or auto.__name__ in (getattr(config, "auto_map", None) or {}):
            return auto
    raise ModelError(
        f"transformers has no text-generating model for a {config.model_type!r} config; Headwise reads decoder-only "
        "language models, so give it one of those."
    )


def is_encoder(config: Any) -> bool:
    """Whether it is a masked language model (BERT); it could be built as a causal model, but was not trained as one."""
    return type(config) in MODEL_FOR_MASKED_LM_MAPPING and getattr(config, "is_decoder", None) is False


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
    """A block both reads and writes the hidden state: at least two matrices, packed or not, have a side of its width."""
    return sum(_matrices(module, hidden) for module in member.modules()) >= 2


def _matrices(module: nn.Module, hidden: int) -> int:
    if is_packed(module):
        return int(hidden in (module.in_features, module.out_features))
    return sum(p.dim() >= 2 and hidden in p.shape for p in module._parameters.values() if p is not None)


def _required(hf: Any, getter: str, what: str) -> nn.Module:
    module = getattr(hf, getter)() if hasattr(hf, getter) else None
    if module is None:
        raise ModelError(f"A {type(hf).__name__} has no {what}; load it with its language-model head.")
    return module
