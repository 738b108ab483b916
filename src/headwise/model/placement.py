"""Device placement: the dtype and the device of a model, or its distribution over GPUs, CPU memory and disk.

dtype ``"auto"`` is the checkpoint's own dtype on a GPU, and float32 on a CPU, where half precision is slower and less exact.
The other arguments are those of ``transformers`` and ``accelerate``:

    device_map       "auto" fills the GPUs, then CPU memory, then disk; "balanced", "balanced_low_0", "sequential"
                     likewise; or module -> device, as a dict or a .json file: {"model.layers.0": 0, "lm_head": "disk", ...}
    max_memory       limit per device, {"cpu": "8GiB", 0: "20GiB"} or "cpu=8GiB,0=20GiB"; an unnamed device gets nothing,
                     and the rest stays on disk
    offload_folder   for weights that must be rewritten; safetensors are read in place and need none

A limit or a folder alone implies "auto". Weights on disk (or, with a GPU, in CPU memory) are loaded in every forward pass
and released again (see `offload`), so memory is what the devices hold plus the largest module, and a pass takes at least
as long as reading the rest.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.core.cpu import SAFE_ISA, bfloat16_works
from headwise.core.errors import ModelError, did_you_mean
from headwise.core.parsing import parse
from headwise.model.cache import cache_folder
from headwise.model.card import ModelCard

DTYPE_ALIASES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
DTYPES = ("float16", "bfloat16", "float32", "float64")


def named_dtype(dtype: str | torch.dtype) -> Any:
    """``"auto"``, or a torch dtype."""
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    name = DTYPE_ALIASES.get(str(dtype).removeprefix("torch."), str(dtype).removeprefix("torch."))
    if name not in DTYPES:
        raise ModelError(f"{dtype!r} is not a dtype for a model. {did_you_mean(name, ['auto', *DTYPES])}")
    return getattr(torch, name)


def choose_dtype(dtype: str | torch.dtype, config: Any, device: torch.device) -> torch.dtype:
    """The dtype of a model of this config once it is loaded on a device."""
    requested = named_dtype(dtype)
    if requested != "auto":
        return requested
    own = getattr(config.get_text_config(), "dtype", None) or torch.float32
    return torch.float32 if device.type == "cpu" else getattr(torch, own) if isinstance(own, str) else own


def require_working_dtype(dtype: Any, device: torch.device, name: str) -> None:
    """Refuse bfloat16 on a CPU that announces AMX but traps on it."""
    if device.type == "cpu" and dtype == torch.bfloat16 and not bfloat16_works(cache_folder()):
        raise ModelError(
            f"{name} cannot run in bfloat16 on this CPU, which reports AMX support but crashes (SIGILL) when torch uses it; "
            f"use dtype='float32' (--dtype float32), or set ONEDNN_MAX_CPU_ISA={SAFE_ISA} before Python starts."
        )


def choose_device(device: str | torch.device | None = None, placement: DevicePlacement | None = None) -> torch.device:
    """The given device, else the device on which a distributed model runs, else a GPU if there is one, else the CPU."""
    if device is not None and placement:
        raise ModelError(
            "device puts the model on one device and device_map distributes it over several; give one of the two."
        )
    if placement and importlib.util.find_spec("accelerate") is None:
        raise ModelError("device_map needs the package accelerate; run `pip install accelerate`.")
    if device is None:
        on_cpu = placement.on_cpu if placement else not torch.cuda.is_available()
        return torch.device("cpu" if on_cpu else "cuda")
    try:
        device = torch.device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(
            f"The device {str(device)!r} cannot be used here ({str(error).splitlines()[0]}); use 'cpu', or a "
            "device that torch sees."
        ) from error
    return device


STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
NO_GPU = ("cpu", "disk")
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {f"{letter}I": 2**power for letter, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40))}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]I?)B?", re.IGNORECASE)


@dataclass(frozen=True)
class DevicePlacement:
    """The placement arguments of `load`; falsy if there are none."""

    device_map: Any = None  # a name, a device, or module -> device
    max_memory: dict[int | str, int] | None = None
    offload_folder: str | Path | None = None

    @classmethod
    def of(
        cls, device_map: Any = None, max_memory: Any = None, offload_folder: str | Path | None = None
    ) -> DevicePlacement:
        """From the user's arguments; refuses values that are not a map, a limit or a folder."""
        limits = read_memory(max_memory)
        if device_map is None and (limits is not None or offload_folder is not None):
            device_map = "auto"
        if limits is not None and not (isinstance(device_map, str) and device_map in STRATEGIES):
            raise ModelError(
                "--memory (max_memory=) limits --device-map auto; a map that names devices needs none, so omit it."
            )
        return cls(_read_map(device_map), limits, offload_folder)

    def __bool__(self) -> bool:
        return self.device_map is not None

    @property
    def on_cpu(self) -> bool:
        """Whether no part of the model is on a GPU."""
        if isinstance(self.device_map, Mapping):
            return {str(device) for device in self.device_map.values()} <= set(NO_GPU)
        if self.max_memory is not None and set(self.max_memory) <= set(NO_GPU):
            return True
        return str(self.device_map) == "cpu" or not torch.cuda.is_available()

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``from_pretrained``."""
        if not self:
            return {"device_map": None}
        folder = {} if self.offload_folder is None else {"offload_folder": str(self.offload_folder)}
        limits = {} if self.max_memory is None else {"max_memory": dict(self.max_memory)}
        return {"device_map": self.device_map, **limits, **folder}

    def fit(self, card: ModelCard) -> DevicePlacement:
        """The placement of this model's modules; refused if the map names unknown modules or does not cover the model.

        A submodule may be placed on another device than its module, and "" is the rest; ``accelerate`` requires disjoint
        modules.
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
                raise ModelError(f'device_map has no device for {name} of {card.id}; add it, or "" for the rest.')
        return replace(self, device_map=_disjoint(card.skeleton, "", None, self.device_map))


def read_memory(given: str | Mapping[Any, Any] | None) -> dict[int | str, int] | None:
    """The memory limit per device, in bytes.

    >>> read_memory("cpu=8GiB,0=20GB")
    {'cpu': 8589934592, 0: 20000000000}
    """
    if given is None:
        return None
    parts = [one.partition("=") for one in given.split(",") if one.strip()] if isinstance(given, str) else None
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, size) for name, _, size in parts or ()]
    found = {_device_name(str(name).strip()): _bytes(name, size) for name, size in pairs}
    if not found:
        raise ModelError("--memory (max_memory=) names no device; write it as cpu=8GiB,0=20GiB.")
    return found


def _device_name(name: str) -> int | str:
    name = name.removeprefix("cuda:")
    if not name.isdigit() and name not in ("cpu", "mps", "xpu"):
        raise ModelError(
            f"--memory (max_memory=) names the device {name!r}; devices are cpu and the numbers of GPUs, as in "
            "cpu=8GiB,0=20GiB."
        )
    return int(name) if name.isdigit() else name


def _bytes(name: Any, size: Any) -> int:
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or found[2].upper() not in UNITS:
        raise ModelError(
            f"--memory (max_memory=) gives {str(name).strip()!r} the size {str(size)!r}; write sizes with their unit, as in "
            "cpu=8GiB,0=20GiB."
        )
    return int(float(found[1]) * UNITS[found[2].upper()])


def _read_map(given: Any) -> Any:
    if isinstance(given, Mapping):
        return _checked(given)
    if not isinstance(given, str | Path):
        return given
    path = Path(given).expanduser()
    if path.suffix == ".json" or path.is_file():
        try:
            found = parse(path.read_bytes(), dict[str, str | int] | list[object])
        except (OSError, ValueError) as error:
            raise ModelError(f"The device map {path} could not be read ({error}); give a .json file.") from error
        return _checked(found, path)
    try:
        return given if given in STRATEGIES else str(torch.device(str(given)))
    except RuntimeError:
        known = f"use {', '.join(STRATEGIES)}, a device such as cuda:0, or a .json file of module -> device"
        raise ModelError(f"{str(given)!r} is not a device map; {known}.") from None


def _disjoint(module: nn.Module, name: str, device: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The devices of disjoint modules: a module whose submodules are placed separately is replaced by them."""
    device = given.get(name, device)
    if not any(key != name and (not name or key.startswith(f"{name}.")) for key in given):
        return {} if device is None else {name: device}
    inside = f"{name}." if name else ""
    if any(True for _ in module.parameters(recurse=False)):
        raise ModelError(
            f"device_map puts parts of {name!r} on several devices, but it has weights of its own; give it one device."
        )
    found: dict[str, Any] = {}
    for key, child in module.named_children():
        found |= _disjoint(child, inside + key, device, given)
    return found


def _checked(given: Any, where: Path | str = "device_map") -> dict[str, Any]:
    if not isinstance(given, Mapping) or not given:
        raise ModelError(f'{where} is not a device map: it must map modules to devices, such as {{"": "cpu"}}.')
    found: dict[str, Any] = {}
    for name, device in given.items():
        number = str(device).removeprefix("cuda:")
        numbered = number.isascii() and number.isdecimal() and len(number) < 6
        found[str(name)] = int(number) if numbered else device if isinstance(device, int) else str(device)
        if numbered and int(number) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise ModelError(f"{where} puts {name!r} on GPU {number}, and torch sees {count} here; use cpu or disk.")
        if not numbered and str(device) not in (*NO_GPU, "cuda", "mps", "xpu"):
            raise ModelError(f"{where} puts {name!r} on {device!r}; give the number of a GPU, cpu or disk.")
    return found
