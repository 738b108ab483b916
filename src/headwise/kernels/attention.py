"""Everything that determines a layer's attention weights, without the weights themselves.

    logits  s_ij = scale * q_i . k_j,  then  softcap * tanh(s_ij / softcap)  where the family caps
    weights a_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij))  over the keys j that are visible to query i

Only a few families have a learned sink logit (gpt-oss); with it the weights of a row sum to less than 1. In a sparse model
(see `gated`) edges with s_ij + gate <= 0 are cut, and their weight is 0. Keys and values have ``kv_heads`` heads; query head
h reads kv head ``h // group``.

Nearly every attention mask of a decoder is one of these, and then needs no T x T tensor:

    causal          key j <= query position i + offset        offset = keys already in the cache
    window          ... and i + offset - j < window           sliding-window layers
    padding         ... and key j is a real token

Other masks (packed sequences, chunks, prefixes) stay explicit boolean tensors. A *valid query* is a real token: rows of
padding tokens mean nothing in any reduction. A valid query may still see no key (in an explicit mask that may differ between
heads).

    offset 0, window 3, key 0 padding       offset 2 (two cached keys), no window
      j 0 1 2 3 4                             j 0 1 2 3 4
    i 0 . . . . .  not valid                i 0 x x x . .
      1 . x . . .                             1 x x x x .
      2 . x x . .                             2 x x x x x
      3 . x x x .
      4 . . x x x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

HIDDEN = -1.0e30  # the logit of a hidden key: finite, so that 0 * HIDDEN is 0 and not NaN


@dataclass(frozen=True)
class AttentionMask:
    """A causal mask with optional window and padding, or an explicit mask."""

    queries: int
    keys: int
    offset: int
    device: torch.device
    window: int | None = None
    key_valid: Tensor | None = None  # (batch, key) bool; None: every key is real
    query_valid: Tensor | None = None  # (batch, query) bool; None: every query is valid
    explicit: Tensor | None = None  # (batch or 1, head or 1, query, key) bool; replaces window and key_valid

    def valid_queries(self, batch: int) -> Tensor:
        """(batch, query) bool: the queries that are real tokens."""
        if self.query_valid is not None:
            return self.query_valid.expand(batch, -1)
        return self._cached(
            "valid", batch, lambda: torch.ones(batch, self.queries, dtype=torch.bool, device=self.device)
        )

    def rows_with_keys(self, batch: int) -> Tensor:
        """(batch, 1 or head, query) bool: the valid queries that see at least one key."""
        return self._cached(
            "rows", batch, lambda: self.valid_queries(batch)[:, None] & (self.n_visible_keys(batch) > 0)
        )

    @property
    def all_rows_have_keys(self) -> bool:
        """Whether every query is valid and sees a key, as far as that is known without reading a tensor."""
        return self.explicit is None and self.key_valid is None and self.query_valid is None and self.offset >= 0

    def with_valid_queries(self, valid: Tensor | None) -> AttentionMask:
        """The same mask with other valid queries."""
        return replace(self, query_valid=valid)

    def matrix(self) -> Tensor:
        """The whole mask, (batch or 1, head or 1, query, key) bool. For tests, pictures and the reference."""
        if self.explicit is not None:
            return self.explicit
        visible = self._band(0, self.queries, 0, self.keys)[None, None]
        if self.key_valid is not None:
            visible = visible & self.key_valid[:, None, None, :]
        return visible

    def rows(self, index: Tensor | None) -> Tensor | None:
        """`matrix` of chosen queries (batch, n), (batch or 1, 1 or head, n, key) bool; -1: no query, which sees nothing.

        None: every query sees every key, as far as that is known without reading a tensor. Without ``index``, of all queries.
        """
        reaches = self.window is None or self.window >= self.keys
        last = self.keys - 1 if self.queries == 1 and index is None else self.keys
        if self.explicit is None and self.key_valid is None and reaches and self.offset >= last:
            return None
        if index is None:
            return self._cached("matrix", 0, self.matrix)
        return self._rows(index)

    def _rows(self, index: Tensor) -> Tensor:
        chosen = index.clamp(min=0)
        if self.explicit is not None:
            mask = self.explicit.expand(len(index), -1, -1, -1)
            rows = mask.gather(2, chosen[:, None, :, None].expand(-1, mask.shape[1], -1, self.keys))
        else:
            lag = (chosen + self.offset)[..., None] - torch.arange(self.keys, device=self.device)  # (batch, n, key)
            rows = lag >= 0
            if self.window is not None:
                rows = rows & (lag < self.window)
            if self.key_valid is not None:
                rows = rows & self.key_valid[:, None]
            rows = rows[:, None]
        return rows & (index >= 0)[:, None, :, None]

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The range [low, high) of keys outside of which no query of [start, stop) sees anything."""
        if self.explicit is not None:
            return 0, self.keys
        low = 0 if self.window is None else min(self.keys - 1, max(0, start + self.offset - self.window + 1))
        return low, max(low + 1, min(self.keys, stop + self.offset))

    def hide(self, logits: Tensor, start: int, stop: int, low: int, batch: slice, heads: slice) -> None:
        """Add HIDDEN, in place, to logits of keys that queries [start, stop) do not see; padding keys excepted.

        `logits` is (batch, kv_head, group, query, key) with keys from `low` on. Of a causal mask only the edges are
        touched. Padding keys are hidden by `key_bias`, which a matrix product includes at no cost.
        """
        high = low + logits.shape[-1]
        if self.explicit is not None:
            mask = self.explicit[batch if self.explicit.shape[0] > 1 else slice(None), :, start:stop, low:high]
            per_head = mask.shape[1] > 1
            mask = mask.unflatten(1, (-1, logits.shape[2]))[:, heads] if per_head else mask[:, :, None]
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
        """(batch, 1 or head, key) float: how many valid queries see each key."""
        return self._cached("n_visible_queries", batch, lambda: self._count_queries(batch))

    def _count_queries(self, batch: int) -> Tensor:
        valid = self.valid_queries(batch).float()
        if self.explicit is not None:
            return torch.einsum("bq,bhqk->bhk", valid, self.explicit.expand(batch, -1, -1, -1).float())
        # queries that see key j are at positions j .. j + window - 1: a difference of prefix sums
        total = torch.nn.functional.pad(valid.cumsum(dim=1), (1, 0))  # (batch, query + 1)
        key = torch.arange(self.keys, device=self.device)
        first = (key - self.offset).clamp(0, self.queries)
        last = first.new_full((), self.queries)
        if self.window is not None:
            last = (key - self.offset + self.window).clamp(0, self.queries)
        visible = total[:, last.expand_as(first)] - total[:, first]
        if self.key_valid is not None:
            visible = visible * self.key_valid
        return visible[:, None, :]

    def n_visible_keys(self, batch: int) -> Tensor:
        """(batch, 1 or head, query) float: how many keys each query sees."""
        return self._n_visible_keys.expand(batch, -1, -1)

    @cached_property
    def _n_visible_keys(self) -> Tensor:
        """(batch or 1, 1 or head, query) float."""
        if self.explicit is not None:
            return self.explicit.sum(dim=-1).float()
        own = torch.arange(self.queries, device=self.device) + self.offset
        stop = (own + 1).clamp(0, self.keys)
        start = torch.zeros_like(stop) if self.window is None else (own + 1 - self.window).clamp(0, self.keys)
        if self.key_valid is None:
            return (stop - start).float()[None, None]
        total = torch.nn.functional.pad(self.key_valid.float().cumsum(dim=1), (1, 0))  # (batch, key + 1)
        return (total[:, stop] - total[:, start])[:, None, :]

    def _cached(self, name: str, key: int | tuple[int, ...], make: Callable[[], Tensor]) -> Tensor:
        """Computed once: all layers of a pass and all reducers need the same."""
        if (name, key) not in self._cache:
            self._cache[name, key] = make()
        return self._cache[name, key]

    @cached_property
    def _cache(self) -> dict[tuple[str, int | tuple[int, ...]], Tensor]:
        return {}

    def _hiding(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """HIDDEN outside the band. Blocks with the same position relative to the diagonal share one tensor."""
        key = (stop - start, high - low, start + self.offset - low)
        return self._cached("hiding", key, lambda: (~self._band(start, stop, low, high)).float() * HIDDEN)

    def _band(self, start: int, stop: int, low: int, high: int) -> Tensor:
        """(stop - start, high - low) bool: causality and window, for a block of the mask."""
        position = torch.arange(start, stop, device=self.device)[:, None] + self.offset
        key = torch.arange(low, high, device=self.device)[None, :]
        visible = key <= position
        if self.window is not None:
            visible = visible & (position - key < self.window)
        return visible


@dataclass(frozen=True)
class Attention:
    """The attention of one layer, ready to be reduced. Nothing in it is larger than q or k, except an explicit mask."""

    q: Tensor  # (batch, head, query, width), after rotation
    k: Tensor  # (batch, kv_head, key, width)
    scale: float
    mask: AttentionMask
    softcap: float | None = None
    sinks: Tensor | None = None  # (head,) learned sink logits
    lse: Tensor | None = None  # (batch, head, query) log-sum-exp of the visible logits, without the sink, where known
    gate: float | None = None  # the bias of a sparse model's gates; None: a dense model

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.q.shape[1] // self.k.shape[1]

    def weights(self, heads: Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """The attention maps of some heads, (batch, head, query, key); rows without visible keys are 0.

        Memory: several times queries x keys numbers per head.
        """
        keys = self.k.shape[2]
        chosen = torch.arange(self.q.shape[1]) if heads is None else torch.tensor(list(heads))
        q = self.q[:, chosen].to(dtype)
        k = self.k[:, chosen // self.group].to(dtype)
        logits = q @ k.transpose(-1, -2) * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        visible = self.mask.matrix()  # (batch or 1, 1 or head, query, key)
        if visible.shape[1] > 1:
            visible = visible[:, chosen]
        logits = logits.masked_fill(~visible, -torch.inf)
        is_open = None if self.gate is None else logits + self.gate > 0
        if self.sinks is not None:
            sink = self.sinks[chosen].to(dtype).view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
            logits = torch.cat([logits, sink], dim=-1)
        weights = logits.softmax(dim=-1)[..., :keys].nan_to_num(0.0) * visible.any(dim=-1, keepdim=True)
        return weights if is_open is None else weights * is_open
