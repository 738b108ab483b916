"""Every head's map, made small in a stream: no T x T map is ever held, whatever the prompt's length.

A pixel is the largest weight of its rectangle (as `instruments.pooled_maps`, which this equals and is tested against).
The largest weight is the exponential of the largest log-weight, so rows come as log-weights from one matrix product
(`kernels.logweights`) and only the pixels are put through an exponential:

    pixel = exp( max over the rectangle of log a_ij )

Cost: one QK^T product and one pass for the maximum over the visible half; 16 MB for the mask at 4,096 tokens.
A weight under e^-80 reads as that. A pixel in which no query can see any key is NaN: a mask is not a small weight.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from headwise.core.dims import KEY, QUERY
from headwise.instruments.readings import HeadReadings
from headwise.kernels import Attention, AttentionMask
from headwise.kernels.logweights import FLOOR, LogWeights
from headwise.kernels.mask import HIDDEN
from headwise.seam import AttentionCall, ForwardContext

__all__ = ["SmallMapReadings", "pooled_window", "stretches", "visible_pixels"]

BLOCK = 500_000  # numbers held at once: 2 MB, which stay in a CPU's cache


class SmallMapReadings(HeadReadings):
    """Maps with dims (example, layer, head, query, key)."""

    name = "small_maps"
    whole_sequences = True
    extra_dims = {"maps": (QUERY, KEY)}

    def __init__(self, size: int = 64):
        super().__init__()
        self.size = size
        self._visible: dict[int, tuple[AttentionMask, Tensor]] = {}

    def on_forward_start(self, context: ForwardContext) -> None:
        """Forget the masks of the pass before."""
        super().on_forward_start(context)
        self._visible.clear()

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """One layer's maps, (batch, head, query, key)."""
        attention = call.attention
        rows, columns = (0, attention.q.shape[2]), (0, attention.k.shape[2])
        mask = attention.mask
        if id(mask) not in self._visible:  # held, so that its id is not given to another
            self._visible[id(mask)] = (mask, visible_pixels(mask, rows, columns, self.size))
        maps = pooled_window(attention, rows, columns, self.size)
        return {"maps": maps.masked_fill(~self._visible[id(mask)][1], torch.nan)}


def stretches(first: int, last: int, size: int) -> list[int]:
    """Where the rows of a map begin: [first, last) cut into at most `size` stretches, and `last` at the end.

    >>> stretches(0, 5, 2), stretches(3, 5, 4)
    ([0, 2, 5], [3, 4, 5])
    """
    count = min(size, last - first)
    return [first + place * (last - first) // count for place in range(count + 1)]


def pooled_window(attention: Attention, rows: tuple[int, int], columns: tuple[int, int], size: int) -> Tensor:
    """(batch, head, row, column): the largest weight of each rectangle of a window; what is hidden reads as e^-80."""
    parts = []
    for example in range(attention.q.shape[0]):
        heads = [
            _pooled_group(attention, example, kv_head, rows, columns, size) for kv_head in range(attention.k.shape[1])
        ]
        parts.append(torch.cat(heads))
    return torch.stack(parts).clamp(min=FLOOR).exp()


def visible_pixels(mask: AttentionMask, rows: tuple[int, int], columns: tuple[int, int], size: int) -> Tensor:
    """(batch or 1, head or 1, row, column) bool: whether a query of the rectangle may see a key of it."""
    seen = mask.matrix()[:, :, rows[0] : rows[1], columns[0] : columns[1]].to(torch.uint8)
    seen = _largest(seen, stretches(0, rows[1] - rows[0], size), dim=-2)
    return _largest(seen, stretches(0, columns[1] - columns[0], size), dim=-1).bool()


def _pooled_group(
    attention: Attention, example: int, kv_head: int, rows: tuple[int, int], columns: tuple[int, int], size: int
) -> Tensor:
    """(group, row, column) log-weights of the query heads that share a kv head."""
    row_starts, column_starts = stretches(*rows, size), stretches(*columns, size)
    highest = max(stop - start for start, stop in itertools.pairwise(row_starts))
    together = max(1, BLOCK // (attention.group * attention.k.shape[2] * highest))  # stretches in a block
    source = LogWeights(attention, slice(example, example + 1), slice(kv_head, kv_head + 1), highest * together)
    made = attention.q.new_full(
        (attention.group, len(row_starts) - 1, len(column_starts) - 1), HIDDEN, dtype=torch.float32
    )
    for place in range(0, len(row_starts) - 1, together):
        starts = row_starts[place : place + together + 1]
        low, logs = _rows(source, attention.mask, starts[0], starts[-1], columns)
        if logs is None:
            continue
        pixels = _largest(logs, [start - starts[0] for start in starts], dim=-2)
        _put_columns(made[:, place : place + len(starts) - 1], pixels, low, column_starts)
    return made


def _rows(
    source: LogWeights, mask: AttentionMask, start: int, stop: int, columns: tuple[int, int]
) -> tuple[int, Tensor | None]:
    """The first key, and (group, query, key) log-weights of rows, as far as the columns of the window go."""
    low, high = mask.span(start, stop)
    first, last = max(low, columns[0]), min(high, columns[1])
    if first >= last:
        return first, None
    if source.known:  # the rows' sums are known: only the window's keys are needed
        return first, source.block(start, stop, first, last)[0, 0]
    return first, source.block(start, stop, low, high)[0, 0, ..., first - low : last - low]


def _put_columns(into: Tensor, pixels: Tensor, low: int, column_starts: list[int]) -> None:
    """Pool the keys, which begin at `low`, into the columns they belong to."""
    high = low + pixels.shape[-1]
    if len(column_starts) - 1 == column_starts[-1] - column_starts[0]:  # one token a column
        into[..., low - column_starts[0] : high - column_starts[0]] = pixels
        return
    for column, (start, stop) in enumerate(itertools.pairwise(column_starts)):
        start, stop = max(start, low), min(stop, high)
        if start < stop:
            into[..., column] = pixels[..., start - low : stop - low].amax(dim=-1)


def _largest(values: Tensor, starts: list[int], dim: int) -> Tensor:
    """The largest of each stretch along a dim."""
    if len(starts) - 1 == values.shape[dim]:
        return values
    lengths = [stop - start for start, stop in itertools.pairwise(starts)]
    return torch.stack([part.amax(dim=dim) for part in values.split(lengths, dim=dim)], dim=dim)
