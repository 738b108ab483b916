"""Everything that fixes a layer's attention weights, without the weights themselves.

    logits  s_ij = scale * q_i . k_j,  then  softcap * tanh(s_ij / softcap)  where the family caps
    weights a_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij))  over the keys j that query i may see

The learned sink logit is there in a few families only (gpt-oss); with it the weights of a row sum to less than 1. In a
sparse model (see `gated`) edges with s_ij + gate <= 0 are cut, and their weight is 0.
Keys and values have ``kv_heads`` heads; query head h reads kv head ``h // group``.

This module knows no model and no mask tensor of transformers: what is visible comes as a `AttentionMask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.kernels.mask import AttentionMask


@dataclass(frozen=True)
class Attention:
    """One layer's attention, ready to be reduced. Nothing in it is larger than q or k, save an explicit mask."""

    q: Tensor  # (batch, head, query, width), after rotation
    k: Tensor  # (batch, kv_head, key, width)
    scale: float
    mask: AttentionMask
    softcap: float | None = None
    sinks: Tensor | None = None  # (head,) learned sink logits
    lse: Tensor | None = None  # (batch, head, query) log-sum-exp of the visible logits, without the sink, where known
    gate: float | None = None  # the bias of a sparse model's gates; None: a dense model

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.q.shape[1] // self.k.shape[1]

    def weights(self, heads: Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """The whole map of some heads, (batch, head, query, key); rows that see nothing are 0.

        Memory: queries x keys numbers a head, several times over.
        """
        keys = self.k.shape[2]
        chosen = torch.arange(self.q.shape[1]) if heads is None else torch.tensor(list(heads))
        q = self.q[:, chosen].to(dtype)
        k = self.k[:, chosen // self.group].to(dtype)
        logits = q @ k.transpose(-1, -2) * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        seen = self.mask.matrix()  # (batch or 1, 1 or head, query, key)
        if seen.shape[1] > 1:
            seen = seen[:, chosen]
        logits = logits.masked_fill(~seen, -torch.inf)
        is_open = None if self.gate is None else logits + self.gate > 0
        if self.sinks is not None:
            sink = self.sinks[chosen].to(dtype).view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
            logits = torch.cat([logits, sink], dim=-1)
        weights = logits.softmax(dim=-1)[..., :keys].nan_to_num(0.0) * seen.any(dim=-1, keepdim=True)
        return weights if is_open is None else weights * is_open
