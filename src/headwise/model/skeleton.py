"""A model without values: built on the ``meta`` device, its parameters have shapes and take no memory.

Well under a second for most models. It counts parameters and shows module names before any weight is loaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from headwise.core.errors import ModelError
from headwise.model.library_calls import silence_transformers

__all__ = ["auto_class", "build_skeleton", "is_encoder"]


def build_skeleton(config: Any, name: str) -> nn.Module:
    """The model of a config on the ``meta`` device; `name` is for the error message."""
    trusted = type(config).__module__.startswith("transformers_modules")  # its code already runs
    auto = auto_class(config)
    with silence_transformers(), torch.device("meta"):
        try:
            return auto.from_config(config, trust_remote_code=trusted)
        except Exception as error:  # a model's own code may raise anything
            raise ModelError(
                f"transformers could not build {name} from its config ({type(error).__name__}: {error}); correct the "
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
