"""Layers of attention made up of random queries and keys, in every shape a decoder makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.kernels import Attention, AttentionMask, Match, ReductionRequest


@dataclass(frozen=True)
class Setting:
    """One made-up layer."""

    batch: int = 2
    heads: int = 6
    kv_heads: int = 2
    width: int = 16
    queries: int = 40
    keys: int | None = None  # as many as queries
    window: int | None = None
    padding: str | None = None  # "left", "right"
    mask: str | None = None  # "shared", "per_head", "batched"
    softcap: float | None = None
    sinks: bool = False
    spread: float = 2.0  # standard deviation of the logits
    dtype: torch.dtype = torch.float32
    with_lse: bool = False
    seed: int = 0

    @property
    def all_keys(self) -> int:
        return self.queries if self.keys is None else self.keys


def attention_of(s: Setting) -> Attention:
    """The layer of a setting."""
    generator = torch.Generator().manual_seed(s.seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q = (random(s.batch, s.heads, s.queries, s.width) * s.spread**0.5).to(s.dtype)
    k = (random(s.batch, s.kv_heads, s.all_keys, s.width) * s.spread**0.5).to(s.dtype)
    attention = Attention(
        q, k, s.width**-0.5, visibility_of(s), softcap=s.softcap, sinks=random(s.heads) if s.sinks else None
    )
    return with_lse(attention) if s.with_lse else attention


def visibility_of(s: Setting) -> AttentionMask:
    """Who sees whom in a setting."""
    offset = s.all_keys - s.queries
    device = torch.device("cpu")
    key_valid = query_valid = None
    if s.padding is not None:
        lengths = torch.arange(s.batch) * (s.all_keys // (2 * s.batch))  # of padding; the first example has none
        place = torch.arange(s.all_keys)
        key_valid = place < s.all_keys - lengths[:, None] if s.padding == "right" else place >= lengths[:, None]
        query_valid = key_valid[:, offset:] if offset >= 0 else None
    sight = AttentionMask(s.queries, s.all_keys, offset, device, s.window, key_valid, query_valid)
    if s.mask is None:
        return sight
    generator = torch.Generator().manual_seed(s.seed + 1)
    shape = (s.batch if s.mask != "shared" else 1, s.heads if s.mask == "per_head" else 1, s.queries, s.all_keys)
    mask = sight.matrix() & (torch.rand(shape, generator=generator) < 0.6)
    own = (torch.arange(s.queries) + offset).clamp(0, s.all_keys - 1)
    mask[..., torch.arange(s.queries), own] |= sight.matrix()[..., torch.arange(s.queries), own]
    return AttentionMask(s.queries, s.all_keys, offset, device, query_valid=query_valid, explicit=mask)


def with_lse(attention: Attention) -> Attention:
    """The same layer, with the log-sum-exp that a forward kernel would have handed over in float32."""
    return replace(attention, lse=logits_of(attention).logsumexp(dim=-1).float())


def logits_of(attention: Attention) -> Tensor:
    """The logits in float64, -inf where hidden."""
    k = attention.k.double().repeat_interleave(attention.group, dim=1)
    logits = attention.q.double() @ k.transpose(-1, -2) * attention.scale
    if attention.softcap is not None:
        logits = (logits / attention.softcap).tanh() * attention.softcap
    return logits.masked_fill(~attention.mask.matrix(), -torch.inf)


def condition_of(attention: Attention) -> float:
    """The largest number that a weight is the exponential of: see `closeness`."""
    logits = logits_of(attention)
    largest = torch.cat([logits.flatten(), logits.logsumexp(dim=-1).flatten()])
    return float(largest[largest.isfinite()].abs().max())


def everything(attention: Attention, *, top: int = 5, seed: int = 3) -> ReductionRequest:
    """A request for every reduction, several of each kind."""
    batch, _, queries, _ = attention.q.shape
    keys, offset = attention.k.shape[2], attention.mask.offset
    generator = torch.Generator().manual_seed(seed)

    def numbers(high: int, shape: tuple[int, int]) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    def match(ids: int) -> Match:
        return Match(numbers(ids, (batch, queries)) - 1, numbers(ids, (batch, keys)) - 1)

    return ReductionRequest(
        column_sums=True,
        log_diagonal=True,
        entropy=True,
        distance=True,
        row_max=True,
        top=top,
        offsets=frozenset([(0, 1), (1, 2), (2, 9), (0, 10**6), (max(1, offset), offset + 3)]),
        count_above=frozenset([0.0, 0.001, 0.05, 0.5, 0.999]),
        query_weights={"weighted": torch.rand(batch, queries, generator=generator), "shared": torch.ones(1, queries)},
        key_weights={
            "some": (torch.rand(batch, keys, generator=generator) < 0.3).float(),
            "chosen": torch.rand(batch, keys, generator=generator) < 0.2,
        },
        token_matches={"many": match(4), "few": match(40), "none": match(1)},
    )
