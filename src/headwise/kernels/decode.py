"""One decode step of a layer on a GPU: its output and the sums of its row in one launch of `triton_decode`.

The step's plain attention reads K and V once and so does this kernel, which replaces it: observing costs arithmetic that a step
bound by memory has to spare. Its z differs from SDPA's by rounding only; under observation z comes from here.

Supported: bfloat16, float16 and float32, heads of up to 256 numbers (values may have another width), up to 64 query heads per
kv head, soft-capped logits, learned sinks, any mask that is the same for all heads of an example, caches longer than their
content. Not supported: gates, float64, masks that differ between heads, gradients; `decode` then returns None, and the row is
computed as in `rows`.

A launch in Python costs as much as the kernel for short contexts. So a kernel that was compiled once is launched directly,
without Triton's inspection of every argument; where an argument breaks what it was compiled for, through Triton as usual.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
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
PROGRAMS_PER_PROCESSOR = 2
ALIGNED = 16  # bytes of a pointer and numbers of a stride: what the direct launch relies on
WARPS, STAGES = 4, 3

_COMPILED: dict[tuple[Any, ...], Any] = {}  # kernels by all that they were compiled for


def decode(attention: Attention, v: Tensor, marks: RowMarks, layer: int) -> Tensor | None:
    """z, (batch, 1, head, value width), while the sums of its row are written into ``marks``; None where it is not supported.

    Args:
        attention: of one layer, with one query per example.
        v: (batch, kv_head, key, value width).
        marks: which keys mean what, and where the sums go.
        layer: whose sums they are.
    """
    q, k = attention.q, attention.k
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
    ):
        return None
    q_b, q_h, _, q_d = q.stride()
    k_b, k_h, k_t, k_d = k.stride()
    v_b, v_h, v_t, v_d = v.stride()
    if not q_d == k_d == v_d == 1:
        return None
    device = q.device
    places, sums = marks.on(device)
    block = _block(width, value_width, q.dtype)
    high = min(keys, marks.tokens)
    splits, span = _split(device, batch * kv_heads, high, block)
    value_block = max(16, triton.next_power_of_2(value_width))
    partial, arrived = _scratch(marks, device, batch * kv_heads, splits * group * (value_block + 8))
    z = torch.empty(batch, 1, heads, value_width, dtype=q.dtype, device=device)
    heads_block = triton.next_power_of_2(group)
    visible_b = 0 if visible is None or len(visible) == 1 else visible.stride(0)
    strides = (q_b, q_h, k_b, k_h, k_t, v_b, v_h, v_t)
    sinks = attention.sinks
    constants = (
        group, width, value_width, attention.softcap is not None, visible is not None, sinks is not None,
        max(16, heads_block), heads_block, block, max(16, triton.next_power_of_2(width)), value_block,
        "ieee" if q.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    arguments = (
        q, k, v, z, None if visible is None else visible.view(torch.uint8), sinks, places, sums, partial, arrived, *strides,
        visible_b, sums.stride(1), layer * sums.stride(0), high, max(0, marks.tokens - keys), span,
        attention.scale * LOG2E.value, attention.softcap or 1.0, *constants,
    )  # fmt: skip
    _launch((splits, kv_heads, batch), arguments, (q, k, v), strides, (q.dtype, sinks is None or sinks.dtype, constants))
    marks.written.setdefault(device, []).append(layer)
    return z


def _block(width: int, value_width: int, dtype: torch.dtype) -> int:
    """Keys per tile."""
    return 32 if dtype == torch.float32 or max(width, value_width) > 128 else 64


def _split(device: torch.device, units: int, keys: int, block: int) -> tuple[int, int]:
    """How many programs share the keys of a unit (an example's kv head), and how many keys each of them gets."""
    wanted = max(-(-keys // LONGEST_SPLIT), PROGRAMS_PER_PROCESSOR * _processors(device) // units, 1)
    span = -(-keys // min(wanted, MAX_SPLITS))
    span = -(-span // block) * block
    return -(-keys // span), span


_PROCESSORS: dict[torch.device, int] = {}


def _processors(device: torch.device) -> int:
    if device not in _PROCESSORS:
        cuda = device.type == "cuda"
        _PROCESSORS[device] = torch.cuda.get_device_properties(device).multi_processor_count if cuda else 8
    return _PROCESSORS[device]


def _scratch(marks: RowMarks, device: torch.device, units: int, each: int) -> tuple[Tensor, Tensor]:
    """Partial sums, and how many programs of a unit have arrived: zeros, as each launch leaves them."""
    partial, arrived = marks.scratch.get(device, (None, None))
    if partial is None or partial.numel() < units * each:
        partial = torch.empty(units * each, dtype=torch.float32, device=device)
    if arrived is None or arrived.numel() < units:
        arrived = torch.zeros(units, dtype=torch.int32, device=device)
    marks.scratch[device] = partial, arrived
    return partial, arrived


def _launch(
    grid: tuple[int, int, int],
    arguments: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    strides: tuple[int, ...],
    kind: tuple[Any, ...],
) -> None:
    """Launch on the device of the tensors: directly where they are as aligned as those the kernel was compiled for."""
    device = tensors[0].device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _launch(grid, arguments, tensors, strides, kind)
    aligned = all(one % ALIGNED == 0 and one < 2**31 for one in strides)
    aligned = aligned and all(one.data_ptr() % ALIGNED == 0 for one in tensors)
    key = (device, kind)
    compiled = _COMPILED.get(key) if aligned else None
    if compiled is not None:
        compiled[grid](*arguments)
        return None
    compiled = triton_decode.decode_kernel[grid](*arguments, num_warps=WARPS, num_stages=STAGES)
    if aligned and compiled is not None:  # None: Triton's interpreter
        _COMPILED[key] = compiled
    return None
