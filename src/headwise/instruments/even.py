"""The head that looks evenly at all it can see: the level against which a raw number about a head means something.

It goes through the same kernels, on the same tokens, with all logits nought: so a mask, a window or padding tells on it
as it tells on a real head.
"""

from __future__ import annotations

import torch

from headwise.kernels import Attention, AttentionMask, ReductionRequest, Reductions, reduce


def even_head(mask: AttentionMask, batch: int, wanted: ReductionRequest) -> Reductions:
    """The reductions of one head that spreads its attention evenly."""
    q = torch.zeros(batch, 1, mask.queries, 1, device=mask.device)
    k = torch.zeros(batch, 1, mask.keys, 1, device=mask.device)
    return reduce(Attention(q, k, 1.0, mask), wanted)
