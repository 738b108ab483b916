"""A model that stays on disk: its card, its tokenizer, who it is, and its weights one tensor at a time.

What can be told from weights alone needs no running model, so a checkpoint that fits into no memory at hand can still
be read. Held at a time: the tensors that are asked for and, if asked for, the model's **ends**: the model with its
first layer only (embedding, first block, final norm, unembedding), built by ``transformers`` from the same files, so
that its renaming, its fused experts and its tied weights are its own affair. For a 70B checkpoint in bfloat16 the ends
are 6 GB, of 140.

Its identity is the one that ``load`` would give the same checkpoint on this machine, so maps made either way share an
atlas. (Where ``transformers`` rewrites tensors while loading, such as the experts of a mixture, the files' own names are
digested instead; that model's maps made from files and from memory do not share one.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard
from headwise.model.checkpoint import Checkpoint
from headwise.model.default import Source
from headwise.model.digest import named_weights, tensors_digest, tokenizer_digest
from headwise.model.loading import FINDING, find_config, find_source, find_tokenizer, hub_commit, read_weights
from headwise.model.placement import choose_device, choose_dtype

__all__ = ["StoredModel", "open_stored"]


@dataclass(eq=False)
class StoredModel:
    """What `open_stored` returns."""

    card: ModelCard
    tokenizer: Any | None
    source: Source
    revision: str | None
    finding: dict[str, Any]
    device: torch.device  # where what is read is to be used
    no_tokenizer: str = ""  # why, where it is None

    @property
    def id(self) -> str:
        return self.source.id

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The tensors of its files."""
        known = {name: value for name, value in self.finding.items() if name != "trust_remote_code"}
        return Checkpoint(self.source.location, self.id, known)

    def tensor(self, name: str) -> Tensor:
        """A parameter by its name in the ``transformers`` model, as it is stored."""
        shape = self.card.skeleton.get_parameter(name).shape
        return self.checkpoint.tensor(self.checkpoint.called(name, shape))

    @cached_property
    def ends(self) -> Any:
        """The ``transformers`` model with its first layer only, in the checkpoint's own dtype, on the CPU."""
        config = with_layers(self.card.config, self.card.layers, 1)
        return read_weights(self.source, config, {**self.finding, "dtype": "auto"}).eval()

    def identity(self) -> dict[str, Any]:
        """Who this model is, for provenance: what `load` would say of it. Reads a sample of every tensor."""
        dtype = choose_dtype("auto", self.card.config, self.device)
        return {
            "id": self.id,
            "revision": self.revision,
            "adapter": None,
            "digest": self._digest(dtype),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "layers": self.card.layers,
            "heads": self.card.heads,
            "kv_heads": self.card.kv_heads,
            "parameters": self.card.counted,
            "dtype": str(dtype).removeprefix("torch."),
            "device": self.device.type,
        }

    def _digest(self, dtype: torch.dtype) -> str:
        try:
            return tensors_digest(self._as_loaded(), self.card.config, dtype)
        except ModelError:
            stored = ((name, self.checkpoint.tensor(name)) for name in sorted(self.checkpoint.files))
            return tensors_digest(stored, self.card.config, dtype)

    def _as_loaded(self) -> Iterator[tuple[str, Tensor]]:
        ends = dict(named_weights(self.ends))
        for name, value in named_weights(self.card.skeleton):
            if name in ends and ends[name].shape == value.shape:
                yield name, ends[name]
            else:
                yield name, self.checkpoint.tensor(self.checkpoint.called(name, value.shape))


def open_stored(
    model: str | Path | None = None,
    tokenizer: Any = None,
    *,
    device: str | torch.device | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    **kwargs: Any,
) -> StoredModel:
    """A model without its weights in memory; takes the names that ``load`` takes (hub id, folder, ``.gguf`` file).

    Refused: adapters, checkpoints whose weights are packed (GPTQ, FP8 and the like), and those without safetensors.
    """
    found = {name: kwargs[name] for name in FINDING if name in kwargs}
    source = find_source(model, revision, found)
    finding = found | {"trust_remote_code": trust_remote_code, "revision": revision}
    finding |= {"local_files_only": True} if source.local else {}
    config = find_config(source, finding)
    card = ModelCard.from_config(config, source.id)
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(
            f"The weights of {source.id} are packed ({_packing(config)}), and heads are read from plain numbers; give "
            "the checkpoint that it was made from, or load it and give it loaded."
        )
    tokenizer, why = find_tokenizer(tokenizer, source.location, finding)
    stored = StoredModel(card, tokenizer, source, hub_commit(source, finding), finding, choose_device(device), why)
    _ = stored.checkpoint.files  # files that cannot be read this way are refused now, not in the middle
    return stored


def with_layers(config: Any, layers: int, count: int) -> Any:
    """The same config with its first ``count`` layers; lists with one entry a layer are cut as well."""
    config = copy.deepcopy(config)
    text = config.get_text_config(decoder=True)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == layers:
            setattr(text, name, value[:count])
    for name in ("num_hidden_layers", "num_transformer_layers"):
        if getattr(text, name, None) == layers:
            setattr(text, name, count)
    return config


def _packing(config: Any) -> str:
    settings = config.quantization_config
    method = settings.get("quant_method") if isinstance(settings, dict) else getattr(settings, "quant_method", None)
    return str(getattr(method, "value", method) or "quantised")
