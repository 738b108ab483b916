"""One decode step of a layer on a GPU: its output and the statistics of its row in one launch of `triton_decode`.

The step's plain attention reads K and V once and so does this kernel, which replaces it: observing costs arithmetic that a step
bound by memory has to spare. Its z differs from SDPA's by rounding only; under observation z comes from here.

Supported: bfloat16, float16 and float32, heads of up to 256 numbers (values may have another width), up to 64 query heads per
kv head, soft-capped logits, learned sinks, any mask that is the same for all heads of an example, caches longer than their
content. Not supported: gates, float64, masks that differ between heads, gradients; `decode` then returns None, and the row is
computed as in `rows`.

Half of a step's time with few examples is Python. So layers with the same shapes, strides and mask share what a launch needs
(`Launch`), and a kernel that was compiled once is launched directly, without Triton's inspection of every argument; where a
tensor is not as aligned as those it was compiled for, through Triton as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from headwise.kernels import triton_decode
from headwise.kernels.attention import Attention
from headwise.kernels.contract import RowMarks
from headwise.kernels.triton_reductions import LOG2E

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MAX_WIDTH = 256  # of a head
MAX_GROUP = 64  # query heads per kv head
MAX_SPLITS = 64  # stretches of keys; the last program merges them
LONGEST_SPLIT = 1024  # keys: from here on more programs balance better than they cost
PROGRAMS_PER_PROCESSOR = 1  # at least, where keys are many enough
ALIGNED = 16  # bytes of a pointer and numbers of a stride: what the direct launch relies on
WARPS, STAGES = 4, 3  # with tiles of 64 keys, the fastest of a dozen settings on an H200

_COMPILED: dict[tuple[Any, ...], Any] = {}  # kernels by all that they were compiled for


def decode(attention: Attention, v: Tensor, marks: RowMarks, layer: int) -> Tensor | None:
    """z, (batch, 1, head, value width), while the row's statistics are written into ``marks``; None where it is not supported.

    Args:
        attention: of one layer, with one query per example.
        v: (batch, kv_head, key, value width).
        marks: which keys mean what, and where the statistics go.
        layer: whose statistics they are.
    """
    launch = prepare(attention, v, marks)
    return None if launch is None else launch(layer, attention.q, attention.k, v, attention.sinks)


@dataclass(frozen=True)
class Launch:
    """What layers with the same shapes, strides, mask and scale have in common in one step."""

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, int, int, int]  # of z
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]  # of the kernel, after those that differ between layers
    of_a_layer: int  # numbers in its statistics
    written: list[int]  # layers, of the marks
    key: tuple[Any, ...] | None  # of the compiled kernel; None: the strides are not aligned
    direct: Callable[..., None] | None  # launches the compiled kernel, where there is one yet
    stream: int

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        """The z of one layer."""
        z = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        given = (q, k, v, z, sinks, layer * self.of_a_layer)
        unaligned = (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNED
        if self.direct is not None and not unaligned:
            self.direct(*given, *self.arguments, stream=self.stream)
        else:
            self._through_triton(given, keep=not unaligned)
        self.written.append(layer)
        return z

    def _through_triton(self, given: tuple[Any, ...], *, keep: bool) -> None:
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            kernel = triton_decode.decode_kernel[self.grid]
            compiled = kernel(*given, *self.arguments, num_warps=WARPS, num_stages=STAGES)
        if keep and self.key is not None and compiled is not None:  # None: Triton's interpreter
            _COMPILED[self.key] = compiled
            if self.device.index == torch.cuda.current_device():
                object.__setattr__(self, "direct", compiled[self.grid])


def prepare(attention: Attention, v: Tensor, marks: RowMarks) -> Launch | None:
    """The launch of a layer and of those like it; None where the kernel does not support it."""
    q, k, sinks = attention.q, attention.k, attention.sinks
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1:3]
    group, value_width = heads // kv_heads, v.shape[3]
    visible = attention.mask.rows(None)  # (batch or 1, 1 or head, 1, key)
    if (
        queries != 1
        or attention.gate is not None
        or q.dtype not in DTYPES
        or not q.dtype == k.dtype == v.dtype
        or max(width, value_width) > MAX_WIDTH
        or group > MAX_GROUP
        or len(marks.places) != batch
        or (visible is not None and (visible.shape[1] != 1 or visible.stride(3) != 1))
        or not q.stride(3) == k.stride(3) == v.stride(3) == 1
    ):
        return None
    device = q.device
    places, statistics = marks.on(device)
    high = min(keys, marks.tokens)
    block = _block(width, value_width, q.dtype)
    splits, span = _split(device, batch * kv_heads, high, block)
    heads_block, value_block = _power_of_two(group), max(16, _power_of_two(value_width))
    partial, arrived = _scratch(marks, device, batch * kv_heads, splits * group * (value_block + 8))
    strides = (*q.stride()[:2], *k.stride()[:3], *v.stride()[:3])
    constants = (
        group, width, value_width, attention.softcap is not None, visible is not None, sinks is not None,
        max(16, heads_block), heads_block, block, max(16, _power_of_two(width)), value_block,
        "ieee" if q.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    arguments = (
        None if visible is None else visible.view(torch.uint8), places, statistics, partial, arrived, *strides,
        0 if visible is None or len(visible) == 1 else visible.stride(0), statistics.stride(1),
        high, max(0, marks.tokens - keys), span, attention.scale * LOG2E.value, attention.softcap or 1.0, *constants,
    )  # fmt: skip
    grid = (splits, kv_heads, batch)
    aligned = all(one % ALIGNED == 0 and one < 2**31 for one in strides)
    key = (device, q.dtype, None if sinks is None else sinks.dtype, constants) if aligned else None
    here = device.type == "cuda" and device.index == torch.cuda.current_device()
    compiled = _COMPILED.get(key) if key is not None and here else None
    written = marks.written.setdefault(device, [])
    return Launch(
        device, q.dtype, (batch, 1, heads, value_width), grid, arguments, statistics.stride(0), written, key,
        None if compiled is None else compiled[grid], torch.cuda.current_stream(device).cuda_stream if here else 0,
    )  # fmt: skip


class DecodeStep:
    """All layers of one decode step, of which those that are alike are prepared once.

    Args:
        marks: which keys mean what, and where the statistics go.
    """

    def __init__(self, marks: RowMarks):
        self.marks = marks
        self._launches: dict[tuple[Any, ...], Launch] = {}

    def again(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, alike: tuple[Any, ...]
    ) -> Tensor | None:
        """The z of a layer like one before it; None where there was none. ``alike``: all but shapes that must be the same."""
        launch = self._launches.get(self._key(q, k, v, sinks, alike))
        return None if launch is None else launch(layer, q, k, v, sinks)

    def first(self, layer: int, attention: Attention, v: Tensor, alike: tuple[Any, ...]) -> Tensor | None:
        """The z of a layer unlike those before it; None where the kernel does not support it."""
        launch = prepare(attention, v, self.marks)
        if launch is None:
            return None
        self._launches[self._key(attention.q, attention.k, v, attention.sinks, alike)] = launch
        return launch(layer, attention.q, attention.k, v, attention.sinks)

    def finish(self) -> None:
        """Nothing is held: each launch writes its layer's statistics."""

    def _key(self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, alike: tuple[Any, ...]) -> tuple[Any, ...]:
        shapes = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride())
        return (*shapes, q.dtype, k.dtype, v.dtype, q.device, sinks is None, alike)


def _block(width: int, value_width: int, dtype: torch.dtype) -> int:
    """Keys per tile."""
    return 32 if dtype == torch.float32 or max(width, value_width) > 128 else 64


def _power_of_two(number: int) -> int:
    """The next one.

    >>> [_power_of_two(number) for number in (1, 3, 64, 80)]
    [1, 4, 64, 128]
    """
    return 1 << (number - 1).bit_length()


def _split(device: torch.device, units: int, keys: int, block: int) -> tuple[int, int]:
    """How many programs share the keys of a unit (an example's kv head), and how many keys each of them gets."""
    wanted = max(-(-keys // LONGEST_SPLIT), PROGRAMS_PER_PROCESSOR * _processors(device) // units, 1)
    span = -(-keys // min(wanted, MAX_SPLITS))
    span = -(-span // block) * block
    return -(-keys // span), span


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8


def _scratch(marks: RowMarks, device: torch.device, units: int, each: int) -> tuple[Tensor, Tensor]:
    """Partial sums, and how many programs of a unit have arrived: zeros, as each launch leaves them."""
    partial, arrived = marks.scratch.get(device, (None, None))
    if partial is None or partial.numel() < units * each:
        partial = torch.empty(units * each, dtype=torch.float32, device=device)
    if arrived is None or arrived.numel() < units:
        arrived = torch.zeros(units, dtype=torch.int32, device=device)
    marks.scratch[device] = partial, arrived
    return partial, arrived
