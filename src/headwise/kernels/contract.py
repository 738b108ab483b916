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
| marks           | sum_j a_ij m_j for given key weights m (batch, key)                | batch head query, each   |
| pairs           | sum of a_ij over given places (i, j)                               | batch head query, each   |
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


@dataclass(frozen=True)
class Pairs:
    """A set of (query, key) places: for each query the keys whose weights are summed. Repeats count once each."""

    batch: Tensor  # (n,) long
    query: Tensor  # (n,) long
    key: Tensor  # (n,) long

    def sorted(self) -> Pairs:
        """The same places in order of query, so that a block of rows is a slice of them."""
        order = torch.argsort(self.query, stable=True)
        return Pairs(self.batch[order], self.query[order], self.key[order])

    def to(self, device: torch.device) -> Pairs:
        """The same places on a device."""
        return Pairs(self.batch.to(device), self.query.to(device), self.key.to(device))


Range = tuple[int, int]


@dataclass(frozen=True)
class Wanted:
    """A request. `a | b` asks for both in one pass. Tensors are moved to the device of q."""

    column_sums: bool = False
    log_diagonal: bool = False
    entropy: bool = False
    distance: bool = False
    peak: bool = False
    top: int = 0
    offsets: frozenset[Range] = frozenset()
    over: frozenset[float] = frozenset()
    rows: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, query) float
    marks: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, key) float
    pairs: Mapping[str, Pairs] = field(default_factory=dict)

    def __or__(self, other: Wanted) -> Wanted:
        merged: dict[str, Any] = {}
        for name in (f.name for f in fields(Wanted)):
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
        return Wanted(**merged)

    def __bool__(self) -> bool:
        return any(bool(getattr(self, f.name)) for f in fields(Wanted))


@dataclass
class Reductions:
    """What was asked for; the rest is None or empty. Shapes as in the table at the top of this file."""

    column_sums: Tensor | None = None
    log_diagonal: Tensor | None = None
    entropy: Tensor | None = None
    distance_mean: Tensor | None = None
    distance_variance: Tensor | None = None
    peak: Tensor | None = None
    top_weights: Tensor | None = None
    top_keys: Tensor | None = None
    offsets: dict[Range, Tensor] = field(default_factory=dict)
    over: dict[float, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    marks: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, Tensor] = field(default_factory=dict)

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
