"""What a build will cost, before any weight is loaded: memory, disk and time, from the model's card.

    memory   the process itself, the weights, the activations of the largest batch, the blocks of the reductions
    disk     what the studies keep for every head (and example)
    time     the matrix work of each study (see `loads`) over the speed of this machine, which is measured on the spot
             with a matrix product of the model's own shape (half a second); and what is fitted beside it

An estimate, not a promise: for the default model the memory comes out within a factor 1.5 of what is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headwise.kernels.blocked import BLOCK, BLOCK_ON_DEVICE
from headwise.model import ModelCard
from headwise.studies.loads import LOADS, STATISTICS, Shown

PROCESS = 600e6  # bytes of Python with torch, transformers and xarray loaded
WIDEST = 2048  # beyond it the speed hardly changes, and the product takes long
OVERHEAD = 1.25  # measured: what a build takes beyond its matrix work


@dataclass(frozen=True)
class Plan:
    """The estimate. Bytes and seconds."""

    model: str
    dtype: str
    device: str
    studies: dict[str, dict[str, float]]  # study -> examples, tokens, seconds
    unknown: tuple[str, ...]  # studies whose cost is not estimated
    memory: dict[str, int]  # part -> bytes
    memory_total: int
    memory_there: int | None  # of this machine or device
    disk: int
    seconds: float
    flops: float  # a second, as measured

    @property
    def fits(self) -> bool:
        """Whether the memory is there."""
        return self.memory_there is None or self.memory_total <= self.memory_there

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "fits": self.fits}


def plan(
    card: ModelCard,
    shown: Shown,
    studies: Sequence[str],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Plan:
    """Estimate a build of these studies on these texts and questions."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loads = {name: LOADS[name](card, shown) for name in studies if name in LOADS}
    speed = measured_flops(card.hidden_size, dtype, device)
    rows = {
        name: {
            "examples": load.examples,
            "tokens": load.tokens,
            "seconds": OVERHEAD * load.flops / speed + load.fitting,
        }
        for name, load in loads.items()
    }
    memory = _memory(card, max((load.batch_tokens for load in loads.values()), default=1), dtype, device)
    return Plan(
        model=card.id,
        dtype=str(dtype).removeprefix("torch."),
        device=device.type,
        studies=rows,
        unknown=tuple(name for name in studies if name not in LOADS),
        memory=memory,
        memory_total=sum(memory.values()),
        memory_there=_memory_there(device),
        disk=4 * sum(load.kept for load in loads.values()),
        seconds=sum(row["seconds"] for row in rows.values()),
        flops=speed,
    )


def measured_flops(width: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.4) -> float:
    """Floating-point operations a second, in a product of 1024 x width x 4 width; of a wide model, a part of it."""
    width = min(width, WIDEST)
    a = torch.randn(1024, width, device=device).to(dtype)
    b = torch.randn(width, 4 * width, device=device).to(dtype)
    a @ b
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        (a @ b)[0, 0].item()
        count += 1
    return count * 2 * 1024 * width * 4 * width / (time.perf_counter() - start)


def _memory(card: ModelCard, tokens: int, dtype: torch.dtype, device: torch.device) -> dict[str, int]:
    text = card.config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * card.hidden_size
    inner = max(inner) if isinstance(inner, list | tuple) else inner
    width = 6 * card.hidden_size + 3 * inner + (card.heads + 2 * card.kv_heads) * card.head_dim
    rows = card.heads * (card.head_dim + card.kv_heads * card.head_dim // max(1, card.heads) + STATISTICS + 4)
    block = BLOCK if device.type == "cpu" else BLOCK_ON_DEVICE
    parts = {
        "weights": card.bytes(dtype),
        "activations of a batch": tokens * width * dtype.itemsize,
        "reductions": tokens * rows * 4 + 2 * block * 4,
    }
    if device.type == "cpu":
        parts = {"Python and libraries": int(PROCESS), **parts}
    return {name: int(size) for name, size in parts.items()}


def _memory_there(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
