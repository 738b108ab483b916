"""All reductions with Triton kernels on a GPU, from q, k and the log-sum-exp of the forward pass.

| requested                                              | kernel                     | loops over                 |
|--------------------------------------------------------|----------------------------|----------------------------|
| entropy, distance, row max, four named sums per launch | `row_stats_kernel`         | keys, holding queries      |
| column sums together with them                         | `column_sum_finish_kernel` |                            |
| column sums alone, query weights (two per launch)      | `column_sum_kernel`        | queries, holding keys      |
| token matches of many queries                          | `match_mass_kernel`        | the sorted matching keys   |
| the diagonal, offsets of a few positions               | `near_diagonal_kernel`     | nothing: one key per query |

Nothing of size T x T reaches memory: a tile lives in registers. Keys are read by their kv head, never repeated. Only what is
requested is compiled. Cost: one more QK^T with its exponentials for each launch over keys or queries, and one for the
log-sum-exp if the forward pass did not return it. Not supported: explicit masks, gates, `top`, float64 (`can_reduce`); those
are left to `blocked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from headwise.kernels import triton_reductions, triton_rows
from headwise.kernels.attention import HIDDEN, Attention
from headwise.kernels.contract import VANISHING, Range, ReductionRequest, Reductions
from headwise.kernels.sorted_match import MAX_KEY_LISTS, MatchIds, SortedMatch, match_mass_kernel, sort_matches

MAX_WIDTH = 256  # of a head
PARTIAL_SUM_BYTES = 2**29  # for the partial sums of columns: bounds the heads per launch
MIN_SORTED_QUERIES = 1024  # from here on sorting beats comparing every key (H200: 2,048 yes, 512 not yet)
MAX_NEAR_OFFSETS = 4  # positions of an offset range that are computed one by one
TALL_TILE_QUERIES = 2048  # from here on tiles with more queries pay off, where columns are summed together with rows
WARPS = 4
KINDS = ("key_weights", "token_matches", "count_above", "offsets")  # of named sums, in the order of the kernel's slots


def can_reduce(attention: Attention, request: ReductionRequest) -> bool:
    """Whether these kernels support all of it."""
    return (
        attention.mask.explicit is None
        and attention.gate is None
        and not request.top
        and attention.q.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and attention.q.shape[-1] <= MAX_WIDTH
    )


def reduce(attention: Attention, request: ReductionRequest) -> Reductions:
    """All requested reductions, as defined in `contract`."""
    layer = _Layer.of(attention)
    found = Reductions()
    groups = _sorted_groups(layer, request)
    _rows(layer, request, groups, found)
    _columns(layer, request, found)
    _matches(layer, request, groups, found)
    _near_diagonal(layer, request, found)
    return found


@dataclass(frozen=True)
class _Layer:
    """What all kernels of one layer are launched and compiled with."""

    attention: Attention
    with_keys: Tensor | None  # (batch, head, query) bool; None: every query sees a key
    lse2: Tensor  # (batch, head, query): the log-sum-exp to base 2, sinks included; huge where a query sees no key
    arguments: tuple[Any, ...]  # the first ones of all kernels
    compiled: dict[str, Any]  # the constants of all kernels
    exact: bool  # float32, multiplied as float32

    @classmethod
    def of(cls, attention: Attention) -> _Layer:
        q, k, mask = attention.q, attention.k.to(attention.q.dtype), attention.mask
        batch, heads, queries, width = q.shape
        valid = None if mask.key_valid is None else mask.key_valid.expand(batch, -1).to(torch.int8).contiguous()
        arguments = (
            q, k, valid, *q.stride(), *k.stride(), heads, attention.group, queries, k.shape[2], mask.offset, width,
            attention.scale * triton_reductions.LOG2E.value, attention.softcap or 1.0, mask.window or 0,
        )  # fmt: skip
        compiled = {
            "HAS_CAP": attention.softcap is not None, "HAS_VALID": valid is not None,
            "HAS_WINDOW": mask.window is not None, "BD": max(16, triton.next_power_of_2(width)),
        }  # fmt: skip
        exact = q.dtype == torch.float32
        with_keys = None if mask.all_rows_have_keys else mask.rows_with_keys(batch).expand(batch, heads, queries)
        without_lse = cls(attention, with_keys, q, arguments, compiled, exact)
        return cls(attention, with_keys, without_lse._normaliser(), arguments, compiled, exact)

    def _normaliser(self) -> Tensor:
        """The log-sum-exp to base 2, learned sinks included."""
        lse, attention = self.attention.lse, self.attention
        if lse is None or attention.softcap is not None:
            lse = self.per_query()
            rows, columns = self.tile()
            grid = (triton.cdiv(lse.shape[2], rows), lse.shape[0] * lse.shape[1])
            triton_reductions.log_sum_exp_kernel[grid](*self.arguments, lse, **self.setting(rows, columns))
        if attention.sinks is not None:
            lse = torch.logaddexp(lse.float(), attention.sinks.float()[:, None])
        lse = lse.float() * triton_reductions.LOG2E.value
        return lse.contiguous() if self.with_keys is None else torch.where(self.with_keys, lse, -HIDDEN).contiguous()

    def per_query(self, *more: int) -> Tensor:
        """Uninitialised (*more, batch, head, query) float32."""
        return torch.empty(*more, *self.attention.q.shape[:3], dtype=torch.float32, device=self.attention.q.device)

    def per_key(self, *more: int) -> Tensor:
        """Uninitialised (*more, batch, head, key) float32."""
        shape = (*more, *self.attention.q.shape[:2], self.attention.k.shape[2])
        return torch.empty(shape, dtype=torch.float32, device=self.attention.q.device)

    def tile(self) -> tuple[int, int]:
        """The size of a tile, held and looped over: the fastest of a dozen on an H200."""
        return (64, 32) if self.exact or self.compiled["BD"] > 128 else (64, 64)

    def tall_tile(self) -> tuple[int, int]:
        """The same where columns are summed together with rows: half as many partial sums."""
        tall = self.tile() == (64, 64) and self.attention.q.shape[2] >= TALL_TILE_QUERIES
        return (128, 64) if tall else self.tile()

    def setting(self, rows: int, columns: int) -> dict[str, Any]:
        """The constants of a kernel with a loop."""
        precision = "ieee" if self.exact else "tf32"
        return self.compiled | {
            "BM": rows, "BN": columns, "PRECISION": precision, "num_warps": WARPS, "num_stages": 3,
        }  # fmt: skip

    def masked(self, values: Tensor) -> Tensor:
        """NaN for queries without keys."""
        return values if self.with_keys is None else values.masked_fill_(~self.with_keys, torch.nan)

    def stacked(self, tensors: Iterable[Tensor], dtype: torch.dtype) -> Tensor | None:
        """(tensor, batch, index), contiguous; None where there are none."""
        batch, device = len(self.attention.q), self.attention.q.device
        found = [one.to(device, dtype).expand(batch, -1) for one in tensors]
        return torch.stack(found).contiguous() if found else None

    def cached(self, request: ReductionRequest, name: str, make: Callable[[], Any]) -> Any:
        """What is the same for all layers of a pass on one device is computed once."""
        key = (name, self.attention.q.device)
        if key not in request.cache:
            request.cache[key] = make()
        return request.cache[key]


def _columns(layer: _Layer, request: ReductionRequest, found: Reductions) -> None:
    """Sums by query weights, and column sums unless the row kernel has made them: two per launch, the plain one first."""
    names: list[str | None] = [None] if request.column_sums and found.column_sums is None else []
    names += list(request.query_weights)
    batch, queries = layer.attention.q.shape[0], layer.attention.q.shape[2]
    weights = layer.cached(
        request, "query_weights", lambda: layer.stacked(request.query_weights.values(), torch.float32)
    )
    held, looped = layer.tile()
    for some in _chunks(2, names):
        out = layer.per_key(len(some))
        given = [name for name in some if name is not None]
        first = list(request.query_weights).index(given[0]) if given else 0
        grid = (triton.cdiv(out.shape[-1], held), out.shape[1] * out.shape[2])
        weighted = triton_reductions.WEIGHTED.value
        triton_reductions.column_sum_kernel[grid](
            *layer.arguments, layer.lse2, None if weights is None else weights[first:],
            batch * queries if some[0] is not None else 0, out, out[0].numel(),
            FIRST=triton_reductions.UNIFORM.value if some[0] is None else weighted,
            SECOND=weighted if len(some) > 1 else triton_reductions.ABSENT.value,
            **layer.setting(looped, held),
        )  # fmt: skip
        for name, sums in zip(some, out, strict=True):
            if name is None:
                found.column_sums = sums
            else:
                found.query_weights[name] = sums


Groups = list[list[str]]  # names of token matches that are computed by sorting, those of the same queries together


def _sorted_groups(layer: _Layer, request: ReductionRequest) -> Groups:
    if layer.attention.q.shape[2] < MIN_SORTED_QUERIES:
        return []
    same_queries: dict[int, list[str]] = {}
    for name, match in request.token_matches.items():
        same_queries.setdefault(id(match.query), []).append(name)
    return [some for names in same_queries.values() for some in _chunks(MAX_KEY_LISTS, names)]


def _matches(layer: _Layer, request: ReductionRequest, groups: Groups, found: Reductions) -> None:
    """Token matches by sorting, all in one launch."""
    if not groups:
        return
    batch, heads, queries, _ = layer.attention.q.shape
    device = layer.attention.q.device
    rows, columns = 64, 32
    together = math.gcd(layer.attention.group, 8)  # heads with the same keys
    block = rows // together

    def ids(names: list[str]) -> MatchIds:
        matches = [request.token_matches[name] for name in names]
        keys = tuple(match.key.to(device).expand(batch, -1) for match in matches)
        return MatchIds(matches[0].query.to(device).expand(batch, -1), keys)

    def sort() -> SortedMatch:
        return sort_matches([ids(names) for names in groups], layer.attention.mask.offset, block)

    order: SortedMatch = layer.cached(request, f"matches sorted by {block}", sort)
    sums = layer.per_query(len(groups), MAX_KEY_LISTS)
    match_mass_kernel[(triton.cdiv(queries, block), batch * heads // together, len(groups))](
        *layer.arguments, layer.lse2, order.queries, order.query_ids, order.keys, order.key_ids, order.low, order.high,
        sums, sums[0, 0].numel(), LISTS=MAX_KEY_LISTS, HEADS=together, **layer.setting(rows, columns) | {"num_stages": 2},
    )  # fmt: skip
    for names, of_lists in zip(groups, sums, strict=True):
        for name, mass in zip(names, of_lists, strict=False):
            found.token_matches[name] = layer.masked(mass)


Named = list[tuple[str, Any]]  # kind and name of named sums


def _rows(layer: _Layer, request: ReductionRequest, groups: Groups, found: Reductions) -> None:
    """Entropy, distance and row max, in one launch with the first four named sums."""
    by_sorting = {name for names in groups for name in names}
    named: Named = [("key_weights", name) for name in request.key_weights]
    named += [("token_matches", name) for name in request.token_matches if name not in by_sorting]
    named += [("count_above", threshold) for threshold in sorted(request.count_above)]
    named += [("offsets", ends) for ends in sorted(request.offsets) if not _is_near(ends)]
    statistics = request.entropy or request.distance or request.row_max
    for number, some in enumerate(_chunks(triton_rows.SLOTS, named) or ([[]] if statistics else [])):
        planes = _row_stats(layer, request, some, found if number == 0 else None)
        for (kind, name), sums in zip(some, planes[triton_rows.PLANES :], strict=False):
            getattr(found, kind)[name] = layer.masked(sums)
        if number == 0:
            mass, a_log_a, mean, squares, row_max = planes[: triton_rows.PLANES]
            if request.entropy:
                sums_to_one = layer.attention.sinks is None
                found.entropy = layer.masked(-a_log_a if sums_to_one else mass.log() - a_log_a / mass)
            if request.distance:
                found.distance_mean, found.distance_variance = layer.masked(mean), layer.masked(squares / mass)
            if request.row_max:
                found.row_max = layer.masked(row_max)


def _row_stats(layer: _Layer, request: ReductionRequest, some: Named, found: Reductions | None) -> Tensor:
    """The planes of one launch: mass, sum a log a, mean distance, its squares, row max, then the named sums.

    The first launch (`found` is given) computes the statistics and the column sums.
    """
    batch, heads, queries, _ = layer.attention.q.shape
    planes = layer.per_query(triton_rows.PLANES + len(some))
    given = (*layer.arguments, layer.lse2, *_named_tensors(layer, request, some), planes, planes[0].numel())
    of_kind = {kind: [name for of, name in some if of == kind] for kind in KINDS}
    compiled = {
        "N_KEYED": len(of_kind["key_weights"]), "N_MATCHES": len(of_kind["token_matches"]),
        "N_COUNTS": len(of_kind["count_above"]), "N_RANGES": len(of_kind["offsets"]),
        "ABOVE": tuple(max(threshold, VANISHING) for threshold in of_kind["count_above"]),
        "NEAR": tuple(near for near, _ in of_kind["offsets"]), "UPTO": tuple(far for _, far in of_kind["offsets"]),
        "WANT_ENTROPY": found is not None and request.entropy, "WANT_ROW_MAX": found is not None and request.row_max,
        "WANT_DISTANCE": found is not None and request.distance,
    }  # fmt: skip
    if found is not None and request.column_sums:
        found.column_sums = _row_stats_with_columns(layer, given, compiled)
        return planes
    rows, columns = layer.tile()
    grid = (triton.cdiv(queries, rows), batch * heads)
    triton_rows.row_stats_kernel[grid](*given, None, 0, LINES=0, **compiled, **layer.setting(rows, columns))
    return planes


def _row_stats_with_columns(layer: _Layer, given: tuple[Any, ...], compiled: dict[str, Any]) -> Tensor:
    """Row statistics and column sums together, for as many heads at a time as their partial sums fit in memory."""
    batch, heads, queries, _ = layer.attention.q.shape
    keys, mask = layer.attention.k.shape[2], layer.attention.mask
    rows, columns = layer.tall_tile()
    blocks = triton.cdiv(queries, rows)
    column_sums = layer.per_key()
    sums = column_sums.view(batch * heads, keys)
    at_once = min(batch * heads, max(1, PARTIAL_SUM_BYTES // (4 * blocks * WARPS * keys)))
    partial = torch.empty(at_once, blocks * WARPS, keys, dtype=torch.float32, device=sums.device)
    held = 128  # keys per program
    for first in range(0, batch * heads, at_once):
        some = sums[first : first + at_once]
        triton_rows.row_stats_kernel[(blocks, len(some))](
            *given, partial, first, LINES=WARPS, **compiled, **layer.setting(rows, columns)
        )
        triton_reductions.column_sum_finish_kernel[(triton.cdiv(keys, held), len(some))](
            partial, some, keys, mask.offset, mask.window or 0, blocks, HAS_WINDOW=mask.window is not None,
            LINES=WARPS, BM=rows, BN=columns, HELD=held, STEP=16, num_warps=4,
        )  # fmt: skip
    return column_sums


def _named_tensors(layer: _Layer, request: ReductionRequest, some: Named) -> tuple[Tensor | int | None, ...]:
    """What a launch reads for its named sums: weights of keys, ids of keys, ids of queries, each with its stride."""
    batch, queries, keys = len(layer.attention.q), layer.attention.q.shape[2], layer.attention.k.shape[2]
    matches = [request.token_matches[name] for kind, name in some if kind == "token_matches"]
    weights = [request.key_weights[name] for kind, name in some if kind == "key_weights"]

    def once(key: str, tensors: Iterable[Tensor], dtype: torch.dtype) -> Tensor | None:
        return layer.cached(request, f"{key} {some}", lambda: layer.stacked(tensors, dtype))

    return (
        once("key_weights", weights, torch.float32), batch * keys,
        once("keys", (match.key for match in matches), torch.int32), batch * keys,
        once("queries", (match.query.masked_fill(match.query < 0, -2) for match in matches), torch.int32), batch * queries,
    )  # fmt: skip


def _near_diagonal(layer: _Layer, request: ReductionRequest, found: Reductions) -> None:
    """The diagonal and narrow offset ranges; adjacent distances in one launch."""
    near = sorted(ends for ends in request.offsets if _is_near(ends))
    for first, last in _merged([(0, 1)] * request.log_diagonal + near):
        logs = layer.per_query(last - first)
        grid = (triton.cdiv(logs.shape[-1], 64), logs.shape[1] * logs.shape[2])
        triton_reductions.near_diagonal_kernel[grid](
            *layer.arguments, layer.lse2, logs, first, logs[0].numel(), COUNT=last - first, BM=64, num_warps=4,
            **layer.compiled,
        )  # fmt: skip
        for ends in near:
            if first <= ends[0] and ends[1] <= last:
                sums = logs[ends[0] - first : ends[1] - first].exp().sum(dim=0)
                found.offsets[ends] = layer.masked(sums)
        if request.log_diagonal and first <= 0 < last:
            found.log_diagonal = layer.masked(logs[-first])


def _is_near(ends: Range) -> bool:
    return ends[0] >= 0 and 0 < ends[1] - ends[0] <= MAX_NEAR_OFFSETS


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Touching ranges as one.

    >>> _merged([(0, 1), (1, 2), (5, 7)])
    [(0, 2), (5, 7)]
    """
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _chunks(count: int, items: list[Any]) -> list[list[Any]]:
    """Lists of up to `count` items.

    >>> _chunks(2, [1, 2, 3])
    [[1, 2], [3]]
    """
    return [items[start : start + count] for start in range(0, len(items), count)]
