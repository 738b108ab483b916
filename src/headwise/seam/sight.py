"""From the mask that transformers hands to a layer, to a `Visibility`.

transformers' masks are boolean (batch, 1, query, key), True = visible, or None where plain causal sight needs none.
A boolean mask is looked at once per forward pass: if it is causality, a window and padding, it becomes a compact
`Visibility`; otherwise it stays explicit. A mask that lets a query see the future, or that adds a bias to the logits,
is refused: Headwise would draw a wrong map of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import SeamError
from headwise.kernels import Visibility


def sight_of(mask: Tensor | None, queries: int, keys: int, window: int | None, device: torch.device) -> Visibility:
    """What the queries of this layer may see. `window` is the layer's sliding window, if it has one."""
    if mask is None:
        # None means plain causal sight: the keys end at the last query, and no window is shorter than the keys
        return Visibility(queries, keys, keys - queries, device)
    mask = _boolean(mask)[..., :keys]
    offset = _offset(mask, keys, queries)
    seen = mask.any(dim=2).any(dim=1)  # (batch, key): keys that some query sees
    valid = None if bool(seen.all()) else seen
    compact = Visibility(queries, keys, offset, device, key_valid=valid)
    for candidate in (compact, Visibility(queries, keys, offset, device, window=window, key_valid=valid)):
        if mask.shape[1] == 1 and torch.equal(candidate.matrix().expand_as(mask), mask):
            return candidate.with_queries(_real_queries(valid, queries, offset))
    explicit = Visibility(queries, keys, offset, device, mask=mask)
    if bool((mask & ~Visibility(queries, keys, offset, device).matrix()).any()):
        raise SeamError(
            "a layer's mask lets a token see later tokens; Headwise measures causal attention only: "
            "pass no custom mask, and no image or prefix tokens that attend to each other"
        )
    return explicit.with_queries(mask.any(dim=3).any(dim=1))


def _boolean(mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    if bool((mask[~hidden] != 0).any()):
        raise SeamError(
            "a layer adds a bias to its attention logits through the mask (ALiBi or a custom float mask), which the "
            "reductions would not see: pass a boolean mask, or use a model without such a bias"
        )
    return ~hidden


def _offset(mask: Tensor, keys: int, queries: int) -> int:
    """The key position of query 0: the last query that sees anything stands on the last key it sees."""
    rows = mask.any(dim=1).any(dim=0)  # (query, key)
    live = rows.any(dim=1).nonzero()
    if len(live) == 0:
        return keys - queries
    last = int(live[-1])
    return int(rows[last].nonzero()[-1]) - last


def _real_queries(key_valid: Tensor | None, queries: int, offset: int) -> Tensor | None:
    """(batch, query): the queries whose own token is not padding."""
    return None if key_valid is None else key_valid[:, offset : offset + queries]
