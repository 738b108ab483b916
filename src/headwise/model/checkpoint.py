"""The tensors of a model's files, by name, read one at a time: the model itself is never built.

Files are safetensors, one or several with an index. They are mapped into memory, so a tensor costs nothing until it is
used, and then only the part that is used.

A file's names may differ from those of the ``transformers`` model at the front (``h.0.attn`` for
``transformer.h.0.attn``): a parameter of a layer is looked for by the end of its name, from its layer's number on, and
by its shape. Exactly one tensor must fit. Names that differ further in (a family whose files are rewritten when they
are loaded) are refused, with what to do.

This module does not know what the tensors are for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from transformers.utils.hub import cached_file

from headwise.core.errors import ModelError
from headwise.model.failures import in_words
from headwise.model.quiet import quiet

__all__ = ["Checkpoint"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Checkpoint:
    """The safetensors files of a folder, or of a hub repository (fetched file by file as they are asked for)."""

    def __init__(self, location: str, id: str | None = None, finding: dict[str, Any] | None = None) -> None:
        self.location, self.id, self._finding = location, id or location, finding or {}
        self._open: dict[str, Any] = {}

    @cached_property
    def files(self) -> dict[str, str]:
        """Name of a tensor -> name of its file."""
        index = self._path(INDEX)
        if index is not None and self._path(SINGLE) is None:
            with in_words(self.id):
                return dict(json.loads(Path(index).read_text())["weight_map"])
        if self._path(SINGLE) is None:
            raise ModelError(
                f"{self.id} has no safetensors files (neither {SINGLE} nor {INDEX}), so its weights cannot be read "
                "layer by layer; load it and save it with save_pretrained, or give another copy."
            )
        return dict.fromkeys(self._handle(SINGLE).keys(), SINGLE)

    def tensor(self, name: str) -> Tensor:
        """A tensor as it is stored, by its name in the files."""
        with in_words(self.id):
            found: Tensor = self._handle(self.files[name]).get_tensor(name)
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor; nothing of it is read."""
        with in_words(self.id):
            return tuple(self._handle(self.files[name]).get_slice(name).get_shape())

    def called(self, name: str, shape: Sequence[int]) -> str:
        """What the files call a parameter of the model; refused unless exactly one tensor fits."""
        for end in _ends(name):
            found = [one for one in self._ending[end] if self.shape(one) == tuple(shape)] if end in self._ending else []
            if len(found) == 1:
                return found[0]
            if found:
                break
        raise ModelError(
            f"The files of {self.id} have no tensor that is {name} {tuple(shape)} beyond doubt: transformers rewrites "
            "them when it loads them; load the model and give it loaded, or save it again with save_pretrained."
        )

    @cached_property
    def _ending(self) -> dict[str, list[str]]:
        """Every name, by each of the ends that it may be found by."""
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
            with in_words(self.id):
                self._open[file] = safe_open(path, framework="pt")
        return self._open[file]

    def _path(self, file: str) -> str | None:
        with quiet(), in_words(self.id):
            return cached_file(
                self.location,
                file,
                **self._finding,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )


def _ends(name: str) -> list[str]:
    """The name, then what is left when its first words are dropped, up to the list that its number counts.

    >>> _ends("model.layers.3.self_attn.v_proj.weight")
    ['model.layers.3.self_attn.v_proj.weight', 'layers.3.self_attn.v_proj.weight']
    >>> _ends("transformer.wte.weight"), _ends("lm_head.weight")
    (['transformer.wte.weight', 'wte.weight'], ['lm_head.weight'])
    """
    words = name.split(".")
    number = next((place for place, word in enumerate(words) if word.isdigit()), len(words) - 1)
    last = max(number - 1, 0)
    return [".".join(words[start:]) for start in range(last + 1)]
