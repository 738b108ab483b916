"""Which reductions of a layer's attention weights can be requested, and what comes back.

With a_ij the weight that query i puts on key j, own(i) the key of the query's own token, and sums over valid queries (see
`attention`) only:

| request         | result                                                             | shape                    |
|-----------------|--------------------------------------------------------------------|--------------------------|
| column_sums     | sum_i a_ij                                                         | batch head key           |
| query_weights   | sum_i w_i a_ij for given query weights w (batch, query)            | batch head key, each     |
| log_diagonal    | log a_i,own(i)  (the log survives where the weight underflows)     | batch head query         |
| entropy         | -sum_j p_ij log p_ij, p the row scaled to sum to 1                 | batch head query         |
| distance        | mean and variance of own(i) - j under p                            | batch head query, twice  |
| row_max         | max_j a_ij                                                         | batch head query         |
| top             | the k largest a_ij and their keys                                  | batch head query k       |
| offsets         | sum of a_ij over low <= own(i) - j < high                          | batch head query, each   |
| key_weights     | sum_j a_ij m_j for given key weights m (batch, key)                | batch head query, each   |
| token_matches   | sum of a_ij over earlier keys j < own(i) with the query's id       | batch head query, each   |
| count_above     | how many a_ij > threshold                                          | batch head query, each   |
| row_logs        | log a_ij itself, where each example has one query (a decode step)  | batch head 1 key         |
| row_statistics        | of that row: what `RowStatistics` lists | batch head 5             |

Any number of offsets, counts, weights and matches can be requested, by range, threshold or name; results have the same keys.
Rows of queries that are not valid, or see no key, are NaN in every result with a query dim (the keys of `top`: -1) and add
nothing to other results. If all gates of a row are closed (see `gated`) its weights are 0, and its entropy and distance NaN.
Weights up to `VANISHING` count as 0: `count_above` does not count them, and `top` has weight 0 and key -1 where a row has
fewer than k others. Everything is float32, accumulated in float32 whatever the dtype of q and k. Only what is requested is
computed.

`row_statistics` come from what computes the step's output (`decode` on a GPU, `rows.RowStep` elsewhere) and are in the marks
when the pass is over; where neither can be used, `row_logs` come back, of which `rows.HeldRows` makes the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

VANISHING = 2e-35  # below it float32 soon leaves its normal range
STRETCH = 256  # queries whose matches are searched at a time


@dataclass(frozen=True)
class Match:
    """The keys that match a query: the earlier ones with the same id. A negative id matches nothing."""

    query: Tensor  # (batch, query) long
    key: Tensor  # (batch, key) long
    _cache: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def indices(self, offset: int) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, query, key) of every match, ordered by query; `offset` is the position of the first query.

        Computed in stretches of queries, so that nothing of size T x T is held, and cached for the next layer.
        """
        if offset not in self._cache:
            found = [self._stretch(start, offset) for start in range(0, self.query.shape[1], STRETCH)]
            batch, query, key = (torch.cat(parts) for parts in zip(*found, strict=True))
            self._cache[offset] = (batch, query, key)
        return self._cache[offset]

    def _stretch(self, start: int, offset: int) -> tuple[Tensor, Tensor, Tensor]:
        ids = self.query[:, start : start + STRETCH]
        own = torch.arange(start, start + ids.shape[1], device=ids.device) + offset
        earlier = torch.arange(self.key.shape[1], device=ids.device) < own[:, None]
        same = (ids[:, :, None] == self.key[:, None, :]) & earlier & (ids >= 0)[:, :, None]
        query, batch, key = same.transpose(0, 1).nonzero(as_tuple=True)
        return batch, query + start, key


Range = tuple[int, int]


class RowStatistics(NamedTuple):
    """What is read of one row of attention, each of the same shape. In the kernel's result they are the last dim, in order."""

    self_log: Tensor  # log weight on the row's own token, at least `FLOOR`
    entropy: Tensor  # of the row scaled to sum to 1, over the log of its visible keys
    sink: Tensor  # weight on the first token
    previous: Tensor  # weight on the token before the own one
    lookback: Tensor  # x / (x + y), x the mean weight of a prompt token, y of an answer token; y = 0 without any


class RowMarks:
    """Which keys mean what to the row of a decode step, and where the statistics of all layers go. One serves many steps.

    Tokens are counted from the first one of the KV cache, padding included, also where a sliding window has forgotten it.
    For each example the places are its own token, the one before it, its first token (-1: none), the first place of the answer,
    and the numbers of real tokens of prompt and answer.

    Args:
        layers: of the model.
        heads: of the layer that has most.
    """

    def __init__(self, layers: int, heads: int):
        self.layers, self.heads = layers, heads
        self.places = torch.zeros(0, 6, dtype=torch.long)  # (batch, 6)
        self.tokens = 0  # in the cache, with the row's own
        self.written: dict[torch.device, list[int]] = {}  # layers whose statistics have been written in this step
        self.scratch: dict[Any, Any] = {}  # for the kernel: what serves all layers and steps
        self._on: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def step(self, places: Tensor, tokens: int) -> None:
        """The marks of the next step."""
        self.places, self.tokens = places, tokens
        self.written.clear()
        self._on.clear()

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The places, and the statistics of all layers (layer, batch, head, 5), NaN where none are written."""
        if device not in self._on:
            shape = (self.layers, len(self.places), self.heads, len(RowStatistics._fields))
            self._on[device] = self.places.to(device).contiguous(), torch.full(shape, torch.nan, device=device)
        return self._on[device]

    def write(self, layers: Sequence[int], found: Tensor) -> None:
        """Store the statistics (layer, batch, head, 5) of some layers."""
        self.on(found.device)[1][list(layers), :, : found.shape[2]] = found.float()
        self.written.setdefault(found.device, []).extend(layers)


@dataclass(frozen=True)
class ReductionRequest:
    """The requested reductions. `a | b` requests both in one pass. Tensors are moved to the device of q.

    Of unlike marks for `row_statistics` neither is requested, but the row itself.
    """

    column_sums: bool = False
    log_diagonal: bool = False
    entropy: bool = False
    distance: bool = False
    row_max: bool = False
    row_logs: bool = False
    row_statistics: RowMarks | None = None
    top: int = 0
    offsets: frozenset[Range] = frozenset()
    count_above: frozenset[float] = frozenset()
    query_weights: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, query) float
    key_weights: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (batch, key) float
    token_matches: Mapping[str, Match] = field(default_factory=dict)
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """For the kernels: what serves all layers of a pass is computed once."""

    def __or__(self, other: ReductionRequest) -> ReductionRequest:
        merged: dict[str, Any] = {}
        for name in _REQUESTS:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Mapping):
                twice = [key for key in mine.keys() & theirs.keys() if mine[key] is not theirs[key]]
                if twice:
                    raise ValueError(f"two instruments ask for different {name} under the name {twice[0]!r}")
                merged[name] = {**mine, **theirs}
            elif name == "row_statistics":
                merged[name] = theirs if mine is None else mine
            elif isinstance(mine, bool | frozenset):
                merged[name] = mine | theirs
            else:
                merged[name] = max(mine, theirs)
        if self.row_statistics is not None and other.row_statistics not in (None, self.row_statistics):
            merged |= {"row_statistics": None, "row_logs": True}
        return ReductionRequest(**merged)

    def __bool__(self) -> bool:
        return self.row or self.streams

    @property
    def row(self) -> bool:
        """Whether the row of a decode step is requested, which the forward pass computes itself."""
        return self.row_logs or self.row_statistics is not None

    @cached_property
    def streams(self) -> bool:
        """Whether anything else is requested."""
        return any(bool(getattr(self, name)) for name in _REQUESTS if name not in ("row_logs", "row_statistics"))


_REQUESTS = tuple(one.name for one in fields(ReductionRequest) if one.init)


@dataclass
class Reductions:
    """The requested reductions; the others are None or empty. Shapes as in the table at the top of this file."""

    column_sums: Tensor | None = None
    log_diagonal: Tensor | None = None
    entropy: Tensor | None = None
    distance_mean: Tensor | None = None
    distance_variance: Tensor | None = None
    row_max: Tensor | None = None
    row_logs: Tensor | None = None
    row_statistics: Tensor | None = None
    top_weights: Tensor | None = None
    top_keys: Tensor | None = None
    offsets: dict[Range, Tensor] = field(default_factory=dict)
    count_above: dict[float, Tensor] = field(default_factory=dict)
    query_weights: dict[str, Tensor] = field(default_factory=dict)
    key_weights: dict[str, Tensor] = field(default_factory=dict)
    token_matches: dict[str, Tensor] = field(default_factory=dict)

    def flat(self) -> dict[str, Tensor]:
        """Every tensor by a printable name, to compare two of these."""
        found: dict[str, Tensor] = {}
        for name in (f.name for f in fields(Reductions)):
            value = getattr(self, name)
            if isinstance(value, dict):
                found |= {f"{name}[{key}]": tensor for key, tensor in value.items()}
            elif value is not None:
                found[name] = value
        return found
