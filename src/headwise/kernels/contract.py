"""What can be asked of a layer's attention weights, and what comes back.

With a_ij the weight that query i puts on key j, own(i) the key of the query's own token, and sums over counting queries
(see `visibility`) only:

| ask for         | comes back                                                         | shape                    |
|-----------------|--------------------------------------------------------------------|--------------------------|
| column_sums     | sum_i a_ij                                                         | batch head key           |
| rows            | sum_i w_i a_ij for given row weights w (batch, query)              | batch head key, each     |
| log_diagonal    | log a_i,own(i)  (the log survives where the weight underflows)     | batch head query         |
| entropy         | -sum_j p_ij log p_ij, p the row scaled to sum to 1                 | batch head query         |
| distance        | mean and variance of own(i) - j under p                            | batch head query, twice  |
| peak            | max_j a_ij                                                         | batch head query         |
| top             | the k largest a_ij and their keys                                  | batch head query k       |
| offsets         | sum of a_ij over low <= own(i) - j < high                          | batch head query, each   |
| marks           | sum_j a_ij m_j for given key weights m (batch, key)                   | batch head query, each |
| matches         | sum of a_ij over earlier keys j < own(i) whose id is the query's   | batch head query, each   |
| over            | how many a_ij > threshold                                          | batch head query, each   |

The last four and `rows` are asked for by name (or by range, or threshold), any number of each, and come back under the
same name. Rows of queries that do not count, or see no key at all, are NaN in everything that has a query dim (the keys
of `top`: -1) and add nothing to anything else. Where all gates of a row are closed (see `gated`) its weights are nought, and
its entropy and distance NaN. Weights up to `VANISHING` are none: `over` does not count them, and
`top` has weight 0 and key -1 where a row has fewer than k others. Everything is float32, accumulated in float32
whatever the dtype of q and k. Nothing that was not asked for is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

VANISHING = 2e-35  # below it float32 soon leaves its normal range
STRETCH = 256  # queries whose matches are looked for at a time


@dataclass(frozen=True)
class Match:
    """Which keys a query looks for: the earlier ones that have its id. An id below nought matches nothing."""

    query: Tensor  # (batch, query) long
    key: Tensor  # (batch, key) long
    _kept: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def places(self, offset: int) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, query, key) of every match, in order of query; `offset` is where the first query stands.

        Worked out by stretches of queries, so that nothing of the size T x T is held, and kept for the next layer.
        """
        if offset not in self._kept:
            found = [self._stretch(start, offset) for start in range(0, self.query.shape[1], STRETCH)]
            batch, query, key = (torch.cat(parts) for parts in zip(*found, strict=True))
            self._kept[offset] = (batch, query, key)
        return self._kept[offset]

    def _stretch(self, start: int, offset: int) -> tuple[Tensor, Tensor, Tensor]:
        wanted = self.query[:, start : start + STRETCH]
        own = torch.arange(start, start + wanted.shape[1], device=wanted.device) + offset
        earlier = torch.arange(self.key.shape[1], device=wanted.device) < own[:, None]
        same = (wanted[:, :, None] == self.key[:, None, :]) & earlier & (wanted >= 0)[:, :, None]
        query, batch, key = same.transpose(0, 1).nonzero(as_tuple=True)
        return batch, query + start, key


Range = tuple[int, int]


@dataclass(frozen=True)
class ReductionRequest:
    """A request. `a | b` asks for both in one pass. Tensors are moved to the device of q."""

    column_sums: bool = False
    log_diagonal: bool = False
    entropy: bool = False
    distance: bool = False
    row_max: bool = False
    top: int = 0
    offsets: frozenset[Range] = frozenset()
    count_above: frozenset[float] = frozenset()
    query_weights: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, query) float
    key_weights: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, key) float
    token_matches: Mapping[str, Match] = field(default_factory=dict)
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Room for whoever computes: what serves all layers of a pass is made once."""

    def __or__(self, other: ReductionRequest) -> ReductionRequest:
        merged: dict[str, Any] = {}
        for name in _ASKED:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Mapping):
                twice = [key for key in mine.keys() & theirs.keys() if mine[key] is not theirs[key]]
                if twice:
                    raise ValueError(f"two instruments ask for different {name} under the name {twice[0]!r}")
                merged[name] = {**mine, **theirs}
            elif isinstance(mine, bool | frozenset):
                merged[name] = mine | theirs
            else:
                merged[name] = max(mine, theirs)
        return ReductionRequest(**merged)

    def __bool__(self) -> bool:
        return any(bool(getattr(self, name)) for name in _ASKED)


_ASKED = tuple(one.name for one in fields(ReductionRequest) if one.init)


@dataclass
class Reductions:
    """What was asked for; the rest is None or empty. Shapes as in the table at the top of this file."""

    column_sums: Tensor | None = None
    log_diagonal: Tensor | None = None
    entropy: Tensor | None = None
    distance_mean: Tensor | None = None
    distance_variance: Tensor | None = None
    row_max: Tensor | None = None
    top_weights: Tensor | None = None
    top_keys: Tensor | None = None
    offsets: dict[Range, Tensor] = field(default_factory=dict)
    count_above: dict[float, Tensor] = field(default_factory=dict)
    query_weights: dict[str, Tensor] = field(default_factory=dict)
    key_weights: dict[str, Tensor] = field(default_factory=dict)
    token_matches: dict[str, Tensor] = field(default_factory=dict)

    def flat(self) -> dict[str, Tensor]:
        """Every tensor that is there, by a printable name; for comparing two of these."""
        found: dict[str, Tensor] = {}
        for name in (f.name for f in fields(Reductions)):
            value = getattr(self, name)
            if isinstance(value, dict):
                found |= {f"{name}[{key}]": tensor for key, tensor in value.items()}
            elif value is not None:
                found[name] = value
        return found
