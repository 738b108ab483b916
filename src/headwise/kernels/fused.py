"""All reductions on a GPU, after a forward pass that left its log-sum-exp (with one launch more where it did not).

| asked for                                              | kernel                   | walks over             |
|--------------------------------------------------------|--------------------------|------------------------|
| entropy, distance, peak, four named sums a walk;       | `row_tiles.asked`        | keys, holding queries  |
| column sums beside them                                | `column_tiles.gathered`  |                        |
| column sums alone, rows (two in one walk)              | `column_tiles.received`  | queries, holding keys  |
| matches, of many queries                               | `meeting_tiles.met`      | the few keys asked for |
| the diagonal, offsets of a few places                  | `tiles.near_logs`        | nothing: one key each  |

Nothing of the size T x T reaches memory: a tile lives in registers. Keys are read by their kv head, never repeated. Only
what was asked for is compiled in. Cost: one more QK^T with its exponentials for each walk. Not here: explicit masks, gates,
`top`, float64; `can_reduce` says so, and `blocked` does those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from headwise.kernels import column_tiles, meeting_tiles, row_tiles, tiles
from headwise.kernels.attention import Attention
from headwise.kernels.contract import VANISHING, Range, ReductionRequest, Reductions
from headwise.kernels.launches import WARPS, Layer, by, kept, stacked
from headwise.kernels.meetings import SIDES, Asking, Meetings, meetings

WIDEST = 256  # of a head
ROOM = 2**29  # bytes for the partial sums of columns: so many heads go at a time
MANY = 1024  # queries from which on it is quicker to sort than to compare every key (H200: 2,048 yes, 512 not yet)
NEARBY = 4  # places of an offset that are made one by one
KINDS = ("key_weights", "token_matches", "count_above", "offsets")  # of named sums, in the order of a walk's slots


def can_reduce(attention: Attention, wanted: ReductionRequest) -> bool:
    """Whether these kernels do all of it."""
    return (
        attention.mask.explicit is None
        and attention.gate is None
        and not wanted.top
        and attention.q.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and attention.q.shape[-1] <= WIDEST
    )


def reduce(attention: Attention, wanted: ReductionRequest) -> Reductions:
    """All that is wanted, as `contract` has it."""
    layer = Layer.of(attention)
    found = Reductions()
    few = _Few.of(layer, wanted)
    _rows(layer, wanted, few, found)
    _columns(layer, wanted, found)
    _meet(layer, wanted, few, found)
    _nearby(layer, wanted, found)
    return found


def _columns(layer: Layer, wanted: ReductionRequest, found: Reductions) -> None:
    """`rows`, and column sums if no walk over keys has made them: two in a walk, the plain one first."""
    names: list[str | None] = [None] if wanted.column_sums and found.column_sums is None else []
    names += list(wanted.query_weights)
    batch, queries = layer.attention.q.shape[0], layer.attention.q.shape[2]
    weights = kept(
        wanted, "query_weights", layer, lambda: stacked(wanted.query_weights.values(), batch, layer, torch.float32)
    )
    held, walked = layer.tile()
    for some in by(2, names):
        out = layer.new(2, len(some))
        given = [name for name in some if name is not None]
        first = list(wanted.query_weights).index(given[0]) if given else 0
        grid = (triton.cdiv(out.shape[-1], held), out.shape[1] * out.shape[2])
        column_tiles.received[grid](
            *layer.arguments, layer.lse2, None if weights is None else weights[first:],
            batch * queries if some[0] is not None else 0, out, out[0].numel(),
            FIRST=column_tiles.EVEN.value if some[0] is None else column_tiles.GIVEN.value,
            SECOND=column_tiles.GIVEN.value if len(some) > 1 else column_tiles.ABSENT.value,
            **layer.setting(walked, held),
        )  # fmt: skip
        for name, sums in zip(some, out, strict=True):
            if name is None:
                found.column_sums = sums
            else:
                found.query_weights[name] = sums


@dataclass(frozen=True)
class _Few:
    """Matches that are made by sorting, those of the same queries together."""

    groups: tuple[tuple[str, ...], ...]  # names; at most SIDES a group

    @classmethod
    def of(cls, layer: Layer, wanted: ReductionRequest) -> _Few:
        if layer.attention.q.shape[2] < MANY:
            return cls(())
        alike: dict[int, list[str]] = {}
        for name, match in wanted.token_matches.items():
            alike.setdefault(id(match.query), []).append(name)
        return cls(tuple(tuple(some) for names in alike.values() for some in by(SIDES, names)))

    def holds(self, name: str) -> bool:
        return any(name in names for names in self.groups)

    def sorted(self, layer: Layer, wanted: ReductionRequest, block: int) -> Meetings:
        """The same for all layers of a pass."""
        batch, device = layer.attention.q.shape[0], layer.attention.q.device

        def asking(names: tuple[str, ...]) -> Asking:
            matches = [wanted.token_matches[name] for name in names]
            keys = tuple(match.key.to(device).expand(batch, -1) for match in matches)
            return Asking(matches[0].query.to(device).expand(batch, -1), keys)

        return meetings([asking(names) for names in self.groups], layer.attention.mask.offset, block)


def _meet(layer: Layer, wanted: ReductionRequest, few: _Few, found: Reductions) -> None:
    """Matches, all in one launch."""
    if not few.groups:
        return
    batch, heads, queries, _ = layer.attention.q.shape
    rows, columns = 64, 32
    together = math.gcd(layer.attention.group, 8)  # heads with the same keys
    each = rows // together
    sorts: Meetings = kept(wanted, f"meetings of {each}", layer, lambda: few.sorted(layer, wanted, each))
    sums = layer.new(3, len(few.groups), SIDES)
    meeting_tiles.met[(triton.cdiv(queries, each), batch * heads // together, len(few.groups))](
        *layer.arguments, layer.lse2, sorts.queries, sorts.query_ids, sorts.keys, sorts.key_ids, sorts.low, sorts.high,
        sums, sums[0, 0].numel(), SIDES=SIDES, HEADS=together, **layer.setting(rows, columns) | {"num_stages": 2},
    )  # fmt: skip
    for names, sides in zip(few.groups, sums, strict=True):
        for name, side in zip(names, sides, strict=False):
            found.token_matches[name] = layer.answered(side)


def _rows(layer: Layer, wanted: ReductionRequest, few: _Few, found: Reductions) -> None:
    """Entropy, distance and peak, in one walk with the first four named sums."""
    named: list[tuple[str, Any]] = [("key_weights", name) for name in wanted.key_weights]
    named += [("token_matches", name) for name in wanted.token_matches if not few.holds(name)]
    named += [("count_above", threshold) for threshold in sorted(wanted.count_above)]
    named += [("offsets", ends) for ends in sorted(wanted.offsets) if not _is_near(ends)]
    statistics = wanted.entropy or wanted.distance or wanted.row_max
    for number, some in enumerate(by(row_tiles.SLOTS, named) or ([[]] if statistics else [])):
        planes = _walk(layer, wanted, some, found if number == 0 else None)
        for (kind, name), sums in zip(some, planes[row_tiles.PLANES :], strict=False):
            getattr(found, kind)[name] = layer.answered(sums)
        if number == 0:
            _statistics(layer, wanted, planes, found)


def _walk(layer: Layer, wanted: ReductionRequest, some: list[tuple[str, Any]], found: Reductions | None) -> Tensor:
    """The planes of one walk: mass, sum a log a, mean distance, its squares, peak, then the named sums.

    The first walk (`found` is given) makes the statistics, and the column sums too.
    """
    batch, heads, queries, _ = layer.attention.q.shape
    planes = layer.new(3, row_tiles.PLANES + len(some))
    given = (*layer.arguments, layer.lse2, *_named(layer, wanted, some), planes, planes[0].numel())
    compiled = _compiled(some) | {
        "WANT_ENTROPY": found is not None and wanted.entropy, "WANT_PEAK": found is not None and wanted.row_max,
        "WANT_DISTANCE": found is not None and wanted.distance,
    }  # fmt: skip
    if found is not None and wanted.column_sums:
        _with_columns(layer, given, compiled, found)
        return planes
    rows, columns = layer.tile()
    grid = (triton.cdiv(queries, rows), batch * heads)
    row_tiles.asked[grid](*given, None, 0, LINES=0, **compiled, **layer.setting(rows, columns))
    return planes


def _with_columns(layer: Layer, given: tuple[Any, ...], compiled: dict[str, Any], found: Reductions) -> None:
    """A walk that makes column sums beside: as many heads at a time as there is room for their partial sums."""
    batch, heads, queries, _ = layer.attention.q.shape
    keys = layer.attention.k.shape[2]
    rows, columns = layer.tall_tile()
    blocks = triton.cdiv(queries, rows)
    found.column_sums = layer.new(2)
    sums = found.column_sums.view(batch * heads, keys)
    at_once = min(batch * heads, max(1, ROOM // (4 * blocks * WARPS * keys)))
    partial = torch.empty(at_once, blocks * WARPS, keys, dtype=torch.float32, device=sums.device)
    for first in range(0, batch * heads, at_once):
        some_sums = sums[first : first + at_once]
        row_tiles.asked[(blocks, len(some_sums))](
            *given, partial, first, LINES=WARPS, **compiled, **layer.setting(rows, columns)
        )
        _gather(layer, partial, some_sums, blocks, (rows, columns))


def _named(layer: Layer, wanted: ReductionRequest, some: list[tuple[str, Any]]) -> tuple[Tensor | int | None, ...]:
    """What a walk reads for its named sums: weights of keys, ids of keys, ids of queries, each with its stride."""
    batch, queries, keys = len(layer.attention.q), layer.attention.q.shape[2], layer.attention.k.shape[2]
    matches = [wanted.token_matches[name] for kind, name in some if kind == "token_matches"]

    def once(key: str, tensors: Iterable[Tensor], dtype: torch.dtype) -> Tensor | None:
        return kept(wanted, f"{key} {some}", layer, lambda: stacked(tensors, batch, layer, dtype))

    return (
        once("key_weights", (wanted.key_weights[name] for kind, name in some if kind == "key_weights"), torch.float32),
        batch * keys,
        once("keys", (match.key for match in matches), torch.int32), batch * keys,
        once("queries", (match.query.masked_fill(match.query < 0, -2) for match in matches), torch.int32), batch * queries,
    )  # fmt: skip


def _compiled(some: list[tuple[str, Any]]) -> dict[str, Any]:
    """What a walk is compiled with: how many named sums of each kind, and their thresholds and ranges."""
    chosen = {kind: [name for of, name in some if of == kind] for kind in KINDS}
    return {
        "N_MARKS": len(chosen["key_weights"]), "N_MATCHES": len(chosen["token_matches"]), "N_OVER": len(chosen["count_above"]),
        "N_RANGES": len(chosen["offsets"]), "OVER": tuple(max(threshold, VANISHING) for threshold in chosen["count_above"]),
        "NEAR": tuple(near for near, _ in chosen["offsets"]), "FURTHER": tuple(far for _, far in chosen["offsets"]),
    }  # fmt: skip


def _gather(layer: Layer, partial: Tensor, sums: Tensor, blocks: int, tile: tuple[int, int]) -> None:
    """Column sums (head, key) from the partial ones (head, block and line, key) of blocks of queries."""
    held, mask = 128, layer.attention.mask
    column_tiles.gathered[(triton.cdiv(sums.shape[1], held), len(sums))](
        partial, sums, sums.shape[1], mask.offset, mask.window or 0, blocks, HAS_WINDOW=mask.window is not None,
        LINES=WARPS, BM=tile[0], BN=tile[1], HELD=held, STEP=16, num_warps=4,
    )  # fmt: skip


def _statistics(layer: Layer, wanted: ReductionRequest, planes: Tensor, found: Reductions) -> None:
    """What the first planes hold, put where the contract has it."""
    mass, a_log_a, mean, squares, peak = planes[: row_tiles.PLANES]
    if wanted.entropy:
        found.entropy = layer.answered(-a_log_a if layer.attention.sinks is None else mass.log() - a_log_a / mass)
    if wanted.distance:
        found.distance_mean, found.distance_variance = layer.answered(mean), layer.answered(squares / mass)
    if wanted.row_max:
        found.row_max = layer.answered(peak)


def _nearby(layer: Layer, wanted: ReductionRequest, found: Reductions) -> None:
    """The diagonal and narrow offsets: distances that lie together are made together."""
    near = sorted(ends for ends in wanted.offsets if _is_near(ends))
    for first, last in _joined([(0, 1)] * wanted.log_diagonal + near):
        logs = layer.new(3, last - first)
        grid = (triton.cdiv(logs.shape[-1], 64), logs.shape[1] * logs.shape[2])
        tiles.near_logs[grid](
            *layer.arguments, layer.lse2, logs, first, logs[0].numel(), COUNT=last - first, BM=64, num_warps=4,
            **layer.compiled,
        )  # fmt: skip
        for ends in near:
            if first <= ends[0] and ends[1] <= last:
                sums = logs[ends[0] - first : ends[1] - first].exp().sum(dim=0)
                found.offsets[ends] = layer.answered(sums)
        if wanted.log_diagonal and first <= 0 < last:
            found.log_diagonal = layer.answered(logs[-first])


def _is_near(ends: Range) -> bool:
    return ends[0] >= 0 and 0 < ends[1] - ends[0] <= NEARBY


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges that touch, as one.

    >>> _joined([(0, 1), (1, 2), (5, 7)])
    [(0, 2), (5, 7)]
    """
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
