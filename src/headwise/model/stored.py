"""A model that stays on disk: its card, its tokenizer, its identity, and its weights one tensor at a time.

Weight-only studies need no running model, so a checkpoint that does not fit into memory can still be read. Held in memory:
the requested tensors and, on request, a **one-layer model** (embedding, first block, final norm, unembedding), built by
``transformers`` from the same files, so that renamed, fused and tied weights are handled there. For a 70B checkpoint in
bfloat16 it takes 6 GB, of 140.

Files are safetensors, one or several with an index, memory-mapped: a tensor costs nothing until it is used. Names in the
files may differ from those of the ``transformers`` model at the front (``h.0.attn`` for ``transformer.h.0.attn``), so a
parameter is matched by the end of its name, from its layer's number on, and by its shape; exactly one tensor must match.
Families whose names differ further in are refused, with a remedy.

The identity equals that of ``load`` for the same checkpoint on this machine, so maps made either way share an atlas. (If
``transformers`` rewrites tensors while loading, such as the experts of a mixture, the names in the files are digested
instead, and maps made from files and from memory do not share one.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils.hub import cached_file

from headwise.core.errors import ModelError
from headwise.core.parsing import parse
from headwise.model.card import ModelCard
from headwise.model.digest import named_weights, tensors_digest, tokenizer_digest
from headwise.model.library_calls import silence_transformers, translate_load_errors
from headwise.model.loading import find_tokenizer, read_weights
from headwise.model.placement import choose_device, choose_dtype
from headwise.model.sources import HUB_ARGUMENTS, ModelSource, find_config, find_source, hub_commit

__all__ = ["Checkpoint", "StoredModel", "open_stored"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class Checkpoint:
    """The safetensors files of a folder, or of a hub repository (downloaded on first use)."""

    def __init__(self, location: str, id: str | None = None, hub: dict[str, Any] | None = None) -> None:
        self.location, self.id, self._hub = location, id or location, hub or {}
        self._open: dict[str, Any] = {}

    @cached_property
    def files(self) -> dict[str, str]:
        """Tensor name -> file name."""
        index = self._path(INDEX)
        if index is not None and self._path(SINGLE) is None:
            try:
                found = parse(Path(index).read_bytes(), _Index).weight_map
            except ValueError as error:
                raise ModelError(f"{INDEX} of {self.id} is damaged ({error}); copy or download it again.") from error
            outside = next((file for file in found.values() if Path(file).name != file), None)
            if outside is not None:
                raise ModelError(
                    f"{INDEX} of {self.id} names a file outside its folder ({outside[:80]!r}); it is not read."
                )
            return found
        if self._path(SINGLE) is None:
            raise ModelError(
                f"{self.id} has no safetensors files (neither {SINGLE} nor {INDEX}), so its weights cannot be read "
                "layer by layer; load it and save it with save_pretrained, or give another copy."
            )
        return dict.fromkeys(self._handle(SINGLE).keys(), SINGLE)

    def tensor(self, name: str) -> Tensor:
        """A tensor as stored, by its name in the files."""
        with translate_load_errors(self.id):
            found: Tensor = self._handle(self.files[name]).get_tensor(name)
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        with translate_load_errors(self.id):
            return tuple(self._handle(self.files[name]).get_slice(name).get_shape())

    def stored_name(self, name: str, shape: Sequence[int]) -> str:
        """The name in the files of a parameter of the model; refused unless exactly one tensor matches."""
        for end in _ends(name):
            found = [one for one in self._ending[end] if self.shape(one) == tuple(shape)] if end in self._ending else []
            if len(found) == 1:
                return found[0]
            if found:
                break
        raise ModelError(
            f"The files of {self.id} have no unique tensor for {name} {tuple(shape)}: transformers rewrites the tensors "
            "of this family while loading; load the model and pass it, or save it again with save_pretrained."
        )

    @cached_property
    def _ending(self) -> dict[str, list[str]]:
        """Name suffix -> names."""
        found: dict[str, list[str]] = {}
        for name in self.files:
            for end in _ends(name):
                found.setdefault(end, []).append(name)
        return found

    def _handle(self, file: str) -> Any:
        if file not in self._open:
            path = self._path(file)
            if path is None:
                raise ModelError(f"The file {file} of {self.id} is missing; copy or download it again.")
            with translate_load_errors(self.id):
                self._open[file] = safe_open(path, framework="pt")
        return self._open[file]

    def _path(self, file: str) -> str | None:
        with silence_transformers(), translate_load_errors(self.id):
            return cached_file(
                self.location,
                file,
                **self._hub,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )


def _ends(name: str) -> list[str]:
    """The name, then its suffixes without leading parts, down to the list that contains the layer number.

    >>> _ends("model.layers.3.self_attn.v_proj.weight")
    ['model.layers.3.self_attn.v_proj.weight', 'layers.3.self_attn.v_proj.weight']
    >>> _ends("transformer.wte.weight"), _ends("lm_head.weight")
    (['transformer.wte.weight', 'wte.weight'], ['lm_head.weight'])
    """
    words = name.split(".")
    number = next((index for index, word in enumerate(words) if word.isdigit()), len(words) - 1)
    last = max(number - 1, 0)
    return [".".join(words[start:]) for start in range(last + 1)]


@dataclass(eq=False)
class StoredModel:
    """A model whose weights stay on disk, as `open_stored` returns it."""

    card: ModelCard
    tokenizer: Any | None
    source: ModelSource
    revision: str | None
    hub: dict[str, Any]  # arguments of from_pretrained for finding files
    device: torch.device  # for computations on its tensors
    no_tokenizer: str = ""  # the reason, if it is None

    @property
    def id(self) -> str:
        return self.source.id

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The tensors of its files."""
        known = {name: value for name, value in self.hub.items() if name != "trust_remote_code"}
        return Checkpoint(self.source.location, self.id, known)

    def tensor(self, name: str) -> Tensor:
        """A parameter by its name in the ``transformers`` model, as stored."""
        shape = self.card.skeleton.get_parameter(name).shape
        return self.checkpoint.tensor(self.checkpoint.stored_name(name, shape))

    @cached_property
    def one_layer_model(self) -> Any:
        """The ``transformers`` model with its first layer only, in the checkpoint's own dtype, on the CPU."""
        config = with_layers(self.card.config, self.card.layers, 1)
        return read_weights(self.source, config, {**self.hub, "dtype": "auto"}).eval()

    def identity(self) -> dict[str, Any]:
        """The identity for provenance, equal to that of the loaded model; reads a sample of every tensor."""
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
            "parameters": self.card.parameters_or_none,
            "dtype": str(dtype).removeprefix("torch."),
            "device": self.device.type,
            **({} if self.source.dequantised_from is None else {"dequantised_from": self.source.dequantised_from}),
        }

    def _digest(self, dtype: torch.dtype) -> str:
        try:
            return tensors_digest(self._as_loaded(), self.card.config, dtype)
        except ModelError:
            stored = ((name, self.checkpoint.tensor(name)) for name in sorted(self.checkpoint.files))
            return tensors_digest(stored, self.card.config, dtype)

    def _as_loaded(self) -> Iterator[tuple[str, Tensor]]:
        ends = dict(named_weights(self.one_layer_model))
        for name, value in named_weights(self.card.skeleton):
            if name in ends and ends[name].shape == value.shape:
                yield name, ends[name]
            else:
                yield name, self.checkpoint.tensor(self.checkpoint.stored_name(name, value.shape))


def open_stored(
    model: str | Path | None = None,
    tokenizer: Any = None,
    *,
    device: str | torch.device | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    **kwargs: Any,
) -> StoredModel:
    """A model without its weights in memory, by hub id, folder or ``.gguf`` file.

    Refused: adapters, quantised checkpoints (GPTQ, FP8 and the like), and those without safetensors.
    """
    hub_arguments = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    source = find_source(model, revision, hub_arguments)
    hub = hub_arguments | {"trust_remote_code": trust_remote_code, "revision": revision}
    hub |= {"local_files_only": True} if source.local else {}
    config = find_config(source, hub)
    card = ModelCard.from_config(config, source.id)
    if getattr(config, "quantization_config", None) is not None:
        settings = config.quantization_config
        method = settings.get("quant_method") if isinstance(settings, dict) else getattr(settings, "quant_method", None)
        raise ModelError(
            f"The weights of {source.id} are quantised ({getattr(method, 'value', method)}), and heads are read from plain "
            "numbers; give the original checkpoint, or load the model and pass it."
        )
    tokenizer, why = find_tokenizer(tokenizer, source.location, hub)
    stored = StoredModel(card, tokenizer, source, hub_commit(source, hub), hub, choose_device(device), why)
    _ = stored.checkpoint.files  # refuses unreadable files now
    return stored


def with_layers(config: Any, layers: int, count: int) -> Any:
    """The config of the first ``count`` layers; lists with one entry per layer are truncated as well."""
    config = copy.deepcopy(config)
    text = config.get_text_config(decoder=True)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == layers:
            setattr(text, name, value[:count])
    for name in ("num_hidden_layers", "num_transformer_layers"):
        if getattr(text, name, None) == layers:
            setattr(text, name, count)
    return config
