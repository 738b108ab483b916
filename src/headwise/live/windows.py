"""One head's map, whole or a window of it, from the attention that was kept: exact where it fits, pooled where not.

A window is rows [a, b) and columns [c, d) of the map. Up to `size` tokens a side every cell is one weight; beyond that
a cell is the largest weight of its rectangle. What the mask hides is NaN.

Cost: a product of (b - a) queries with (d - c) keys where the rows' sums are known, with all keys they see where not;
at 4,096 tokens a whole map of one head is 8 million weights, a fraction of a second. This module runs no model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from headwise.core.errors import DataError
from headwise.kernels import Attention
from headwise.live.small_maps import pooled_window, visible_pixels

__all__ = ["Span", "head_window", "one_head", "read_span"]

Span = tuple[int, int]


def read_span(given: Span | None, tokens: int, what: str) -> Span:
    """A stretch of tokens, checked; all of them where none is given."""
    first, last = given or (0, tokens)
    if not 0 <= first < last <= tokens:
        raise DataError(f"{what} {first}:{last} were asked for; give two numbers from 0 to {tokens}, the first smaller")
    return int(first), int(last)


def head_window(attention: Attention, head: int, rows: Span, columns: Span, size: int) -> np.ndarray:
    """(row, column) float32, NaN where the mask hides."""
    alone = one_head(attention, head)
    with torch.no_grad():
        weights = pooled_window(alone, rows, columns, size)
        visible = visible_pixels(alone.mask, rows, columns, size)
        return weights.masked_fill(~visible, torch.nan)[0, 0].cpu().numpy()


def one_head(attention: Attention, head: int) -> Attention:
    """The same attention with a single query head, and the key head that it reads."""
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
