"""What a build will cost, before any weight is loaded: memory, disk and time, from the model's card.

    memory   the process itself, the weights, the activations of one batch, the blocks of the reductions
    disk     what the studies keep for every head (and example)
    time     2 x parameters x tokens of matrix work, and one more QK^T for the reductions, over the speed of this
             machine, which is measured on the spot with a matrix product of the model's own shape (half a second)

An estimate, not a promise: for the default model the memory comes out within a factor 1.5 of what is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headwise.corpora import Passages
from headwise.kernels.blocked import BLOCK, BLOCK_ON_DEVICE
from headwise.model import ModelCard
from headwise.studies.profile import ProfileOptions

PROCESS = 600e6  # bytes of Python with torch, transformers and xarray loaded
CHARACTERS_PER_TOKEN = 3.4  # of the packaged passages under the default tokenizer; texts without a tokenizer at hand
STATISTICS = 11
OVERHEAD = 1.25  # measured: what a build takes beyond its matrix work


@dataclass(frozen=True)
class Plan:
    """The estimate. Bytes and seconds."""

    model: str
    dtype: str
    device: str
    studies: tuple[str, ...]
    examples: int
    tokens: int
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
    passages: Passages,
    studies: Sequence[str],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    options: ProfileOptions | None = None,
) -> Plan:
    """Estimate a build of these studies on these texts."""
    options = options or ProfileOptions()
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    limit = min(options.max_tokens, card.max_positions or options.max_tokens)
    texts = [min(limit, round(len(item.text) / CHARACTERS_PER_TOKEN)) for item in passages.items]
    tokens = sum(texts) + options.repeats * min(limit, 2 * options.period)
    memory = _memory(card, min(options.batch_tokens, tokens), dtype, device)
    speed = measured_flops(card.hidden_size, dtype, device)
    examples = len(passages) + options.repeats
    return Plan(
        model=card.id,
        dtype=str(dtype).removeprefix("torch."),
        device=device.type,
        studies=tuple(studies),
        examples=examples,
        tokens=tokens,
        memory=memory,
        memory_total=sum(memory.values()),
        memory_there=_memory_there(device),
        disk=4 * card.layers * card.heads * STATISTICS * (examples + 4),
        seconds=OVERHEAD * (_forward_flops(card, tokens) + _reduction_flops(card, texts)) / speed,
        flops=speed,
    )


def measured_flops(width: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.4) -> float:
    """Floating-point operations a second, in a product of 1024 x width x 4 width."""
    a = torch.randn(1024, width, device=device).to(dtype)
    b = torch.randn(width, 4 * width, device=device).to(dtype)
    a @ b
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        (a @ b)[0, 0].item()
        count += 1
    return count * 2 * 1024 * width * 4 * width / (time.perf_counter() - start)


def _forward_flops(card: ModelCard, tokens: int) -> float:
    embedding = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    return 2.0 * (card.parameters - embedding) * tokens


def _reduction_flops(card: ModelCard, lengths: Sequence[int]) -> float:
    """QK^T and PV of the forward pass, and one more QK^T; half of each T x T is visible."""
    pairs = sum(length * length / 2 for length in lengths)
    heads = sum(layer.heads * (2 * layer.head_dim + layer.value_dim) for layer in card.per_layer)
    return 2.0 * pairs * heads


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
