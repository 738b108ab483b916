"""What a build will cost, before any weight is loaded: memory, disk and time, from the model's card.

    memory   the process itself, the weights, the activations of the largest batch, the blocks of the reductions
    disk     what the studies keep for every head (and example)
    time     the matrix work of each study (see `loads`) over the speed of this machine, which is measured on the spot
             with a matrix product of the model's own shape (half a second); and what is fitted beside it. The fastest
             of many products counts: others that use the machine slow some of them down, and the build only as long as
             they are there. Loading the model and drawing are left out: about a minute

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
from headwise.markup import card, paragraph, table
from headwise.model import ModelCard
from headwise.studies.loads import LOADS, STATISTICS, Shown

PROCESS = 600e6  # bytes of Python with torch, transformers and xarray loaded
WIDEST = 2048  # beyond it the speed hardly changes, and the product takes long
ROWS = (64, 512)  # of a product: so few that some run without being interrupted, and as many as a batch has


@dataclass(frozen=True)
class Plan:
    """The estimate. Bytes and seconds."""

    model: str
    dtype: str
    device: str
    studies: dict[str, dict[str, Any]]  # study -> examples, unit (what they are), tokens, seconds
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

    def __repr__(self) -> str:
        return (
            f"<Plan {self.model} in {self.dtype} on {self.device}: {size_text(self.memory_total)} of memory, "
            f"{size_text(self.disk)} of disk, {time_text(self.seconds)}{'' if self.fits else '; does NOT fit'}>"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The estimate for a reader: memory, disk or time; of what; how much; and a word on it."""
        there = "" if self.memory_there is None else f"of {size_text(self.memory_there)}"
        rows = [("memory", part, size_text(size), "") for part, size in self.memory.items()]
        rows += [("memory", "in all", size_text(self.memory_total), there)]
        rows += [("disk", "atlas", size_text(self.disk), "")]
        for name, row in self.studies.items():
            shown = (
                f"{row['examples']:,.0f} {row.get('unit', 'examples')}, {row['tokens']:,.0f} tokens"
                if row["tokens"]
                else "weights alone"
            )
            rows += [("time", name, time_text(row["seconds"]), shown)]
        rows += [("time", name, "?", "not estimated") for name in self.unknown]
        return [
            *rows,
            (
                "time",
                "in all",
                time_text(self.seconds),
                f"at {self.flops / 1e9:,.0f} Gflop/s, measured here; without loading and drawing",
            ),
        ]

    def verdict(self) -> str:
        """Whether it fits, in a sentence."""
        return "It fits." if self.fits else "It does not fit: use a smaller dtype, a GPU, or a smaller model."

    def _repr_html_(self) -> str:
        parts = table(self.rows()), paragraph(self.verdict())
        return card(f"Plan for {self.model}", *parts, note=f"{self.dtype} on {self.device}")


def size_text(size: float) -> str:
    """Bytes for a reader.

    >>> size_text(538_000_000), size_text(12)
    ('538 MB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def time_text(seconds: float) -> str:
    """Seconds for a reader.

    >>> time_text(42), time_text(600), time_text(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    rows: dict[str, dict[str, Any]] = {
        name: {
            "examples": load.examples,
            "unit": load.unit,
            "tokens": load.tokens,
            "seconds": load.slower * load.flops / speed + load.fitting,
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
    """Floating-point operations a second, in the fastest of many products with a width x 4 width matrix.

    On a CPU also with one thread: where others use the machine, two threads hardly ever run at once.
    """
    width, threads = min(width, WIDEST), torch.get_num_threads()
    b = torch.randn(width, 4 * width, device=device).to(dtype)
    ways = [(rows, count) for rows in ROWS for count in ({1, threads} if device.type == "cpu" else {threads})]
    try:
        return max(_fastest(b, rows, count, seconds / len(ways)) for rows, count in ways)
    finally:
        torch.set_num_threads(threads)


def _fastest(b: torch.Tensor, rows: int, threads: int, seconds: float) -> float:
    """The speed of the fastest product of so many rows."""
    torch.set_num_threads(threads)
    a = torch.randn(rows, len(b), device=b.device).to(b.dtype)
    (a @ b)[0, 0].item()
    fastest, end = float("inf"), time.perf_counter() + seconds
    while fastest == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        (a @ b)[0, 0].item()
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * rows * b.numel() / fastest


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
