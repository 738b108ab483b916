"""A model described from its config alone: layers, heads, widths, windows, and layers without heads.

Question: what will a map of this model look like, and what will it cost, before any weight is loaded?

Everything is read from the config, except the number of parameters and whether the softmax has a learned sink logit: both
are read from a **skeleton** (see `skeleton`), built on first use. Importing this module loads neither torch nor
transformers.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headwise.core.errors import ModelError, reason
from headwise.core.markup import card, listing
from headwise.model.attention_config import LayerCard, find, layer_card, layer_labels, text_config

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["ModelCard"]

MAX_LAYERS = 10_000


@dataclass(frozen=True)
class ModelCard:
    """A model's dimensions, from its config alone. ``heads``, ``kv_heads`` and the widths are maxima over the layers.

    Examples:
        >>> card = hw.ModelCard.from_config(model.hf.config, "planted")
        >>> card.layers, card.heads, card.head_dim, card.attention_layers
        (3, 6, 64, (0, 1, 2))
        >>> card.parameters  # counted on a skeleton without values
        1998744
    """

    id: str  # the hub id, folder or name it was loaded by
    family: str  # transformers' model_type, such as "llama"
    layers: int  # of the decoder
    heads: int  # query heads per layer
    kv_heads: int  # key-value heads per layer; query head h reads kv head h // (heads / kv_heads)
    head_dim: int  # width of a query and a key
    value_dim: int  # width of a value, and of a head's output z
    hidden_size: int  # width of the residual stream
    vocabulary_size: int  # rows of the embedding
    max_positions: int | None  # None: the config sets no limit
    tied_embeddings: bool  # whether the unembedding is the embedding
    softcap: float | None  # attention scores are softcap * tanh(score / softcap)
    per_layer: tuple[LayerCard, ...]  # one card per layer
    config: Any = field(repr=False, compare=False)  # the transformers config

    @classmethod
    def from_config(cls, config: Any, id: str | None = None) -> ModelCard:
        """Read a config; refuses models that are not decoders, and configs with missing entries.

        Args:
            config: a ``transformers`` config.
            id: the model's name; by default the config's.

        Returns:
            The card.
        """
        try:
            return cls._from_config(config, id)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            name = id or getattr(config, "_name_or_path", "") or "this model"
            raise ModelError(
                f"The config of {name} does not describe a model ({reason(error)}); correct it, or copy it again."
            ) from error

    @classmethod
    def _from_config(cls, config: Any, id: str | None) -> ModelCard:
        from headwise.model.blocks import is_encoder  # loads torch

        text = text_config(config)
        if is_encoder(config):
            raise ModelError(
                f"A {config.model_type!r} model is an encoder for masked tokens; Headwise reads decoder-only language "
                "models, so give it one of those."
            )
        count = find(text, "num_hidden_layers", "num_transformer_layers")
        hidden, vocabulary = find(text, "hidden_size", "model_dim"), find(text, "vocab_size")
        sizes = {"number of layers": count, "hidden size": hidden, "vocabulary size": vocabulary}
        missing = [what for what, size in sizes.items() if not size]
        if missing:
            raise ModelError(
                f"The config of a {text.model_type!r} model does not give its {' and '.join(missing)}; add it to the "
                "config, or load the text model alone and give that."
            )
        if not 0 < int(count) <= MAX_LAYERS:
            raise ModelError(
                f"The config of a {text.model_type!r} model declares {int(count):,} layers, which no model has; correct it."
            )
        labels = layer_labels(text, int(count))
        configs = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text] * int(count)
        layers = tuple(layer_card(configs[i], i, label) for i, label in enumerate(labels))
        return cls(
            id=id or getattr(config, "_name_or_path", "") or text.model_type,
            family=config.model_type,
            layers=len(layers),
            heads=max(layer.heads for layer in layers),
            kv_heads=max(layer.kv_heads for layer in layers),
            head_dim=max(layer.head_dim for layer in layers),
            value_dim=max(layer.value_dim for layer in layers),
            hidden_size=int(hidden),
            vocabulary_size=int(vocabulary),
            max_positions=find(text, "max_position_embeddings", "max_seq_len"),
            tied_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
            softcap=find(text, "attn_logit_softcapping"),
            per_layer=layers,
            config=config,
        )

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers with softmax attention."""
        return tuple(layer.index for layer in self.per_layer if layer.reason is None)

    @cached_property
    def skeleton(self) -> nn.Module:
        """The model without values: its parameters have shapes and take no memory."""
        from headwise.model.blocks import build_skeleton  # loads torch

        return build_skeleton(self.config, self.id)

    @cached_property
    def parameters(self) -> int:
        """The number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.skeleton.parameters())

    @property
    def parameters_or_none(self) -> int | None:
        """`parameters`; None for a model whose own code cannot build it on the ``meta`` device."""
        try:
            return self.parameters
        except ModelError:
            return None

    @cached_property
    def sinks(self) -> bool:
        """Whether heads have a learned sink logit, so that a row of attention weights sums to less than one."""
        heads = {layer.heads for layer in self.per_layer}
        named = ((name.rpartition(".")[2], value) for name, value in self.skeleton.named_parameters())
        return any("sink" in name and value.numel() in heads for name, value in named)

    def bytes(self, dtype: torch.dtype) -> int:
        """The memory of the parameters in one dtype.

        Args:
            dtype: such as ``torch.bfloat16``.

        Returns:
            Bytes.
        """
        return self.parameters * dtype.itemsize

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: every field but the config, with ``parameters`` and ``sinks``."""
        fields = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("config", "per_layer")
        }
        layers = [dataclasses.asdict(layer) for layer in self.per_layer]
        return {**fields, "parameters": self.parameters, "sinks": self.sinks, "per_layer": layers}

    def describe(self) -> str:
        """A few lines of text."""
        heads = f"{self.layers} layers x {self._heads_words(self)}" if self.heads else f"{self.layers} layers, no heads"
        seen = len(self.attention_layers)
        lines = [
            f"{self.id} ({self.family}): {heads}, hidden size {self.hidden_size}",
            f"{_short(self.parameters)} parameters ({_short(4 * self.parameters)}B in float32, "
            f"{_short(2 * self.parameters)}B in bfloat16), vocabulary {self.vocabulary_size}"
            f"{' (embeddings tied)' if self.tied_embeddings else ''}, "
            f"{f'at most {self.max_positions} tokens' if self.max_positions else 'no limit on tokens'}",
            f"softmax attention in {'every layer' if seen == self.layers else f'{seen} of {self.layers} layers'}",
            *self._kind_lines(),
        ]
        if self.softcap:
            lines.append(f"attention scores are soft-capped at {self.softcap:g}")
        if self.sinks:
            lines.append("heads have a learned sink: a row of attention weights sums to less than one")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<ModelCard {self.id} ({self.family}): {self.layers} layers x {self.heads} heads>"

    def _repr_html_(self) -> str:
        first, *more = self.describe().split("\n")
        return card(self.id, listing([first.partition(": ")[2], *(line.strip() for line in more)]), note=self.family)

    def _kind_lines(self) -> list[str]:
        kinds: dict[str, list[int]] = {}
        for layer in self.per_layer:
            window = f"{'window' if layer.kind == 'window' else 'chunks'} of {layer.window} tokens"
            full = "full attention" if layer.kind == "full" else "keys chosen by an indexer"
            what = layer.reason or (window if layer.window else full)
            if layer.reason is None and self._heads_words(layer) != self._heads_words(self):
                what += f", {self._heads_words(layer)}"
            kinds.setdefault(what, []).append(layer.index)
        return [f"  {_ranges(indices)}: {what}" for what, indices in kinds.items()]

    @staticmethod
    def _heads_words(of: ModelCard | LayerCard) -> str:
        width = f"{of.head_dim}" if of.head_dim == of.value_dim else f"{of.head_dim} (values {of.value_dim})"
        return f"{of.heads} heads ({of.kv_heads} for keys and values, width {width})"


def _short(count: int) -> str:
    """``134515008`` is ``"135 M"``."""
    if count < 1000:
        return f"{count} "
    power = min(int(math.log10(count)) // 3, 4)
    return f"{count / 1000**power:.3g} {'_kMGT'[power]}"


def _ranges(indices: list[int]) -> str:
    """``[0, 1, 2, 5]`` is ``"layers 0-2, 5"``."""
    runs = [[i for _, i in run] for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0])]
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"layer{'s' if len(indices) > 1 else ''} {text}"
