"""The attention of each layer as a ``transformers`` config describes it.

Question: how many heads has layer *l*, how wide are they, and which keys are visible to a query?

There is no table of model names. A value is looked up under the attribute names that config classes share, in this order:
the layer's own config (``per_layer_config``), a list with one entry per layer, the model's one value. The labels that
configs use for kinds of layers (``layer_types``) are listed below; a layer with an unknown label has no heads, with the
label as the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.core.errors import ModelError

FULL = {"full_attention", "attention", "global", "hybrid"}  # hybrid: attention heads parallel to a recurrent path
WINDOW = {"sliding_attention", "local", "hybrid_sliding"}
CHUNKED = {"chunked_attention"}
INDEXED = {"indexed_attention"}  # softmax over keys that a small indexer chooses: heads, but no fixed range of keys
NO_HEADS = {
    "linear_attention": "linear attention: no attention map",
    "mamba": "mamba: no heads",
    "recurrent": "recurrent: no attention map",
    "conv": "convolution: no attention map",
    "moe": "experts alone: no attention in this layer",
    "mlp": "MLP alone: no attention in this layer",
}

HEADS = ("num_attention_heads", "num_query_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads")
WINDOW_SIZES = ("sliding_window", "attention_window_size", "window_size")
STATE_SIZES = ("state_size", "mamba_d_state", "ssm_state_size")


@dataclass(frozen=True)
class LayerCard:
    """One layer. A layer without softmax attention has no heads (0) and a ``reason``.

    Examples:
        >>> model.card.per_layer[2]
        LayerCard(index=2, kind='full', window=None, heads=6, kv_heads=6, head_dim=64, value_dim=64, reason=None)
    """

    index: int  # 0: the layer after the embedding
    kind: str  # "full", "window", "chunked" or "other"
    window: int | None  # visible keys per query, itself included; the chunk length for "chunked"
    heads: int  # query heads
    kv_heads: int  # key-value heads
    head_dim: int  # width of a query and a key
    value_dim: int  # width of a value, and of a head's output z
    reason: str | None  # "linear attention: no attention map"


def text_config(config: Any) -> Any:
    """The part of a config that describes the text decoder: the config itself, or a part of a multimodal one."""
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"A {config.model_type!r} model has an encoder and a decoder; Headwise reads decoder-only language models, "
            "so give it one of those."
        )
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise ModelError(
            f"The config of a {config.model_type!r} model has several text parts, so it is not clear which one to "
            f"read; load the text model alone and give that ({error})."
        ) from error


def find(config: Any, *names: str, layer: int | None = None) -> Any:
    """The first of ``names`` that the config sets to something; a list with one entry per layer is indexed."""
    for name in names:
        value = getattr(config, f"{name}_per_layer", None) if layer is not None else None
        value = getattr(config, name, None) if value is None else value
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = value[layer] if layer is not None and layer < len(value) else None
        if value is not None:
            return value
    return None


def layer_labels(config: Any, layers: int) -> list[str]:
    """The config's label for the kind of each layer; ``"attention"`` if it has none."""
    for name in ("layers_block_type", "layer_types", "attention_layers"):
        labels = getattr(config, name, None)
        if labels:
            if len(labels) != layers:
                raise ModelError(
                    f"The config of a {config.model_type!r} model lists {len(labels)} layers in {name!r} but says it "
                    f"has {layers}; correct the config."
                )
            return [str(label) for label in labels]
    only_state = find(config, *HEADS) is None and find(config, *STATE_SIZES) is not None
    return ["mamba" if only_state else "attention"] * layers


def layer_card(config: Any, layer: int, label: str) -> LayerCard:
    """One layer; ``config`` may be that of the model or that of the layer."""
    reason = _no_heads(config, label)
    if reason is not None:
        return LayerCard(layer, "other", None, 0, 0, 0, 0, reason)
    kind, window = _visible(config, layer, label)
    prefix = "swa_" if kind == "window" else ""  # some configs give window layers their own heads
    heads = _required(config, "how many attention heads it has", _with(prefix, HEADS), layer)
    kv_heads = _kv_heads(config, layer, prefix, heads)
    if kv_heads < 1 or heads % kv_heads:
        raise ModelError(
            f"The config of a {config.model_type!r} model has {heads} heads over {kv_heads} key-value heads in layer "
            f"{layer}, which does not divide; correct the config."
        )
    head_dim, value_dim = _widths(config, layer, prefix, heads)
    return LayerCard(layer, kind, window, heads, kv_heads, head_dim, value_dim, None)


def _no_heads(config: Any, label: str) -> str | None:
    skipped = [part for part in getattr(config, "skip", None) or () if "att" in str(part)]
    if skipped:
        return f"{skipped[0]} is skipped in this layer"
    if label == "linear_attention" and find(config, *STATE_SIZES) is not None:
        label = "mamba"
    if label in FULL | WINDOW | CHUNKED | INDEXED:
        return None
    return NO_HEADS.get(label, f"{label}: not a softmax attention that Headwise knows")


def _visible(config: Any, layer: int, label: str) -> tuple[str, int | None]:
    """The keys visible to a query of this layer: the kind, and how many."""
    if label in CHUNKED:
        return "chunked", _required(config, "how long an attention chunk is", ("attention_chunk_size",), layer)
    if label in WINDOW:
        return "window", _required(config, "how wide its attention window is", WINDOW_SIZES, layer)
    if label in INDEXED:
        return "other", None
    if label == "attention" and getattr(config, "use_sliding_window", True):  # one window for all layers
        window = find(config, *WINDOW_SIZES, layer=layer)
        if window is not None:
            return "window", int(window)
    return "full", None


def _kv_heads(config: Any, layer: int, prefix: str, heads: int) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    if find(config, "kv_lora_rank") is not None:  # latent attention expands its keys to every head
        return heads
    found = find(config, *_with(prefix, KV_HEADS), layer=layer)
    return heads if found is None else int(found)


def _widths(config: Any, layer: int, prefix: str, heads: int) -> tuple[int, int]:
    """The width of a query (and key), and of a value."""
    nope, rope = find(config, "qk_nope_head_dim", layer=layer), find(config, "qk_rope_head_dim", layer=layer)
    head_dim = nope + rope if nope is not None and rope is not None else None
    if head_dim is None:
        head_dim = find(config, *_with(prefix, ("head_dim", "attention_head_dim")), layer=layer)
    if head_dim is None:
        hidden = _required(config, "how wide its hidden state is", ("hidden_size", "model_dim"), layer)
        if hidden % heads:
            raise ModelError(
                f"The config of a {config.model_type!r} model gives no head_dim, and its hidden size {hidden} does "
                f"not divide into {heads} heads; add head_dim to the config."
            )
        head_dim = hidden // heads
    value_dim = find(config, *_with(prefix, ("v_head_dim",)), layer=layer)
    return int(head_dim), int(head_dim if value_dim is None else value_dim)


def _with(prefix: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(prefix + name for name in names) + names if prefix else names


def _required(config: Any, what: str, names: Sequence[str], layer: int) -> int:
    value = find(config, *names, layer=layer)
    if value is None or not int(value) > 0:
        raise ModelError(
            f"The config of a {config.model_type!r} model does not say {what} (looked for {', '.join(names)}); "
            "Headwise reads softmax attention, so use a model with attention heads, or add the entry to the config."
        )
    return int(value)
