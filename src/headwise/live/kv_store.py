"""Queries and keys of the last runs, in memory, so that a head's map is computed without another forward pass.

Per layer the store holds q and k (after rotation), the log-sum-exp of the attention rows, and the mask: for 4,096 tokens of the
default model 13 MB per layer, where its nine full maps would take 600 MB. At most `capacity` bytes are held; the least recently
used layers are evicted first, and recomputed by a forward pass that stops at that layer.

    4 bytes x T x (heads + kv_heads) x width  per layer

Stored tensors are copies on the model's device: nothing of the forward pass stays alive.

Two instruments of a live forward pass: `StoreAttention` fills the store, `CancellationCheck` measures nothing and checks a
`CancelToken` at every layer, so that cancelling a pass over a long prompt takes one layer and not half a minute.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import replace

import xarray as xr
from torch import Tensor

from headwise.core.cancellation import CancelToken
from headwise.kernels import Attention
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

__all__ = ["AttentionStore", "CancellationCheck", "LayerReached", "StoreAttention"]

CAPACITY = 1 << 30  # bytes


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
