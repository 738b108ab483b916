"""A layer that is ready to be launched over: what all Triton kernels are given and compiled with, and room for their results.

The log-sum-exp is the forward pass's own, to base 2 and with learned sinks; where the pass left none, one launch makes it.
Queries that do not answer have one without bound, so that all their weights are nought. What serves all layers of a pass
(stacked marks, sorted ids) is kept in the request. This module does not know what is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from headwise.kernels import tiles
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest
from headwise.kernels.mask import HIDDEN

LONG = 2048  # queries from which on it pays to hold more of them, where columns are summed beside rows
WARPS = 4


@dataclass(frozen=True)
class Layer:
    """One layer, ready to be launched over."""

    attention: Attention
    answers: Tensor | None  # (batch, head, query) bool; None: every query answers
    lse2: Tensor  # (batch, head, query): the log-sum-exp to base 2, without bound where a query does not answer
    arguments: tuple[Any, ...]  # that all kernels begin with
    compiled: dict[str, Any]  # that all kernels are compiled with
    exact: bool  # float32, multiplied as float32

    @classmethod
    def of(cls, attention: Attention) -> Layer:
        q, k, mask = attention.q, attention.k.to(attention.q.dtype), attention.mask
        batch, heads, queries, width = q.shape
        valid = None if mask.key_valid is None else mask.key_valid.expand(batch, -1).to(torch.int8).contiguous()
        arguments = (
            q, k, valid, *q.stride(), *k.stride(), heads, attention.group, queries, k.shape[2], mask.offset, width,
            attention.scale * tiles.LOG2E.value, attention.softcap or 1.0, mask.window or 0,
        )  # fmt: skip
        compiled = {
            "HAS_CAP": attention.softcap is not None, "HAS_VALID": valid is not None,
            "HAS_WINDOW": mask.window is not None, "BD": max(16, triton.next_power_of_2(width)),
        }  # fmt: skip
        exact = q.dtype == torch.float32
        answers = None if mask.all_rows_have_keys else mask.rows_with_keys(batch).expand(batch, heads, queries)
        bare = cls(attention, answers, q, arguments, compiled, exact)
        return cls(attention, answers, bare._normaliser(), arguments, compiled, exact)

    def _normaliser(self) -> Tensor:
        """The log-sum-exp, learned sinks included."""
        lse, attention = self.attention.lse, self.attention
        if lse is None or attention.softcap is not None:
            lse = self.new(3)
            rows, columns = self.tile()
            grid = (triton.cdiv(lse.shape[2], rows), lse.shape[0] * lse.shape[1])
            tiles.log_sum_exp[grid](*self.arguments, lse, **self.setting(rows, columns))
        if attention.sinks is not None:
            lse = torch.logaddexp(lse.float(), attention.sinks.float()[:, None])
        lse = lse.float() * tiles.LOG2E.value
        return lse.contiguous() if self.answers is None else torch.where(self.answers, lse, -HIDDEN).contiguous()

    def new(self, dims: int, *more: int) -> Tensor:
        """Room for numbers (*more, batch, head, query), float32, or of keys where dims is 2."""
        batch, heads, queries, _ = self.attention.q.shape
        length = queries if dims == 3 else self.attention.k.shape[2]
        return torch.empty(*more, batch, heads, length, dtype=torch.float32, device=self.attention.q.device)

    def tile(self) -> tuple[int, int]:
        """Held and walked places of a tile: the quickest of a dozen on an H200."""
        return (64, 32) if self.exact or self.compiled["BD"] > 128 else (64, 64)

    def tall_tile(self) -> tuple[int, int]:
        """The same where columns are summed beside rows: half as many partial sums."""
        return (128, 64) if self.tile() == (64, 64) and self.attention.q.shape[2] >= LONG else self.tile()

    def setting(self, rows: int, columns: int) -> dict[str, Any]:
        """What a walking kernel is compiled with."""
        precision = "ieee" if self.exact else "tf32"
        return self.compiled | {
            "BM": rows, "BN": columns, "PRECISION": precision, "num_warps": WARPS, "num_stages": 3,
        }  # fmt: skip

    def answered(self, values: Tensor) -> Tensor:
        """NaN for queries that do not answer."""
        return values if self.answers is None else values.masked_fill_(~self.answers, torch.nan)


def by(count: int, items: list[Any]) -> list[list[Any]]:
    """Cut into lists of so many.

    >>> by(2, [1, 2, 3])
    [[1, 2], [3]]
    """
    return [items[start : start + count] for start in range(0, len(items), count)]


def stacked(tensors: Iterable[Tensor], batch: int, layer: Layer, dtype: torch.dtype) -> Tensor | None:
    """(tensor, batch, place), in one piece; None where there are none."""
    device = layer.attention.q.device
    found = [one.to(device, dtype).expand(batch, -1) for one in tensors]
    return torch.stack(found).contiguous() if found else None


def kept(wanted: ReductionRequest, key: str, layer: Layer, make: Callable[[], Any]) -> Any:
    """What is the same for all layers of a pass on one device is made once."""
    place = (key, layer.attention.q.device)
    if place not in wanted.kept:
        wanted.kept[place] = make()
    return wanted.kept[place]
