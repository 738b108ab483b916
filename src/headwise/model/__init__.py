"""Loading and describing a model: the half of Headwise that knows ``transformers``' files and configs.

``load`` finds a model wherever it is (hub, folder, GGUF file, memory) and returns a ``Model``; a ``ModelCard`` says
what a config alone tells: layers, heads, widths, windows, and which layers have no heads and why. Structure is found by
property; there is no table of model names.

Import order: facts, quiet, card, blocks; offload, digest, tokens, model; cache, gguf_file, default; failures, gate,
adapters, spread, placement, loading; packaged; checkpoint, stored.
"""

from headwise.model.blocks import decoder_layers, embedding, unembedding
from headwise.model.cache import cache_folder
from headwise.model.card import LayerCard, ModelCard
from headwise.model.default import DEFAULT
from headwise.model.digest import check_finite, tokenizer_digest, weights_digest
from headwise.model.loading import load, read_card
from headwise.model.model import Model
from headwise.model.offload import bare, is_offloaded, runs_on, values_of, whole
from headwise.model.packaged import packaged_adapter
from headwise.model.placement import choose_device, choose_dtype
from headwise.model.stored import StoredModel, open_stored
from headwise.model.tokens import readable

__all__ = [
    "DEFAULT",
    "LayerCard",
    "Model",
    "ModelCard",
    "StoredModel",
    "bare",
    "cache_folder",
    "check_finite",
    "choose_device",
    "choose_dtype",
    "decoder_layers",
    "embedding",
    "is_offloaded",
    "load",
    "open_stored",
    "packaged_adapter",
    "read_card",
    "readable",
    "runs_on",
    "tokenizer_digest",
    "unembedding",
    "values_of",
    "weights_digest",
    "whole",
]
