"""Attention weights with some dropped, as a sparse kernel would have them: rules, and the z they give, block by block.

With p the weights of one row over the keys that it sees,

    top(k)         the k largest stay (all of those that equal the k-th)
    over(t)        those above t stay; the largest of a row always does
    window(w, s)   the last w keys of the row stay, itself included, and the first s keys of the text
    entmax(a)      p' = [(a - 1) log p - tau]_+^(1 / (a - 1)), tau such that p' sums to 1: softmax at a = 1, sparser above
    random(k)      k keys drawn at random stay: the control for top(k)

What stays is scaled so that a row keeps its sum, or left as it is (`renormalise=False`); entmax always sums to the row's
own sum. Entmax's tau is found by Newton's method: the sum falls with tau and is convex, so that the steps from the left
never overshoot, and it ends within rounding. (Peters et al. 2019, arXiv 1905.05702; entmax of log p is that of the logits,
which differ from them by a constant a row.)

A block holds `BLOCK` numbers at most, so no T x T map of a batch is ever held. Cost: one QK^T product, the rule (top and
random sort a row; entmax makes some ten passes over it) and one product with v. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.core.errors import StudyError, did_you_mean
from headwise.kernels.attention import Attention
from headwise.kernels.mask import AttentionMask

__all__ = ["KINDS", "Dropping", "Rows", "dropped_output", "row_blocks"]

BLOCK = 4_000_000  # numbers
KINDS = ("top", "over", "window", "entmax", "random")
NEWTON = 60  # steps at most; some ten are enough


@dataclass(frozen=True)
class Dropping:
    """A rule by which attention weights are left out.

    Examples:
        >>> Dropping("window", 16, sink=4).name
        'window 16 + 4'
    """

    kind: str  # top, over, window, entmax or random
    amount: float  # its k, t, w or a
    sink: int = 0  # keys at the text's beginning that a window keeps
    renormalise: bool = True  # scale what stays so that a row keeps its sum
    seed: int = 0  # of random

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StudyError(f"{self.kind!r} is no way to drop attention weights. {did_you_mean(self.kind, KINDS)}")
        whole = self.kind in ("top", "window", "random")
        fits = {"over": 0 <= self.amount < 1, "entmax": 1 < self.amount <= 2}.get(self.kind, self.amount >= 1)
        if not fits or (whole and self.amount != int(self.amount)) or self.sink < 0:
            asked = (
                "a whole number, at least 1"
                if whole
                else {"over": "at least 0, below 1"}.get(self.kind, "over 1, at most 2")
            )
            raise StudyError(f"{self.kind} was asked for with {self.amount:g} (sink {self.sink}); give {asked}")

    @property
    def name(self) -> str:
        """Such as "top 8" or "window 16 + 4"."""
        return f"{self.kind} {self.amount:g}" + (f" + {self.sink}" if self.sink else "")

    def apply(self, rows: Rows) -> Tensor:
        """New weights of a block of rows, (batch, head, query, key)."""
        weights = rows.weights
        if self.kind == "entmax":
            return entmax(weights, self.amount)
        kept = weights.masked_fill(~self._stays(rows), 0.0)
        if not self.renormalise:
            return kept
        sums = kept.sum(dim=-1, keepdim=True)
        return torch.where(sums > 0, kept * (weights.sum(dim=-1, keepdim=True) / sums.clamp(min=1e-30)), kept)

    def _stays(self, rows: Rows) -> Tensor:
        weights, amount = rows.weights, int(self.amount)
        if self.kind == "over":
            return (weights > self.amount) | (weights >= weights.amax(dim=-1, keepdim=True))
        if self.kind == "window":
            key = torch.arange(rows.low, rows.low + weights.shape[-1], device=weights.device)
            return (rows.own[:, None] - key < amount) | (key < self.sink)
        order = weights
        if self.kind == "random":
            order = self._drawn(rows).masked_fill(~rows.seen, -1.0)
        if amount >= weights.shape[-1]:
            return torch.ones_like(weights, dtype=torch.bool)
        return order >= order.topk(amount, dim=-1).values[..., -1:]

    def _drawn(self, rows: Rows) -> Tensor:
        """Random numbers of a block's shape, which depend on the row and not on the block."""
        batch, heads = rows.weights.shape[:2]
        drawn = []
        for row in range(rows.start, rows.stop):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + row)
            drawn.append(torch.rand(batch, heads, rows.of, generator=generator)[..., rows.keys])
        return torch.stack(drawn, dim=2).to(rows.weights)


@dataclass(frozen=True)
class Rows:
    """A block of rows of a layer's weights; its keys begin at `low`, and are some `of` all that the layer has."""

    start: int
    stop: int
    low: int
    of: int
    weights: Tensor  # (batch, head, query, key)
    seen: Tensor  # (batch or 1, 1 or head, query, key) bool
    own: Tensor  # (query,): the key of each query's own token

    @property
    def keys(self) -> slice:
        """Among those of the layer."""
        return slice(self.low, self.low + self.weights.shape[-1])


def entmax(weights: Tensor, alpha: float) -> Tensor:
    """Entmax of the logits that these weights are the softmax of; a row keeps its sum, and what is 0 stays 0."""
    power = 1 / (alpha - 1)
    logits = weights.log() / power  # (alpha - 1) log p; -inf where there is nothing
    logits = logits - logits.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).min)
    tau = torch.full_like(logits[..., :1], -1.0)  # there the largest alone gives 1
    for _ in range(NEWTON):
        over = (logits - tau).clamp(min=0)
        high = over ** (power - 1) if power != 1 else (over > 0).to(over.dtype)
        excess = (high * over).sum(dim=-1, keepdim=True) - 1
        step = excess / (power * high.sum(dim=-1, keepdim=True)).clamp(min=1e-30)
        tau = tau + step.clamp(min=0)
        if float(step.max()) <= 1e-7:
            break
    made = (logits - tau).clamp(min=0) ** power
    made = made / made.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return made * weights.sum(dim=-1, keepdim=True)


def row_blocks(attention: Attention, block: int = BLOCK) -> Iterator[Rows]:
    """All rows of a layer, a block at a time, from the first query to the last."""
    batch, heads, queries, _ = attention.q.shape
    height = max(1, block // (batch * heads * attention.k.shape[2]))
    for start in range(0, queries, height):
        yield _rows(attention, start, min(start + height, queries))


def dropped_output(rows: Rows, weights: Tensor, v: Tensor) -> Tensor:
    """(batch, query, head, value width): what a block of rows puts out with these weights; v is that of the layer."""
    values = v[:, :, rows.keys].to(weights.dtype)  # (batch, kv_head, key, width)
    grouped = weights.unflatten(1, (values.shape[1], -1)).flatten(2, 3)  # (batch, kv_head, group x query, key)
    made = (grouped @ values).unflatten(2, (-1, weights.shape[2])).flatten(1, 2)
    return made.transpose(1, 2)


def _rows(attention: Attention, start: int, stop: int) -> Rows:
    mask = attention.mask
    low, high = mask.span(start, stop)
    part = AttentionMask(
        stop - start,
        high - low,
        mask.offset + start - low,
        mask.device,
        mask.window,
        None if mask.key_valid is None else mask.key_valid[:, low:high],
        None,
        None if mask.explicit is None else mask.explicit[:, :, start:stop, low:high],
    )
    cut = replace(attention, q=attention.q[:, :, start:stop], k=attention.k[:, :, low:high], mask=part, lse=None)
    own = torch.arange(start, stop, device=mask.device) + mask.offset
    return Rows(start, stop, low, mask.keys, cut.weights(), part.matrix(), own)
