"""Leave out attention weights, as a sparse attention kernel would: the rules, and the z they give, block by block.

With p the weights of one row over its visible keys,

    top(k)         retains the k largest (and all that equal the k-th)
    over(t)        retains those above t, and always the largest of a row
    window(w, s)   retains the last w keys of the row, itself included, and the first s keys of the text
    entmax(a)      p' = [(a - 1) log p - tau]_+^(1 / (a - 1)), tau such that p' sums to 1: softmax at a = 1, sparser above
    random(k)      retains k random keys: the control for top(k)

Retained weights are scaled so that a row keeps its sum, or left unchanged (`renormalise=False`); entmax always keeps the sum
of the row. Its tau is found by Newton's method: the sum is convex and decreasing in tau, so that steps from the left never
overshoot, and it converges to rounding. (Peters et al. 2019, arXiv 1905.05702; entmax of log p is that of the logits, which
differ from log p by a constant per row.)

A block holds at most `BLOCK` numbers, so no T x T map of a batch is ever held. Cost: one QK^T product, the rule (top and
random sort a row; entmax takes about ten passes over it) and one product with v.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.core.errors import StudyError, did_you_mean
from headwise.kernels.attention import Attention, AttentionMask

__all__ = ["KINDS", "RowBlock", "SparsityRule", "row_blocks", "sparse_output"]

BLOCK = 4_000_000  # numbers per block
KINDS = ("top", "over", "window", "entmax", "random")
MAX_NEWTON_STEPS = 60  # about ten suffice


@dataclass(frozen=True)
class SparsityRule:
    """A rule that leaves out attention weights.

    Examples:
        >>> SparsityRule("window", 16, sink=4).name
        'window 16 + 4'
    """

    kind: str  # top, over, window, entmax or random
    amount: float  # its k, t, w or a
    sink: int = 0  # keys at the beginning of the text that a window retains
    renormalise: bool = True  # scale retained weights so that a row keeps its sum
    seed: int = 0  # of random

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StudyError(f"{self.kind!r} is no way to drop attention weights. {did_you_mean(self.kind, KINDS)}")
        whole = self.kind in ("top", "window", "random")
        fits = {"over": 0 <= self.amount < 1, "entmax": 1 < self.amount <= 2}.get(self.kind, self.amount >= 1)
        if not fits or (whole and self.amount != int(self.amount)) or self.sink < 0:
            allowed = {"over": "at least 0, below 1", "entmax": "over 1, at most 2"}.get(
                self.kind, "a whole number, at least 1"
            )
            raise StudyError(f"{self.kind} was asked for with {self.amount:g} (sink {self.sink}); give {allowed}")

    @property
    def name(self) -> str:
        """Such as "top 8" or "window 16 + 4"."""
        return f"{self.kind} {self.amount:g}" + (f" + {self.sink}" if self.sink else "")

    def apply(self, rows: RowBlock) -> Tensor:
        """New weights of a block of rows, (batch, head, query, key)."""
        weights = rows.weights
        if self.kind == "entmax":
            return entmax(weights, self.amount)
        retained = weights.masked_fill(~self._is_retained(rows), 0.0)
        if not self.renormalise:
            return retained
        sums = retained.sum(dim=-1, keepdim=True)
        return torch.where(sums > 0, retained * (weights.sum(dim=-1, keepdim=True) / sums.clamp(min=1e-30)), retained)

    def _is_retained(self, rows: RowBlock) -> Tensor:
        weights, amount = rows.weights, int(self.amount)
        if self.kind == "over":
            return (weights > self.amount) | (weights >= weights.amax(dim=-1, keepdim=True))
        if self.kind == "window":
            key = torch.arange(rows.low, rows.low + weights.shape[-1], device=weights.device)
            return (rows.own[:, None] - key < amount) | (key < self.sink)
        order = weights
        if self.kind == "random":
            order = self._drawn(rows).masked_fill(~rows.visible, -1.0)
        if amount >= weights.shape[-1]:
            return torch.ones_like(weights, dtype=torch.bool)
        return order >= order.topk(amount, dim=-1).values[..., -1:]

    def _drawn(self, rows: RowBlock) -> Tensor:
        """Random numbers of a block's shape that depend on the row and not on the block."""
        batch, heads = rows.weights.shape[:2]
        drawn = []
        for row in range(rows.start, rows.stop):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + row)
            drawn.append(torch.rand(batch, heads, rows.of, generator=generator)[..., rows.keys])
        return torch.stack(drawn, dim=2).to(rows.weights)


@dataclass(frozen=True)
class RowBlock:
    """A block of rows of a layer's weights; its keys begin at `low`, and the layer has `of` keys."""

    start: int
    stop: int
    low: int
    of: int
    weights: Tensor  # (batch, head, query, key)
    visible: Tensor  # (batch or 1, 1 or head, query, key) bool
    own: Tensor  # (query,): the key of each query's own token

    @property
    def keys(self) -> slice:
        """Their range among the keys of the layer."""
        return slice(self.low, self.low + self.weights.shape[-1])


def entmax(weights: Tensor, alpha: float) -> Tensor:
    """Entmax of the logits whose softmax these weights are; a row keeps its sum, and zeros stay 0."""
    power = 1 / (alpha - 1)
    logits = weights.log() / power  # (alpha - 1) log p; -inf where the weight is 0
    logits = logits - logits.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).min)
    tau = torch.full_like(logits[..., :1], -1.0)  # here the largest alone gives 1
    for _ in range(MAX_NEWTON_STEPS):
        over = (logits - tau).clamp(min=0)
        high = over ** (power - 1) if power != 1 else (over > 0).to(over.dtype)
        excess = (high * over).sum(dim=-1, keepdim=True) - 1
        step = excess / (power * high.sum(dim=-1, keepdim=True)).clamp(min=1e-30)
        tau = tau + step.clamp(min=0)
        if float(step.max()) <= 1e-7:
            break
    result = (logits - tau).clamp(min=0) ** power
    result = result / result.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return result * weights.sum(dim=-1, keepdim=True)


def row_blocks(attention: Attention, block: int = BLOCK) -> Iterator[RowBlock]:
    """All rows of a layer, a block at a time, from the first query to the last."""
    batch, heads, queries, _ = attention.q.shape
    height = max(1, block // (batch * heads * attention.k.shape[2]))
    for start in range(0, queries, height):
        yield _rows(attention, start, min(start + height, queries))


def sparse_output(rows: RowBlock, weights: Tensor, v: Tensor) -> Tensor:
    """(batch, query, head, value width): the output of a block of rows with these weights; v is that of the layer."""
    values = v[:, :, rows.keys].to(weights.dtype)  # (batch, kv_head, key, width)
    grouped = weights.unflatten(1, (values.shape[1], -1)).flatten(2, 3)  # (batch, kv_head, group x query, key)
    z = (grouped @ values).unflatten(2, (-1, weights.shape[2])).flatten(1, 2)
    return z.transpose(1, 2)


def _rows(attention: Attention, start: int, stop: int) -> RowBlock:
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
    return RowBlock(start, stop, low, mask.keys, cut.weights(), part.matrix(), own)
