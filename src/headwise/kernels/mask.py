"""Which keys each query may see, and which queries count.

Nearly every mask a decoder uses is one of these, and then needs no T x T tensor:

    causal          key j <= query position i + offset        offset = keys already in the cache
    window          ... and i + offset - j < window           sliding-window layers
    padding         ... and key j is a real token

What does not fit (packed sequences, chunks, prefixes) keeps its explicit boolean mask. A *query counts* when it is a
real token: the rows of padding tokens mean nothing, in any reduction. A query that counts *answers* if it sees any key
(in a mask with heads of its own that may differ between heads).

    offset 0, window 3, key 0 padding       offset 2 (two cached keys), no window
      j 0 1 2 3 4                             j 0 1 2 3 4
    i 0 . . . . .  does not count           i 0 x x x . .
      1 . x . . .                             1 x x x x .
      2 . x x . .                             2 x x x x x
      3 . x x x .
      4 . . x x x
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

HIDDEN = -1.0e30  # a logit nothing survives: finite, so that 0 * HIDDEN is 0 and not NaN


@dataclass(frozen=True)
class AttentionMask:
    """Causal sight with optional window and padding, or an explicit mask."""

    queries: int
    keys: int
    offset: int
    device: torch.device
    window: int | None = None
    key_valid: Tensor | None = None  # (batch, key) bool; None: every key is real
    query_valid: Tensor | None = None  # (batch, query) bool; None: every query counts
    explicit: Tensor | None = None  # (batch or 1, head or 1, query, key) bool; replaces window and key_valid

    def valid_queries(self, batch: int) -> Tensor:
        """(batch, query) bool: the queries that count."""
        if self.query_valid is not None:
            return self.query_valid.expand(batch, -1)
        return self._kept(
            "counts", batch, lambda: torch.ones(batch, self.queries, dtype=torch.bool, device=self.device)
        )

    def rows_with_keys(self, batch: int) -> Tensor:
        """(batch, 1 or head, query) bool: the queries that count and see at least one key."""
        return self._kept(
            "answers", batch, lambda: self.valid_queries(batch)[:, None] & (self.n_visible_keys(batch) > 0)
        )

    @property
    def all_rows_have_keys(self) -> bool:
        """Whether every query counts and sees a key, as far as that is known without looking at a tensor."""
        return self.explicit is None and self.key_valid is None and self.query_valid is None and self.offset >= 0

    def with_valid_queries(self, valid: Tensor | None) -> AttentionMask:
        """The same sight, with other queries counting."""
        return replace(self, query_valid=valid)

    def matrix(self) -> Tensor:
        """The whole mask, (batch or 1, head or 1, query, key) bool. For tests, pictures and the reference."""
        if self.explicit is not None:
            return self.explicit
        seen = self._band(0, self.queries, 0, self.keys)[None, None]
        if self.key_valid is not None:
            seen = seen & self.key_valid[:, None, None, :]
        return seen

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The keys [low, high) outside of which no query of [start, stop) sees anything."""
        if self.explicit is not None:
            return 0, self.keys
        low = 0 if self.window is None else min(self.keys - 1, max(0, start + self.offset - self.window + 1))
        return low, max(low + 1, min(self.keys, stop + self.offset))

    def hide(self, logits: Tensor, start: int, stop: int, low: int, batch: slice, heads: slice) -> None:
        """Add HIDDEN, in place, where a query of rows [start, stop) may not look; padding keys excepted.

        `logits` is (batch, kv_head, group, query, key) with keys from `low` on. Where the mask is causal only its
        ragged edges are touched. Padding keys come with `key_bias`, which a matrix product can carry for nothing.
        """
        high = low + logits.shape[-1]
        if self.explicit is not None:
            mask = self.explicit[batch if self.explicit.shape[0] > 1 else slice(None), :, start:stop, low:high]
            own = mask.shape[1] > 1
            mask = mask.unflatten(1, (-1, logits.shape[2]))[:, heads] if own else mask[:, :, None]
            logits += (~mask).to(logits.dtype) * HIDDEN
            return
        edge = max(low, start + self.offset + 1)  # every row of the block sees the keys before it
        if edge < high:
            logits[..., edge - low :] += self._hiding(start, stop, edge, high)
        if self.window is not None:
            edge = min(high, stop + self.offset - self.window)
            if low < edge:
                logits[..., : edge - low] += self._hiding(start, stop, low, edge)

    def key_bias(self) -> Tensor | None:
        """(batch, key) float: 0 for real keys, HIDDEN for padding; None where every key is real."""
        if self.explicit is not None or self.key_valid is None:
            return None
        return (~self.key_valid).float() * HIDDEN

    def n_visible_queries(self, batch: int) -> Tensor:
        """(batch, 1 or head, key) float: how many counting queries can see each key."""
        return self._kept("seen_by", batch, lambda: self._count_sight(batch))

    def _kept(self, name: str, place: int | tuple[int, ...], make: Callable[[], Tensor]) -> Tensor:
        """Made once: all layers of a pass and all reducers ask for the same."""
        if (name, place) not in self._made:
            self._made[name, place] = make()
        return self._made[name, place]

    @cached_property
    def _made(self) -> dict[tuple[str, int | tuple[int, ...]], Tensor]:
        return {}

    def _count_sight(self, batch: int) -> Tensor:
        counts = self.valid_queries(batch).float()
        if self.explicit is not None:
            return torch.einsum("bq,bhqk->bhk", counts, self.explicit.expand(batch, -1, -1, -1).float())
        # queries that can see key j stand at positions j .. j + window - 1: a difference of prefix sums
        total = torch.nn.functional.pad(counts.cumsum(dim=1), (1, 0))  # (batch, query + 1)
        key = torch.arange(self.keys, device=self.device)
        first = (key - self.offset).clamp(0, self.queries)
        last = first.new_full((), self.queries)
        if self.window is not None:
            last = (key - self.offset + self.window).clamp(0, self.queries)
        seen = total[:, last.expand_as(first)] - total[:, first]
        if self.key_valid is not None:
            seen = seen * self.key_valid
        return seen[:, None, :]

    def n_visible_keys(self, batch: int) -> Tensor:
        """(batch, 1 or head, query) float: how many keys each query can see."""
        return self._sees.expand(batch, -1, -1)

    @cached_property
    def _sees(self) -> Tensor:
        """(batch or 1, 1 or head, query) float; kept, since all layers of a pass and all reducers ask for it."""
        if self.explicit is not None:
            return self.explicit.sum(dim=-1).float()
        valid = self.key_valid
        if valid is None:
            valid = torch.ones(1, self.keys, dtype=torch.bool, device=self.device)
        total = torch.nn.functional.pad(valid.float().cumsum(dim=1), (1, 0))  # (batch or 1, key + 1)
        own = torch.arange(self.queries, device=self.device) + self.offset
        stop = (own + 1).clamp(0, self.keys)
        start = torch.zeros_like(stop) if self.window is None else (own + 1 - self.window).clamp(0, self.keys)
        return (total[:, stop] - total[:, start])[:, None, :]

    def _hiding(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """HIDDEN outside the band. Corners that stand alike to the diagonal are alike, so few are made a pass."""
        place = (stop - start, high - low, start + self.offset - low)
        return self._kept("hiding", place, lambda: (~self._band(start, stop, low, high)).float() * HIDDEN)

    def _band(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """(stop - start, high - low) bool: causality and window, for a corner of the mask."""
        position = torch.arange(start, stop, device=self.device)[:, None] + self.offset
        key = torch.arange(low, high, device=self.device)[None, :]
        seen = key <= position
        if self.window is not None:
            seen = seen & (position - key < self.window)
        return seen
