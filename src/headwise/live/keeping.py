"""What fixes the attention of the last looks, kept in memory so that a head can be opened large without another pass.

Of every layer q and k are kept (after rotation) with the log-sum-exp of their rows and what may be seen: for 4,096
tokens of the default model 13 MB a layer, where its nine whole maps would be 600 MB. The store holds at most `room`
bytes; the layers that were used longest ago go first, and are read again by a pass that ends at that layer.

    4 bytes x T x (heads + kv_heads) x width  a layer

The kept tensors are copies on the model's device: nothing of the pass itself is held alive.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import replace

import xarray as xr
from torch import Tensor

from headwise.kernels import Attention
from headwise.seam import AttentionCall, Instrument, Structure

__all__ = ["Enough", "Keep", "Kept"]

ROOM = 1 << 30


class Enough(Exception):  # noqa: N818  (not an error: the pass may end here)
    """All that was wanted of a pass was seen."""


class Kept:
    """Attention by (look, layer), at most `room` bytes of it. May be used from several threads."""

    def __init__(self, room: int = ROOM):
        self.room, self.bytes = room, 0
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, int], Attention] = OrderedDict()

    def put(self, look: str, layer: int, attention: Attention) -> None:
        """Keep a layer, in the place of those that were used longest ago. One that is larger than the room stays out."""
        size = size_of(attention)
        with self._lock:
            self._drop((look, layer))
            if size > self.room:
                return
            while self.bytes + size > self.room:
                self._drop(next(iter(self._held)))
            self._held[look, layer] = attention
            self.bytes += size

    def get(self, look: str, layer: int) -> Attention | None:
        """A layer, which then counts as just used; None where it is gone."""
        with self._lock:
            if (look, layer) in self._held:
                self._held.move_to_end((look, layer))
            return self._held.get((look, layer))

    def forget(self, look: str) -> None:
        """All layers of a look."""
        with self._lock:
            for key in [key for key in self._held if key[0] == look]:
                self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        found = self._held.pop(key, None)
        self.bytes -= 0 if found is None else size_of(found)


def size_of(attention: Attention) -> int:
    """Bytes. An explicit mask is shared by the layers of a pass, and is not counted."""
    parts = (attention.q, attention.k, attention.lse)
    return sum(part.numel() * part.element_size() for part in parts if part is not None)


class Keep(Instrument):
    """Puts the layers of a pass into a store: all, or one, after which the pass ends with `Enough`."""

    name = "keep"

    def __init__(self, store: Kept, look: str, only: int | None = None):
        self.store, self.look, self.only = store, look, only
        self.found: Attention | None = None

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Nothing is put on the model."""

    def on_layer(self, call: AttentionCall) -> None:
        """Copy one layer."""
        if self.only is not None and call.layer != self.only:
            return
        kept = call.attention
        kept = replace(kept, q=_copy(kept.q), k=_copy(kept.k), lse=None if kept.lse is None else _copy(kept.lse))
        self.store.put(self.look, call.layer, kept)
        if self.only is not None:
            self.found = kept
            raise Enough

    def result(self) -> xr.Dataset:
        """Nothing: the store has it."""
        return xr.Dataset()


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
