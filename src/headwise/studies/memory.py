"""Does a build fit into memory; and where it does not, what makes it fit?

    as a whole   the process + all weights + the activations of the largest batch + the blocks of the reductions
    offloaded    the process + the weights that are kept + the largest module that is brought + activations + blocks
    from disk    (studies that read weights alone) the process + the model's ends + one layer's heads

Offloaded weights are brought for every pass: reading them takes (bytes on disk) x (passes) / (speed of the disk), which is
not measured here but assumed, as is the speed of the way from the CPU's memory to a GPU.

Each memory is filled to a share of what is there, since other programs use some of it and allocators do not give all
back. This module does not know the studies.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from typing import NamedTuple

import torch

from headwise.kernels.blocked import BLOCK, BLOCK_ON_DEVICE
from headwise.model import ModelCard, choose_dtype

__all__ = ["MemoryNeeds", "Offload", "from_disk", "memory_needs", "memory_there", "offloaded"]

PROCESS = 600e6  # bytes of Python with torch, transformers and xarray loaded
SHARE, SHARE_ON_DEVICE = 0.8, 0.9  # of a memory that may be filled
DISK, BUS = 1e9, 20e9  # bytes a second, assumed: a solid-state disk; memory to a GPU
GIB = 2**30


class MemoryNeeds(NamedTuple):
    """Bytes."""

    process: int
    weights: int
    largest: int  # weights of the largest module, which is brought whole
    activations: int
    reductions: int

    @property
    def working_memory(self) -> int:
        """What is needed on the device in addition to the weights."""
        return self.activations + self.reductions


@dataclass(frozen=True)
class Offload:
    """What is kept where, when the weights do not fit as a whole."""

    limits: dict[int | str, int]  # of the weights, by device
    on_disk: int  # bytes of the weights, as they lie in the files
    passes: int
    seconds: float  # to bring what is not on the device, for all passes

    @property
    def flags(self) -> str:
        """What `headwise build` is given."""
        return "--memory " + ",".join(f"{name}={_size(limit)}" for name, limit in self.limits.items())


def memory_needs(card: ModelCard, tokens: int, dtype: torch.dtype, device: torch.device, stats: int) -> MemoryNeeds:
    """Of a batch of so many tokens, with so many statistics per head."""
    text = card.config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * card.hidden_size
    inner = max(inner) if isinstance(inner, list | tuple) else inner
    width = 6 * card.hidden_size + 3 * inner + (card.heads + 2 * card.kv_heads) * card.head_dim
    rows = card.heads * (card.head_dim + card.kv_heads * card.head_dim // max(1, card.heads) + stats + 4)
    on_cpu = device.type == "cpu"
    own = [sum(p.numel() for p in module.parameters(recurse=False)) for module in card.skeleton.modules()]
    return MemoryNeeds(
        process=int(PROCESS) if on_cpu else 0,
        weights=card.bytes(dtype),
        largest=max(own) * dtype.itemsize,
        activations=int(tokens * width * dtype.itemsize),
        reductions=int(tokens * rows * 4 + 2 * (BLOCK if on_cpu else BLOCK_ON_DEVICE) * 4),
    )


def from_disk(card: ModelCard) -> dict[str, int]:
    """Parts of what a study of weights alone holds at a time; the ends are held as they are stored."""
    ends = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    embedded = sum(p.numel() for p in card.skeleton.parameters()) - ends
    block = embedded // card.layers
    heads = 2 * card.heads * card.value_dim * card.hidden_size
    stored = choose_dtype("auto", card.config, torch.device("cuda")).itemsize
    return {
        "Python and libraries": int(PROCESS),
        "ends and first block": ends * stored + block * (stored + 4),
        "heads of a layer": 2 * heads * 4,
        "scores of a layer's heads": 3 * 4 * 2048 * card.vocabulary_size,
    }


def offloaded(needs: MemoryNeeds, there: dict[int | str, int], passes: int, stored: float) -> Offload | None:
    """The limits that make it fit; None where even the rest does not. `stored`: bytes in files over bytes in memory."""
    gpus = [name for name in there if isinstance(name, int)]
    room: dict[int | str, int] = {
        gpu: int(SHARE_ON_DEVICE * there[gpu]) - (needs.working_memory + needs.largest if gpu == gpus[0] else 0)
        for gpu in gpus
    }
    if "cpu" in there:
        fixed = int(PROCESS) if gpus else needs.process + needs.working_memory
        room["cpu"] = int(SHARE * there["cpu"]) - fixed - (0 if gpus else needs.largest)
    if min(room.values()) < 0:
        return None
    limits: dict[int | str, int] = {}
    left = needs.weights
    for name, size in room.items():
        limits[name] = _rounded(size)
        left -= min(left, limits[name])
    on_cpu = min(needs.weights, limits.get("cpu", 0)) if gpus else 0
    on_disk = int(left * stored)
    return Offload(limits, on_disk, passes, passes * (on_disk / DISK + on_cpu / BUS))


def memory_there(device: torch.device) -> dict[int | str, int]:
    """Bytes of each memory that a build here can use: of the GPUs, if it runs there, and of this machine."""
    found: dict[int | str, int] = {}
    if device.type == "cuda":
        one = [device.index] if device.index is not None else range(torch.cuda.device_count())
        found |= {index: int(torch.cuda.get_device_properties(index).total_memory) for index in one}
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found["cpu"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return found


def _rounded(size: int) -> int:
    unit = GIB if size >= 4 * GIB else 2**20
    return size // unit * unit


def _size(size: int) -> str:
    """As `--memory` reads it.

    >>> _size(13 * 2**30), _size(500 * 2**20)
    ('13GiB', '500MiB')
    """
    return f"{size // GIB}GiB" if size % GIB == 0 else f"{math.floor(size / 2**20)}MiB"
