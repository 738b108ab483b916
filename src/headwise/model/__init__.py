"""Loading and describing a model: the part of Headwise that knows the files and configs of ``transformers``.

``load`` finds a model (hub, folder, GGUF file, memory) and returns a ``Model``; a ``ModelCard`` describes what the config
alone determines: layers, heads, widths, windows, and which layers have no heads and why. Structure is found by property;
there is no table of model names. Names are loaded on first use: ``ModelCard`` alone loads neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:
    from headwise.model.adapters import packaged_adapter
    from headwise.model.attention_config import LayerCard
    from headwise.model.blocks import decoder_layers, embedding, unembedding
    from headwise.model.cache import cache_folder
    from headwise.model.card import ModelCard
    from headwise.model.digest import check_finite, tokenizer_digest, weights_digest
    from headwise.model.loading import load, read_card
    from headwise.model.model import Model
    from headwise.model.offload import execution_device, is_offloaded, load_parameter, materialize, without_hooks
    from headwise.model.placement import choose_device, choose_dtype
    from headwise.model.sources import DEFAULT
    from headwise.model.stored import StoredModel, open_stored
    from headwise.model.tokens import readable_tokens

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".adapters": "packaged_adapter",
        ".blocks": "decoder_layers embedding unembedding",
        ".cache": "cache_folder",
        ".attention_config": "LayerCard",
        ".card": "ModelCard",
        ".digest": "check_finite tokenizer_digest weights_digest",
        ".loading": "load read_card",
        ".model": "Model",
        ".offload": "execution_device is_offloaded load_parameter materialize without_hooks",
        ".placement": "choose_device choose_dtype",
        ".sources": "DEFAULT",
        ".stored": "StoredModel open_stored",
        ".tokens": "readable_tokens",
    },
)

__all__ = [
    "DEFAULT", "LayerCard", "Model", "ModelCard", "StoredModel", "cache_folder", "check_finite", "choose_device",
    "choose_dtype", "decoder_layers", "embedding", "execution_device", "is_offloaded", "load", "load_parameter",
    "materialize", "open_stored", "packaged_adapter", "read_card", "readable_tokens", "tokenizer_digest",
    "unembedding", "weights_digest", "without_hooks",
]  # fmt: skip
