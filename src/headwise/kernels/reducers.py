"""One class per reduction: each processes every block of rows once and holds only its own small result.

A reducer has two callbacks: `on_logs`, when the log-weights of a block have been computed, and `on_weights`, when its weights
have. Unless a reducer needs both at once (`needs_logs`), the weights overwrite the log-weights. One that needs a buffer of a
block's size (`needs_scratch`) gets one that is already in the cache, after those that need the log-weights. `finish` writes
the result into `contract.Reductions`.

On a CPU a narrow matrix product (two to eight columns) is eight times slower than as many matrix-vector products, so
sums over keys are written as the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.kernels.attention import HIDDEN, Attention
from headwise.kernels.contract import VANISHING, Match, ReductionRequest, Reductions


@dataclass
class Block:
    """Rows [start, stop) x keys [low, high) of some examples and heads."""

    batch: slice
    heads: slice  # query heads
    start: int
    stop: int
    low: int
    high: int
    offset: int
    logs: Tensor  # (batch, head, query, key); may be overwritten once `weights` are computed
    weights: Tensor  # (batch, head, query, key)
    scratch: Tensor  # (batch, head, query, key); arbitrary content, for reducers that need it


class Reducer:
    """Subclasses override one of the two callbacks."""

    needs_logs = False  # in on_weights
    needs_scratch = False  # in on_weights

    def on_logs(self, block: Block) -> None:
        """`block.logs` are exact: not yet raised to the floor."""

    def on_weights(self, block: Block) -> None:
        """`block.weights` are computed."""

    def finish(self, out: Reductions) -> None:
        """Write the result into `out`."""
        raise NotImplementedError


class PerRow(Reducer):
    """A reducer with one value (or a short vector) per query."""

    field: str  # of `Reductions`
    key: Any = None  # of the result in a field that holds several

    def __init__(self, attention: Attention, *extra: int):
        self.with_keys = attention.mask.rows_with_keys(attention.q.shape[0])  # (batch, head or 1, query)
        self.rows = attention.q.new_empty((*attention.q.shape[:3], *extra), dtype=torch.float32)

    def put(self, block: Block, values: Tensor) -> None:
        self.rows[block.batch, block.heads, block.start : block.stop] = values

    def result(self) -> Tensor:
        """The rows, NaN for queries without keys."""
        with_keys = self.with_keys.view(*self.with_keys.shape, *[1] * (self.rows.ndim - 3))
        return self.rows.masked_fill_(~with_keys, torch.nan)

    def finish(self, out: Reductions) -> None:
        if self.key is None:
            setattr(out, self.field, self.result())
        else:
            getattr(out, self.field)[self.key] = self.result()


class ColumnSums(Reducer):
    """The attention that each key receives; rows without keys are already zero."""

    def __init__(self, attention: Attention):
        batch, heads, queries, _ = attention.q.shape
        self.total = attention.q.new_zeros((batch, heads, attention.k.shape[2]), dtype=torch.float32)
        self.row = attention.q.new_ones((1, queries), dtype=torch.float32)  # (batch or 1, query)

    def on_weights(self, block: Block) -> None:
        row = self.row[block.batch if len(self.row) > 1 else slice(None), None, None, block.start : block.stop]
        self.total[block.batch, block.heads, block.low : block.high] += (row @ block.weights)[:, :, 0]

    def finish(self, out: Reductions) -> None:
        out.column_sums = self.total


class QueryWeighted(ColumnSums):
    """The attention that each key receives from weighted queries."""

    def __init__(self, attention: Attention, name: str, weights: Tensor):
        super().__init__(attention)
        self.name = name
        weights = weights.to(attention.q.device, torch.float32)
        self.row = torch.where(attention.mask.valid_queries(attention.q.shape[0]), weights, 0.0)  # (batch, query)

    def finish(self, out: Reductions) -> None:
        out.query_weights[self.name] = self.total


class LogDiagonal(PerRow):
    """The log-weight each query puts on its own token; -inf where that is hidden, or not among the keys."""

    field = "log_diagonal"

    def __init__(self, attention: Attention):
        super().__init__(attention)
        self.rows.fill_(-torch.inf)

    def on_logs(self, block: Block) -> None:
        own = block.start + block.offset - block.low  # index of the first row's own key in the block
        rows, keys = block.logs.shape[-2:]
        first, last = max(0, -own), min(rows, keys - own)  # rows whose own key is in the block
        if first < last:
            where = slice(block.start + first, block.start + last)
            self.rows[block.batch, block.heads, where] = block.logs.diagonal(own, dim1=-2, dim2=-1)

    def result(self) -> Tensor:
        return super().result().masked_fill_(self.rows < HIDDEN / 2, -torch.inf)


class RowMax(PerRow):
    """The largest weight of a row, from the log-weights."""

    field = "row_max"

    def on_logs(self, block: Block) -> None:
        self.put(block, block.logs.amax(dim=-1).exp_())


def mass_of(block: Block) -> Tensor:
    """The sum of weights of each row; NaN where all are at the floor: a row that attends to nothing."""
    mass = block.weights.sum(dim=-1)
    return mass.masked_fill_(mass <= VANISHING * block.weights.shape[-1], torch.nan)


class Entropy(PerRow):
    """-sum p log p, with p = a / mass: log(mass) - sum(a log a) / mass."""

    field = "entropy"
    needs_logs = True

    def __init__(self, attention: Attention):
        super().__init__(attention)
        self.sums_to_one = attention.sinks is None and attention.gate is None

    def on_weights(self, block: Block) -> None:
        entropy = -block.logs.mul_(block.weights).sum(dim=-1)
        if not self.sums_to_one:
            mass = mass_of(block)
            entropy = mass.log() + entropy / mass
        self.put(block, entropy)


class Distance(PerRow):
    """Mean and variance of the attention distance.

    The variance is summed about the mean of each row. A mean square minus a squared mean would save one pass, but lose all
    digits for heads that attend to a few distant keys: sinks.
    """

    needs_scratch = True

    def __init__(self, attention: Attention):
        super().__init__(attention, 2)

    def on_weights(self, block: Block) -> None:
        device = block.weights.device
        centre = block.start + block.offset  # of the block's first query: preserves the digits of local heads
        lag = centre - torch.arange(block.low, block.high, device=device, dtype=torch.float32)
        mass = mass_of(block)
        mean = (block.weights @ lag) / mass
        deviation = torch.sub(lag, mean[..., None], out=block.scratch)
        variance = deviation.square_().mul_(block.weights).sum(dim=-1) / mass
        ahead = torch.arange(block.stop - block.start, device=device, dtype=torch.float32)
        self.put(block, torch.stack([mean + ahead, variance], dim=-1))

    def finish(self, out: Reductions) -> None:
        out.distance_mean, out.distance_variance = self.result().unbind(dim=-1)


class KeyWeighted(PerRow):
    """Weighted sum over keys."""

    field = "key_weights"

    def __init__(self, attention: Attention, name: str, key_weights: Tensor):
        super().__init__(attention)
        self.key = name
        self.key_weights = key_weights.to(attention.q.device, torch.float32)  # (batch, key)

    def on_weights(self, block: Block) -> None:
        keys = self.key_weights[block.batch, block.low : block.high]
        self.put(block, torch.stack([one @ keyed for one, keyed in zip(block.weights, keys, strict=True)]))


class Offset(PerRow):
    """Mass within a range of distance, near <= distance < far. Touches the range's keys only."""

    field = "offsets"

    def __init__(self, attention: Attention, near: int, far: int):
        super().__init__(attention)
        self.near, self.far = self.key = near, far

    def on_weights(self, block: Block) -> None:
        device = block.weights.device
        first = max(block.low, block.start + block.offset - self.far + 1)
        last = max(first, min(block.high, block.stop + block.offset - self.near))
        position = torch.arange(block.start, block.stop, device=device)[:, None] + block.offset
        distance = position - torch.arange(first, last, device=device)
        inside = ((distance >= self.near) & (distance < self.far)).float()
        self.put(block, (block.weights[..., first - block.low : last - block.low] * inside).sum(dim=-1))


class TokenMatches(PerRow):
    """Mass on earlier keys that match the query (induction, duplicates): few, so they are gathered one by one."""

    field = "token_matches"

    def __init__(self, attention: Attention, name: str, match: Match):
        super().__init__(attention)
        self.key = name
        self.rows.zero_()
        indices = match.indices(attention.mask.offset)
        self.indices = [index.to(attention.q.device) for index in indices]  # batch, query, key
        self.queries = indices[1].cpu()

    def on_weights(self, block: Block) -> None:
        first, last = torch.searchsorted(self.queries, torch.tensor([block.start, block.stop])).tolist()
        batch, query, key = (index[first:last] for index in self.indices)
        batch, query, key = batch - block.batch.start, query - block.start, key - block.low
        inside = (batch >= 0) & (batch < len(block.weights)) & (key >= 0) & (key < block.high - block.low)
        batch, query, key = batch[inside], query[inside], key[inside]
        rows = self.rows[block.batch, block.heads, block.start : block.stop].transpose(1, 2)  # (batch, query, head)
        rows.index_put_((batch, query), block.weights[batch, :, query, key], accumulate=True)


class Top(PerRow):
    """The k largest weights of a row and their keys; weight 0 and key -1 after the last one."""

    def __init__(self, attention: Attention, k: int):
        super().__init__(attention, k)
        self.k = k
        self.keys = torch.zeros_like(self.rows, dtype=torch.long)

    def on_weights(self, block: Block) -> None:
        count = min(self.k, block.weights.shape[-1])
        weights, keys = block.weights.topk(count, dim=-1)
        none = weights <= VANISHING
        missing = (0, self.k - count)  # early rows of a causal mask have fewer keys than k
        self.put(block, torch.nn.functional.pad(weights.masked_fill(none, 0.0), missing))
        keys = torch.nn.functional.pad((keys + block.low).masked_fill(none, -1), missing, value=-1)
        self.keys[block.batch, block.heads, block.start : block.stop] = keys

    def finish(self, out: Reductions) -> None:
        out.top_weights = self.result()
        out.top_keys = self.keys.masked_fill_(~self.with_keys[..., None], -1)


class CountAbove(PerRow):
    """How many weights of a row are above a threshold."""

    field = "count_above"

    def __init__(self, attention: Attention, threshold: float):
        super().__init__(attention)
        self.threshold = self.key = threshold

    def on_weights(self, block: Block) -> None:
        self.put(block, (block.weights > max(self.threshold, VANISHING)).sum(dim=-1).float())


def reducers_for(request: ReductionRequest, attention: Attention) -> list[Reducer]:
    """Those of the requested reductions."""
    simple = {
        ColumnSums: request.column_sums,
        LogDiagonal: request.log_diagonal,
        Entropy: request.entropy,
        Distance: request.distance,
        RowMax: request.row_max,
    }
    chosen: list[Reducer] = [reducer(attention) for reducer, requested in simple.items() if requested]
    if request.top:
        chosen.append(Top(attention, request.top))
    chosen += [Offset(attention, near, far) for near, far in sorted(request.offsets)]
    chosen += [CountAbove(attention, threshold) for threshold in sorted(request.count_above)]
    chosen += [QueryWeighted(attention, name, weights) for name, weights in request.query_weights.items()]
    chosen += [KeyWeighted(attention, name, keyed) for name, keyed in request.key_weights.items()]
    chosen += [TokenMatches(attention, name, match) for name, match in request.token_matches.items()]
    return sorted(chosen, key=lambda reducer: not reducer.needs_logs)
