"""Attention maps reduced to a bounded number of cells by max-pooling, without ever holding a T x T map of all heads.

A cell is the maximum weight of its rectangle (as `instruments.PooledMaps`, which this equals and is tested against), and the
maximum weight is the exponential of the maximum log-weight. So one matrix product (`kernels.blocked`) gives log-weights, and
only the pooled cells go through an exponential:

    cell = exp( max over the rectangle of log a_ij )

`SmallMaps` pools every head's map during a forward pass. `head_window` computes a window of one head's map, rows [a, b) and
columns [c, d), from an `AttentionStore`, without a forward pass: every cell is one weight up to `size` tokens per side, pooled
beyond. The store holds q and k (after rotation), the log-sum-exp of the rows and the mask of the last runs:

    4 bytes x T x (heads + kv_heads) x width  per layer

For 4,096 tokens of the default model that is 13 MB per layer, where its nine full maps would take 600 MB. The least recently
used layers are evicted first, and recomputed by a forward pass that stops at that layer.

Cost: one QK^T product and one maximum over the visible half; 16 MB for the mask at 4,096 tokens. A window costs (b - a) queries
times (d - c) keys where the rows' log-sum-exp is known, times all visible keys where not.
Weights under e^-80 read as e^-80. A cell whose queries see none of its keys is NaN: masked, not small.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.cancellation import CancelToken
from headwise.core.dims import KEY, QUERY
from headwise.core.errors import DataError
from headwise.instruments.readings import HeadReadings
from headwise.kernels.attention import HIDDEN, Attention, AttentionMask
from headwise.kernels.blocked import FLOOR, LogWeights
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

__all__ = [
    "AttentionStore",
    "CancellationCheck",
    "LayerReached",
    "SmallMaps",
    "Span",
    "StoreAttention",
    "check_span",
    "head_window",
    "one_head",
    "pooled_window",
    "segment_starts",
    "visible_cells",
]


MAX_BLOCK_NUMBERS = 500_000  # log-weights held at once: 2 MB, which fits into a CPU's cache
CAPACITY = 1 << 30  # bytes of stored attention

Span = tuple[int, int]


class SmallMaps(HeadReadings):
    """Maps with dims (example, layer, head, query, key)."""

    name = "small_maps"
    whole_sequences = True
    extra_dims = {"maps": (QUERY, KEY)}

    def __init__(self, size: int = 64):
        super().__init__()
        self.size = size
        self._visible: dict[int, tuple[AttentionMask, Tensor]] = {}

    def on_forward_start(self, context: ForwardContext) -> None:
        """Drop the masks of the previous pass."""
        super().on_forward_start(context)
        self._visible.clear()

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's maps, (batch, head, query, key)."""
        attention = call.attention
        rows, columns = (0, attention.q.shape[2]), (0, attention.k.shape[2])
        mask = attention.mask
        if id(mask) not in self._visible:  # held, so that its id is not reused
            self._visible[id(mask)] = (mask, visible_cells(mask, rows, columns, self.size))
        maps = pooled_window(attention, rows, columns, self.size)
        return {"maps": maps.masked_fill(~self._visible[id(mask)][1], torch.nan)}


def segment_starts(first: int, last: int, size: int) -> list[int]:
    """First tokens of the rows of a map: [first, last) cut into at most `size` segments, and `last` at the end.

    >>> segment_starts(0, 5, 2), segment_starts(3, 5, 4)
    ([0, 2, 5], [3, 4, 5])
    """
    count = min(size, last - first)
    return [first + index * (last - first) // count for index in range(count + 1)]


def pooled_window(attention: Attention, rows: Span, columns: Span, size: int) -> Tensor:
    """(batch, head, row, column): the maximum weight of each rectangle of a window; masked cells read as e^-80."""
    parts = []
    for example in range(attention.q.shape[0]):
        heads = [
            _pool_group(attention, example, kv_head, rows, columns, size) for kv_head in range(attention.k.shape[1])
        ]
        parts.append(torch.cat(heads))
    return torch.stack(parts).clamp(min=FLOOR).exp()


def visible_cells(mask: AttentionMask, rows: Span, columns: Span, size: int) -> Tensor:
    """(batch or 1, head or 1, row, column) bool: whether any query of the rectangle sees any key of it."""
    seen = mask.matrix()[:, :, rows[0] : rows[1], columns[0] : columns[1]].to(torch.uint8)
    seen = _segment_max(seen, segment_starts(0, rows[1] - rows[0], size), dim=-2)
    return _segment_max(seen, segment_starts(0, columns[1] - columns[0], size), dim=-1).bool()


def check_span(given: Span | None, tokens: int, what: str) -> Span:
    """A range of tokens, checked; all tokens where none is given."""
    first, last = given or (0, tokens)
    if not 0 <= first < last <= tokens:
        raise DataError(
            f"{what} {first}:{last} is out of range; give two numbers from 0 to {tokens}, the first smaller"
        )
    return int(first), int(last)


def head_window(attention: Attention, head: int, rows: Span, columns: Span, size: int) -> np.ndarray:
    """(row, column) float32, NaN where masked."""
    alone = one_head(attention, head)
    with torch.no_grad():
        weights = pooled_window(alone, rows, columns, size)
        visible = visible_cells(alone.mask, rows, columns, size)
        return weights.masked_fill(~visible, torch.nan)[0, 0].cpu().numpy()


def one_head(attention: Attention, head: int) -> Attention:
    """The attention of a single query head, with the key-value head it reads."""
    kv_head, own = head // attention.group, slice(head, head + 1)
    mask = attention.mask
    if mask.explicit is not None and mask.explicit.shape[1] > 1:
        mask = replace(mask, explicit=mask.explicit[:, own])
    return replace(
        attention,
        q=attention.q[:, own],
        k=attention.k[:, kv_head : kv_head + 1],
        mask=mask,
        sinks=None if attention.sinks is None else attention.sinks[own],
        lse=None if attention.lse is None else attention.lse[:, own],
    )


def _pool_group(attention: Attention, example: int, kv_head: int, rows: Span, columns: Span, size: int) -> Tensor:
    """(group, row, column) log-weights of the query heads that share a kv head."""
    row_starts, column_starts = segment_starts(*rows, size), segment_starts(*columns, size)
    highest = max(stop - start for start, stop in itertools.pairwise(row_starts))
    per_block = max(1, MAX_BLOCK_NUMBERS // (attention.group * attention.k.shape[2] * highest))  # segments per block
    source = LogWeights(attention, slice(example, example + 1), slice(kv_head, kv_head + 1), highest * per_block)
    pooled = attention.q.new_full(
        (attention.group, len(row_starts) - 1, len(column_starts) - 1), HIDDEN, dtype=torch.float32
    )
    for row in range(0, len(row_starts) - 1, per_block):
        starts = row_starts[row : row + per_block + 1]
        low, logs = _rows(source, attention.mask, starts[0], starts[-1], columns)
        if logs is None:
            continue
        cells = _segment_max(logs, [start - starts[0] for start in starts], dim=-2)
        _pool_columns(pooled[:, row : row + len(starts) - 1], cells, low, column_starts)
    return pooled


def _rows(source: LogWeights, mask: AttentionMask, start: int, stop: int, columns: Span) -> tuple[int, Tensor | None]:
    """The first key, and (group, query, key) log-weights of rows, limited to the columns of the window."""
    low, high = mask.span(start, stop)
    first, last = max(low, columns[0]), min(high, columns[1])
    if first >= last:
        return first, None
    if source.lse_known:  # the rows' log-sum-exp is known: only the window's keys are needed
        return first, source.block(start, stop, first, last)[0, 0]
    return first, source.block(start, stop, low, high)[0, 0, ..., first - low : last - low]


def _pool_columns(into: Tensor, cells: Tensor, low: int, column_starts: list[int]) -> None:
    """Pool the keys, which begin at `low`, into their columns."""
    high = low + cells.shape[-1]
    if len(column_starts) - 1 == column_starts[-1] - column_starts[0]:  # one token per column
        into[..., low - column_starts[0] : high - column_starts[0]] = cells
        return
    for column, (start, stop) in enumerate(itertools.pairwise(column_starts)):
        start, stop = max(start, low), min(stop, high)
        if start < stop:
            into[..., column] = cells[..., start - low : stop - low].amax(dim=-1)


def _segment_max(values: Tensor, starts: list[int], dim: int) -> Tensor:
    """Maximum of each segment along a dim."""
    if len(starts) - 1 == values.shape[dim]:
        return values
    lengths = [stop - start for start, stop in itertools.pairwise(starts)]
    return torch.stack([part.amax(dim=dim) for part in values.split(lengths, dim=dim)], dim=dim)


class LayerReached(Exception):  # noqa: N818  (not an error: the forward pass may stop here)
    """The requested layer was stored; the rest of the forward pass is not needed."""


class AttentionStore:
    """Attention by (run, layer), at most `capacity` bytes, least recently used evicted first. Thread-safe."""

    def __init__(self, capacity: int = CAPACITY):
        self.capacity, self.bytes = capacity, 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, int], Attention] = OrderedDict()

    def put(self, run: str, layer: int, attention: Attention) -> None:
        """Store a layer, evicting the least recently used. A layer larger than the capacity is not stored."""
        size = size_of(attention)
        with self._lock:
            self._evict((run, layer))
            if size > self.capacity:
                return
            while self.bytes + size > self.capacity:
                self._evict(next(iter(self._entries)))
            self._entries[run, layer] = attention
            self.bytes += size

    def get(self, run: str, layer: int) -> Attention | None:
        """A layer, which then counts as just used; None where it was evicted."""
        with self._lock:
            if (run, layer) in self._entries:
                self._entries.move_to_end((run, layer))
            return self._entries.get((run, layer))

    def remove(self, run: str) -> None:
        """Remove all layers of a run."""
        with self._lock:
            for key in [key for key in self._entries if key[0] == run]:
                self._evict(key)

    def _evict(self, key: tuple[str, int]) -> None:
        found = self._entries.pop(key, None)
        self.bytes -= 0 if found is None else size_of(found)


def size_of(attention: Attention) -> int:
    """Bytes. An explicit mask is shared by the layers of a pass, and is not counted."""
    parts = (attention.q, attention.k, attention.lse)
    return sum(part.numel() * part.element_size() for part in parts if part is not None)


class StoreAttention(Instrument):
    """Stores the layers of a pass: all, or one, after which the pass stops with `LayerReached`."""

    name = "store_attention"

    def __init__(self, store: AttentionStore, run: str, only: int | None = None):
        self.store, self.run, self.only = store, run, only
        self.found: Attention | None = None

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """No hooks are needed."""

    def on_layer(self, call: AttentionCall) -> None:
        """Copy one layer."""
        if self.only is not None and call.layer != self.only:
            return
        seen = call.attention
        copied = replace(seen, q=_copy(seen.q), k=_copy(seen.k), lse=None if seen.lse is None else _copy(seen.lse))
        self.store.put(self.run, call.layer, copied)
        if self.only is not None:
            self.found = copied
            raise LayerReached

    def result(self) -> xr.Dataset:
        """Empty: the store has the result."""
        return xr.Dataset()


class CancellationCheck(Instrument):
    """Checks for cancellation at every layer, and reports progress of passes over more than one token."""

    name = "cancellation_check"

    def __init__(self, cancel: CancelToken, layers: int):
        self.cancel, self.layers = cancel, layers
        self._reports = False

    def on_forward_start(self, context: ForwardContext) -> None:
        """Decoding steps are too short to report."""
        self.cancel.check()
        self._reports = context.valid.shape[1] > 1

    def on_layer(self, call: AttentionCall) -> None:
        """One layer is done."""
        self.cancel.check()
        if self._reports:
            self.cancel.report_progress((call.layer + 1) / self.layers)

    def result(self) -> xr.Dataset:
        """Empty."""
        return xr.Dataset()


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
