"""All reductions on a GPU: one Triton launch after a forward pass that left its log-sum-exp (two where it did not).

Nothing of the size T x T reaches memory: a tile lives in registers. Keys are read by their kv head, never repeated; whole
tiles skip the mask, and a mark that is nought in a tile skips its sum. Only what was asked for is compiled in. Sums over
given pairs are made one pair at a time beside it, since pairs are few.

Cost: one more QK^T with its exponentials, and a pass over the registers for each reduction. Not here: explicit masks,
gates, `top`, float64; `can_reduce` says so, and `blocked` does those.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from headwise.kernels import tiles
from headwise.kernels.attention import Attention
from headwise.kernels.contract import VANISHING, Pairs, Reductions, Wanted
from headwise.kernels.visibility import HIDDEN

LANES = 16  # named sums that fit into registers
WIDEST = 256  # of a head
PAIRS = 1 << 22  # numbers of q held at a time for sums over pairs
PLANES = 5  # mass, sum a log a, mean distance, its squares, peak; the named sums come after


def can_reduce(attention: Attention, wanted: Wanted) -> bool:
    """Whether these kernels do all of it."""
    return (
        attention.visibility.mask is None
        and attention.gate is None
        and not wanted.top
        and _named(wanted) <= LANES
        and attention.q.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and attention.q.shape[-1] <= WIDEST
    )


def reduce(attention: Attention, wanted: Wanted) -> Reductions:
    """All that is wanted, as `contract` has it."""
    batch, heads, queries, _ = attention.q.shape
    sight, device = attention.visibility, attention.q.device
    answers = sight.answers(batch).expand(batch, heads, queries)
    lse = _normaliser(attention, answers)
    columns = _zeros(wanted.column_sums, device, batch, heads, attention.k.shape[2])
    of_rows = _zeros(bool(wanted.rows), device, len(wanted.rows), batch, heads, attention.k.shape[2])
    planes = torch.empty(PLANES + _named(wanted), batch, heads, queries, dtype=torch.float32, device=device)
    diagonal = torch.empty_like(planes[0]) if wanted.log_diagonal else None
    _launch(attention, wanted, lse, columns, of_rows, planes, diagonal)
    planes.masked_fill_(~answers, torch.nan)
    found = Reductions()
    if diagonal is not None:
        found.log_diagonal = diagonal.masked_fill_(~answers, torch.nan)
    if columns is not None:
        found.column_sums = _as_float(columns)
    if of_rows is not None:
        found.rows = dict(zip(wanted.rows, _as_float(of_rows), strict=True))
    _read(planes, wanted, attention.sinks is None, found)
    found.pairs = {name: _pair_sums(attention, lse, answers, pairs) for name, pairs in wanted.pairs.items()}
    return found


def _read(planes: Tensor, wanted: Wanted, sums_to_one: bool, found: Reductions) -> None:
    """What stands in the planes, put where the contract has it."""
    mass, a_log_a, mean, squares, peak = planes[:PLANES]
    if wanted.entropy:
        found.entropy = -a_log_a if sums_to_one else mass.log() - a_log_a / mass
    if wanted.distance:
        found.distance_mean, found.distance_variance = mean, squares / mass
    if wanted.peak:
        found.peak = peak
    named = iter(planes[PLANES:])
    found.marks = {name: next(named) for name in wanted.marks}
    found.offsets = {ends: next(named) for ends in sorted(wanted.offsets)}
    found.over = {threshold: next(named) for threshold in sorted(wanted.over)}


def _launch(
    attention: Attention,
    wanted: Wanted,
    lse: Tensor,
    columns: Tensor | None,
    of_rows: Tensor | None,
    planes: Tensor,
    diagonal: Tensor | None,
) -> None:
    batch = len(attention.q)
    counts, device = attention.visibility.counts(batch), attention.q.device
    rows = [torch.where(counts, weights.to(device), 0.0) for weights in wanted.rows.values()]
    offsets = sorted(wanted.offsets)
    grid, shared, setting = _setting(attention)
    tiles.reductions[grid](
        *shared,
        lse, _stacked(list(wanted.marks.values()), batch, device), _stacked(rows, batch, device), columns, of_rows, planes,
        diagonal, planes[0].numel(),
        NEAR=tuple(near for near, _ in offsets), FAR=tuple(far for _, far in offsets),
        OVER=tuple(max(threshold, VANISHING) for threshold in sorted(wanted.over)),
        N_MARKS=len(wanted.marks), N_ROWS=len(rows), N_OFFSETS=len(offsets), N_OVER=len(wanted.over),
        WANT_COLUMNS=wanted.column_sums, WANT_ENTROPY=wanted.entropy, WANT_DISTANCE=wanted.distance,
        WANT_PEAK=wanted.peak, WANT_DIAGONAL=wanted.log_diagonal, LANES=max(2, triton.next_power_of_2(_named(wanted))),
        **setting,
    )  # fmt: skip


def _normaliser(attention: Attention, answers: Tensor) -> Tensor:
    """(batch, head, query): the log-sum-exp, learned sinks included; without bound for rows that do not answer."""
    lse = attention.lse
    if lse is None or attention.softcap is not None:
        lse = torch.empty(attention.q.shape[:3], dtype=torch.float32, device=attention.q.device)
        grid, shared, setting = _setting(attention)
        tiles.log_sum_exp[grid](*shared, lse, **setting)
    lse = lse.float()
    if attention.sinks is not None:
        lse = torch.logaddexp(lse, attention.sinks.float()[:, None])
    return torch.where(answers, lse, -HIDDEN).contiguous()


def _setting(attention: Attention) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, Any]]:
    """The grid, the arguments that both kernels begin with, and what is compiled in."""
    q, k, sight = attention.q, attention.k.to(attention.q.dtype), attention.visibility
    batch, heads, queries, width = q.shape
    deep = max(16, triton.next_power_of_2(width))
    exact = q.dtype == torch.float32
    rows, columns = (64, 32) if exact or deep > 128 else (64, 64)  # the quickest of eight on an H200
    valid = None if sight.key_valid is None else sight.key_valid.expand(batch, -1).to(torch.int8).contiguous()
    scale = attention.scale * tiles.LOG2E.value
    shared = (
        q, k, valid, *q.stride(), *k.stride(), heads, attention.group, queries, k.shape[2], sight.offset, width, scale,
        attention.softcap or 1.0, sight.window or 0,
    )  # fmt: skip
    compiled = {
        "HAS_CAP": attention.softcap is not None, "HAS_VALID": valid is not None, "HAS_WINDOW": sight.window is not None,
        "BM": rows, "BN": columns, "BD": deep, "PRECISION": "ieee" if exact else "tf32", "num_warps": 4, "num_stages": 3,
    }  # fmt: skip
    return (triton.cdiv(queries, rows), batch * heads), shared, compiled


def _pair_sums(attention: Attention, lse: Tensor, answers: Tensor, pairs: Pairs) -> Tensor:
    """Sums over given places, whose weights are made one by one."""
    q, k, sight, pairs = attention.q, attention.k, attention.visibility, pairs.to(attention.q.device)
    batch, heads, queries, width = q.shape
    total = torch.zeros(batch, queries, heads, dtype=torch.float32, device=q.device)
    for some in torch.arange(len(pairs.query), device=q.device).split(max(1, PAIRS // (heads * width))):
        b, i, j = pairs.batch[some], pairs.query[some], pairs.key[some]
        rows = q[b, :, i].float().unflatten(1, (-1, attention.group))  # (pair, kv_head, group, width)
        logits = torch.einsum("nkgd,nkd->nkg", rows, k[b, :, j].float()).flatten(1) * attention.scale
        if attention.softcap is not None:
            logits = torch.tanh(logits / attention.softcap) * attention.softcap
        seen = j <= i + sight.offset
        if sight.window is not None:
            seen = seen & (i + sight.offset - j < sight.window)
        if sight.key_valid is not None:
            seen = seen & sight.key_valid.expand(batch, -1)[b, j]
        total.index_put_((b, i), torch.exp(logits - lse[b, :, i]) * seen[:, None], accumulate=True)
    return total.transpose(1, 2).masked_fill(~answers, torch.nan)


def _named(wanted: Wanted) -> int:
    return len(wanted.marks) + len(wanted.offsets) + len(wanted.over)


def _zeros(wanted: bool, device: torch.device, *shape: int) -> Tensor | None:
    return torch.zeros(shape, dtype=torch.int64, device=device) if wanted else None


def _as_float(fixed: Tensor) -> Tensor:
    return (fixed.double() / tiles.UNIT.value).float()


def _stacked(tensors: list[Tensor], batch: int, device: torch.device) -> Tensor | None:
    """(tensor, batch, place) float32, in one piece; None where there are none."""
    if not tensors:
        return None
    return torch.stack([one.to(device, torch.float32).expand(batch, -1) for one in tensors]).contiguous()
