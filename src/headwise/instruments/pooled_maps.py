"""Every head's attention map, made small enough to be kept and drawn: at most `size` x `size`, by the largest weight.

A map of T tokens is cut into `size` stretches of queries and of keys (the k-th begins at token k T / size, rounded
down), and each pixel holds the largest weight of its rectangle, so that no weight is lost to the drawing as it would be by
skipping rows. Up to `size` tokens nothing is changed. A pixel in which no query can see any key is NaN: a mask is not a
small weight.

Cost: one layer's T x T maps at a time, some heads together; kept are size x size numbers a head and example.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import KEY, QUERY
from headwise.instruments.readings import HeadReadings
from headwise.seam import AttentionCall

ROOM = 64_000_000  # numbers of T x T maps made at once


class PooledMaps(HeadReadings):
    """Every head's map, made small: dims (example, layer, head, query, key).

    Args:
        size: pixels of a side, at most.

    Examples:
        >>> from headwise.instruments import PooledMaps
        >>> with hw.observe(model, PooledMaps(size=4)) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))  # 8 tokens, two a pixel
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
        step = max(1, ROOM // (call.batch * queries * keys))
        seen = attention.mask.matrix() & call.valid[:, None, :, None]
        parts = []
        for start in range(0, call.heads, step):
            heads = range(start, min(start + step, call.heads))
            visible = seen[:, list(heads)] if seen.shape[1] > 1 else seen
            parts.append(pooled(attention.weights(heads).masked_fill(~visible, -1.0), self.size))
        maps = torch.cat(parts, dim=1)
        return {"maps": maps.masked_fill(maps < 0, torch.nan)}


def pooled(maps: Tensor, size: int) -> Tensor:
    """The last two dims cut into at most `size` stretches each, the largest entry of each rectangle kept."""
    return _along(_along(maps, size).transpose(-1, -2), size).transpose(-1, -2)


def _along(maps: Tensor, size: int) -> Tensor:
    """Pool the rows."""
    rows = maps.shape[-2]
    if rows <= size:
        return maps
    if rows % size == 0:  # the same, and quicker
        return maps.unflatten(-2, (size, rows // size)).amax(dim=-2)
    starts = torch.arange(size, device=maps.device) * rows // size
    stretch = torch.searchsorted(starts, torch.arange(rows, device=maps.device), right=True) - 1
    room = maps.new_full((*maps.shape[:-2], size, maps.shape[-1]), -torch.inf)
    return room.scatter_reduce(-2, stretch[:, None].expand_as(maps), maps, "amax")
