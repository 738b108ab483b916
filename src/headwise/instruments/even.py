"""The head that looks evenly at all it can see: the level against which a raw number about a head means something.

It goes through the same kernels, on the same tokens, with all logits nought: so a mask, a window or padding tells on it
as it tells on a real head.
"""

from __future__ import annotations

import torch

from headwise.kernels import Attention, Reductions, Visibility, Wanted, reduce


def even_head(sight: Visibility, batch: int, wanted: Wanted) -> Reductions:
    """The reductions of one head that spreads its attention evenly."""
    q = torch.zeros(batch, 1, sight.queries, 1, device=sight.device)
    k = torch.zeros(batch, 1, sight.keys, 1, device=sight.device)
    return reduce(Attention(q, k, 1.0, sight), wanted)
