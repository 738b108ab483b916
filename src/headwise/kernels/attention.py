"""Everything that fixes a layer's attention weights, without the weights themselves.

    logits  s_ij = scale * q_i . k_j,  then  softcap * tanh(s_ij / softcap)  where the family caps
    weights a_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij))  over the keys j that query i may see

The learned sink logit is there in a few families only (gpt-oss); with it the weights of a row sum to less than 1.
Keys and values have ``kv_heads`` heads; query head h reads kv head ``h // group``.

This module knows no model and no mask tensor of transformers: what is visible comes as a `Visibility`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.kernels.visibility import Visibility


@dataclass(frozen=True)
class Attention:
    """One layer's attention, ready to be reduced. Nothing in it is larger than q or k, save an explicit mask."""

    q: Tensor  # (batch, head, query, width), after rotation
    k: Tensor  # (batch, kv_head, key, width)
    scale: float
    visibility: Visibility
    softcap: float | None = None
    sinks: Tensor | None = None  # (head,) learned sink logits
    lse: Tensor | None = None  # (batch, head, query) log-sum-exp of the logits, where the forward kernel returned it

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.q.shape[1] // self.k.shape[1]

    def weights(self, rows: slice = slice(None), dtype: torch.dtype = torch.float32) -> Tensor:
        """The weights of some query rows, (batch, head, query, key): rows x keys of memory a head. Padded rows are 0."""
        group, keys = self.group, self.k.shape[2]
        q = self.q[:, :, rows].to(dtype)
        k = self.k.to(dtype).repeat_interleave(group, dim=1)
        logits = q @ k.transpose(-1, -2) * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        seen = self.visibility.matrix()[:, :, rows]  # (batch or 1, 1 or head, query, key)
        logits = logits.masked_fill(~seen, -torch.inf)
        if self.sinks is not None:
            sink = self.sinks.to(dtype).view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
            logits = torch.cat([logits, sink], dim=-1)
        return logits.softmax(dim=-1)[..., :keys].nan_to_num(0.0) * seen.any(dim=-1, keepdim=True)
