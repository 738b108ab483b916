"""Attention maps: of chosen heads in full, or of all heads max-pooled.

`Patterns` stores T x T numbers: 4 bytes x examples x heads x T x T (30 layers x 9 heads at 1,024 tokens: 1.1 GB per
example), so it has a `limit`, 2 GiB by default. All forward passes must have the same length.

`PooledMaps` stores at most `size` x `size` numbers per head and example. A map of T tokens is divided into `size` intervals
of queries and of keys (the k-th begins at token k T / size, rounded down), and each pixel is the largest weight of its
rectangle, so no peak is lost, as it would be by skipping rows. Cost: one layer's T x T maps at a time, in groups of heads.

Invisible keys are NaN, not zero: a masked entry is not a small weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, PLACE, QUERY, head_name, parse_heads
from headwise.core.errors import DataError, SeamError
from headwise.instruments.readings import HeadReadings
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure


class Patterns(Instrument):
    """Attention maps, dims (example, place, query, key); the dim `place` enumerates heads by name, L{l}H{h}.

    Args:
        heads: such as ``"L3H7, L4H0"``, names, or (layer, head) pairs; None: all heads.
        limit: the most bytes the maps may take.

    Examples:
        >>> with hw.observe(model, hw.Patterns("L0H3")) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> seen["patterns"].weights.sel(place="L0H3").isel(example=0).values.round(1)  # (query, key)
        array([[ 1., nan, nan, nan],
               [ 1.,  0., nan, nan],
               [ 0.,  1.,  0., nan],
               [ 0.,  0.,  1.,  0.]], dtype=float32)
    """

    name = "patterns"

    def __init__(self, heads: str | Iterable[str | tuple[int, int]] | None = None, *, limit: int = 2 << 30):
        self.chosen = None if heads is None else parse_heads(heads)
        self.limit = limit
        self._bytes = 0
        self._current: dict[tuple[int, int], np.ndarray] = {}
        self._passes: list[dict[tuple[int, int], np.ndarray]] = []

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have, before it runs."""
        structure.require_heads(self.chosen or [])

    def on_forward_start(self, context: ForwardContext) -> None:
        """Discard the remains of a failed pass."""
        self._bytes -= sum(maps.nbytes for maps in self._current.values())
        self._current = {}

    def on_layer(self, call: AttentionCall) -> None:
        """Materialise the chosen heads of one layer."""
        if self.chosen is None:
            heads = list(range(call.heads))
        else:
            heads = [head for layer, head in dict.fromkeys(self.chosen) if layer == call.layer]
        if not heads:
            return
        queries, keys = call.attention.q.shape[2], call.attention.k.shape[2]
        needed = 4 * call.batch * len(heads) * queries * keys
        if self._bytes + needed > self.limit:
            raise DataError(
                f"the attention maps would take more than {self.limit / 2**30:.1f} GiB; choose fewer heads "
                '(Patterns(heads="L3H7, L4H0")), fewer or shorter texts, or raise Patterns(limit=...)'
            )
        maps = call.attention.weights(heads)
        seen = call.attention.mask.matrix()
        seen = seen[:, heads] if seen.shape[1] > 1 else seen
        visible = seen & call.valid[:, None, :, None]
        found = maps.masked_fill(~visible, torch.nan).cpu().numpy()
        self._bytes += needed
        for index, head in enumerate(heads):
            self._current[call.layer, head] = found[:, index]

    def on_forward_end(self, context: ForwardContext) -> None:
        """Store the complete pass."""
        self._passes.append(self._current)
        self._current = {}

    def result(self) -> xr.Dataset:
        """`weights` over (example, place, query, key), with `layer` and `head` along `place`."""
        if not self._passes:
            raise SeamError("Patterns has no readings yet; run the model inside `with observe(...)`")
        shapes = {maps.shape[1:] for one in self._passes for maps in one.values()}
        if len(shapes) > 1:
            raise DataError(
                f"the forward passes have different lengths {sorted(shapes)}; use texts of equal length, or one Patterns "
                "instrument per pass"
            )
        pairs = sorted(self._passes[0])
        stacked = np.stack([np.concatenate([one[pair] for one in self._passes]) for pair in pairs], axis=1)
        layers, heads = (np.array(part) for part in zip(*pairs, strict=True))
        return xr.Dataset(
            {"weights": ((EXAMPLE, PLACE, QUERY, KEY), stacked)},
            coords={PLACE: [head_name(*pair) for pair in pairs], LAYER: (PLACE, layers), HEAD: (PLACE, heads)},
        )


MAX_ENTRIES = 64_000_000  # of T x T maps materialised at once


class PooledMaps(HeadReadings):
    """Every head's map, max-pooled: dims (example, layer, head, query, key).

    Args:
        size: largest number of pixels per side.

    Examples:
        >>> from headwise.instruments import PooledMaps
        >>> with hw.observe(model, PooledMaps(size=4)) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))  # 8 tokens, two per pixel
        >>> seen["pooled_maps"].maps.sel(layer=0, head=3).isel(example=0).values.round(1)
        array([[ 1., nan, nan, nan],
               [ 1.,  1., nan, nan],
               [ 0.,  1.,  1., nan],
               [ 0.,  0.,  1.,  1.]], dtype=float32)
    """

    name = "pooled_maps"
    whole_sequences = True
    extra_dims = {"maps": (QUERY, KEY)}

    def __init__(self, size: int = 64):
        super().__init__()
        self.size = size

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's maps, (batch, head, query, key)."""
        attention = call.attention
        queries, keys = attention.q.shape[2], attention.k.shape[2]
        step = max(1, MAX_ENTRIES // (call.batch * queries * keys))
        seen = attention.mask.matrix() & call.valid[:, None, :, None]
        parts = []
        for start in range(0, call.heads, step):
            heads = range(start, min(start + step, call.heads))
            visible = seen[:, list(heads)] if seen.shape[1] > 1 else seen
            parts.append(pooled(attention.weights(heads).masked_fill(~visible, -1.0), self.size))
        maps = torch.cat(parts, dim=1)
        return {"maps": maps.masked_fill(maps < 0, torch.nan)}


def pooled(maps: Tensor, size: int) -> Tensor:
    """The last two dims max-pooled to at most `size` entries each."""
    return _pool_rows(_pool_rows(maps, size).transpose(-1, -2), size).transpose(-1, -2)


def _pool_rows(maps: Tensor, size: int) -> Tensor:
    rows = maps.shape[-2]
    if rows <= size:
        return maps
    if rows % size == 0:  # the same, and faster
        return maps.unflatten(-2, (size, rows // size)).amax(dim=-2)
    starts = torch.arange(size, device=maps.device) * rows // size
    interval = torch.searchsorted(starts, torch.arange(rows, device=maps.device), right=True) - 1
    empty = maps.new_full((*maps.shape[:-2], size, maps.shape[-1]), -torch.inf)
    return empty.scatter_reduce(-2, interval[:, None].expand_as(maps), maps, "amax")
