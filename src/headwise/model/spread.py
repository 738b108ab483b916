"""How a model that is too large for one device is spread: over GPUs, the CPU's memory, and disk.

The words are those of ``transformers`` and ``accelerate``:

    device_map       "auto" fills the GPUs, then the CPU's memory, then disk; "balanced", "balanced_low_0", "sequential"
                     likewise; or module -> device, as a dict or a .json file: {"model.layers.0": 0, "lm_head": "disk", ...}
    max_memory       what each may hold, {"cpu": "8GiB", 0: "20GiB"} or "cpu=8GiB,0=20GiB"; a device that is not named gets
                     nothing, and what is left over stays on disk
    offload_folder   where weights that must be rewritten are put; safetensors are read where they lie, and need none

A limit or a folder alone means "auto". What is on disk (or, with a GPU, in the CPU's memory) is brought for every pass and
let go again (see `offload`), so memory is what the devices hold plus the largest module, and a pass takes at least as long
as reading the rest.

This module does not know what is measured, nor reads a weight.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.core.errors import ModelError
from headwise.model.card import ModelCard

__all__ = ["Spread", "read_memory"]

NAMED = ("auto", "balanced", "balanced_low_0", "sequential")
NO_GPU = ("cpu", "disk")
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {f"{letter}I": 2**power for letter, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40))}
_SIZE = re.compile(r"([\d.]+)\s*([KMGT]?I?)B?", re.IGNORECASE)


@dataclass(frozen=True)
class Spread:
    """What `load` was told about devices; falsy where it was told nothing."""

    device_map: Any = None  # a name, a device, or module -> device
    max_memory: dict[int | str, int] | None = None
    offload_folder: str | Path | None = None

    @classmethod
    def of(cls, device_map: Any = None, max_memory: Any = None, offload_folder: str | Path | None = None) -> Spread:
        """From what a user gives; refuses what is not a map, a limit or a folder."""
        limits = read_memory(max_memory)
        if device_map is None and (limits is not None or offload_folder is not None):
            device_map = "auto"
        if limits is not None and not (isinstance(device_map, str) and device_map in NAMED):
            raise ModelError("max_memory limits what device_map='auto' may fill; a map that names devices needs none.")
        return cls(_read_map(device_map), limits, offload_folder)

    def __bool__(self) -> bool:
        return self.device_map is not None

    @property
    def on_cpu(self) -> bool:
        """Whether it leaves no part of the model to a GPU."""
        if isinstance(self.device_map, Mapping):
            return {str(device) for device in self.device_map.values()} <= set(NO_GPU)
        if self.max_memory is not None and set(self.max_memory) <= set(NO_GPU):
            return True
        return str(self.device_map) == "cpu" or not torch.cuda.is_available()

    def arguments(self) -> dict[str, Any]:
        """What ``from_pretrained`` is given."""
        if not self:
            return {"device_map": None}
        folder = {} if self.offload_folder is None else {"offload_folder": str(self.offload_folder)}
        limits = {} if self.max_memory is None else {"max_memory": dict(self.max_memory)}
        return {"device_map": self.device_map, **limits, **folder}

    def fit(self, card: ModelCard) -> Spread:
        """The same for this model; refused where a map names what it does not have, or leaves some of it without a place.

        A part of a part may have a place of its own, and "" is all the rest; ``accelerate`` wants them side by side.
        """
        if not isinstance(self.device_map, Mapping):
            return self
        modules = {name for name, _ in card.skeleton.named_modules()}
        parameters = [name for name, _ in card.skeleton.named_parameters()]
        for name in self.device_map:
            if name not in modules:
                near = [one for one in difflib.get_close_matches(name, modules, n=3) if one]
                hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "look at model.hf.named_modules()."
                raise ModelError(f"device_map names {name!r}, and {card.id} has no such module; {hint}")
        for name in parameters:
            parts = name.split(".")
            if not any(".".join(parts[:count]) in self.device_map for count in range(len(parts) + 1)):
                raise ModelError(f'device_map says no place for {name} of {card.id}; add it, or "" for all the rest.')
        return replace(self, device_map=_side_by_side(card.skeleton, "", None, self.device_map))


def read_memory(given: str | Mapping[Any, Any] | None) -> dict[int | str, int] | None:
    """How much each device may hold, in bytes.

    >>> read_memory("cpu=8GiB,0=20GB")
    {'cpu': 8589934592, 0: 20000000000}
    """
    if given is None:
        return None
    parts = [one.partition("=") for one in given.split(",") if one.strip()] if isinstance(given, str) else None
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, size) for name, _, size in parts or ()]
    found = {_place(str(name).strip()): _bytes(name, size) for name, size in pairs}
    if not found:
        raise ModelError("max_memory names no device; write it as cpu=8GiB,0=20GiB.")
    return found


def _place(name: str) -> int | str:
    name = name.removeprefix("cuda:")
    if not name.isdigit() and name not in ("cpu", "mps", "xpu"):
        raise ModelError(f"max_memory names {name!r}; devices are cpu and the numbers of GPUs: cpu=8GiB,0=20GiB.")
    return int(name) if name.isdigit() else name


def _bytes(name: Any, size: Any) -> int:
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or found[2].upper() not in UNITS:
        raise ModelError(f"max_memory gives {str(name).strip()!r} {str(size)!r}; a size is written 8GiB, 500MB, ...")
    return int(float(found[1]) * UNITS[found[2].upper()])


def _read_map(given: Any) -> Any:
    if isinstance(given, Mapping):
        return _checked(given)
    if not isinstance(given, str | Path):
        return given
    path = Path(given).expanduser()
    if path.suffix == ".json" or path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"The device map {path} could not be read ({error}); give a .json file.") from error
        return _checked(found, path)
    try:
        return given if given in NAMED else str(torch.device(str(given)))
    except RuntimeError:
        known = f"use {', '.join(NAMED)}, a device such as cuda:0, or a .json file of module -> device"
        raise ModelError(f"{str(given)!r} is not a device map; {known}.") from None


def _side_by_side(module: nn.Module, name: str, place: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Places of modules none of which holds another: what has parts with places of their own is opened."""
    place = given.get(name, place)
    if not any(key != name and (not name or key.startswith(f"{name}.")) for key in given):
        return {} if place is None else {name: place}
    inside = f"{name}." if name else ""
    if any(True for _ in module.parameters(recurse=False)):
        raise ModelError(
            f"device_map puts parts of {name!r} in unlike places, and it has weights of its own; give it one."
        )
    found: dict[str, Any] = {}
    for key, child in module.named_children():
        found |= _side_by_side(child, inside + key, place, given)
    return found


def _checked(given: Any, where: Path | str = "device_map") -> dict[str, Any]:
    if not isinstance(given, Mapping) or not given:
        raise ModelError(f'{where} is no device map: it must say module -> device, as {{"": "cpu"}} does.')
    found: dict[str, Any] = {}
    for name, device in given.items():
        number = str(device).removeprefix("cuda:")
        found[str(name)] = int(number) if number.isdigit() else device if isinstance(device, int) else str(device)
        if number.isdigit() and int(number) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise ModelError(f"{where} puts {name!r} on GPU {number}, and torch sees {count} here; use cpu or disk.")
        if not number.isdigit() and str(device) not in (*NO_GPU, "cuda", "mps", "xpu"):
            raise ModelError(f"{where} puts {name!r} on {device!r}; a place is the number of a GPU, cpu or disk.")
    return found
