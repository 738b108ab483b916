"""From the mask that transformers hands to a layer, to a `AttentionMask`.

transformers' masks are boolean (batch, 1, query, key), True = visible, or None where plain causal sight needs none.
A boolean mask is looked at once per forward pass: if it is causality, a window and padding, it becomes a compact
`AttentionMask`; otherwise (packed texts, chunks, masks of a head's own) it stays explicit. A mask that lets a query see
the future, or that adds a bias to the logits, is refused: Headwise would draw a wrong map of it.

Everything is read off the mask itself, so nothing depends on how a family names its options.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.errors import SeamError
from headwise.kernels import AttentionMask


def parse_mask(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> AttentionMask:
    """What the queries of a layer may see, and which of them are real tokens."""
    if mask is None:
        # None means plain causal sight: the keys end at the last query, and no window is shorter than the keys
        return AttentionMask(queries, keys, keys - queries, device)
    mask = _boolean(mask)[..., :keys]
    offset = _offset(mask)
    seen = mask.any(dim=2).any(dim=1)  # (batch, key): keys that some query sees
    valid = None if bool(seen.all()) else seen
    real = _real_queries(mask, seen, offset)
    for window in (None, _reach(mask, offset)):
        compact = AttentionMask(queries, keys, offset, device, window, key_valid=valid)
        if mask.shape[1] == 1 and torch.equal(compact.matrix().expand_as(mask), mask):
            return compact.with_valid_queries(real)
    if bool((mask & ~AttentionMask(queries, keys, offset, device).matrix()).any()):
        raise SeamError(
            "a layer's mask lets a token see later tokens; Headwise measures causal attention only: "
            "pass no custom mask, and no image or prefix tokens that attend to each other"
        )
    return AttentionMask(queries, keys, offset, device, explicit=mask).with_valid_queries(real)


def _boolean(mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        raise SeamError(
            f"a mask of four dims holds {str(mask.dtype).removeprefix('torch.')} numbers, which the model would add to "
            "its logits; pass it as bool (True = visible), or a mask of two dims, (batch, token)"
        )
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    if bool((mask[~hidden] != 0).any()):
        raise SeamError(
            "a layer adds a bias to its attention logits through the mask (ALiBi or a custom float mask), which the "
            "reductions would not see: pass a boolean mask, or use a model without such a bias"
        )
    return ~hidden


def _offset(mask: Tensor) -> int:
    """The key position of query 0. The keys end at the last query, unless the cache is longer than its content.

    In such a cache nothing behind the last token is ever seen, and a real token sees itself.
    """
    queries, keys = mask.shape[2:]
    if queries == keys:
        return 0
    place = torch.arange(keys, device=mask.device)
    last = torch.where(mask.any(dim=1).any(dim=0), place, -keys).amax(dim=1)  # (query,): the last key each one sees
    furthest = int((last - torch.arange(queries, device=mask.device)).max())
    return min(furthest, keys - queries) if furthest > -queries else keys - queries


def _reach(mask: Tensor, offset: int) -> int:
    """How many keys back the furthest-looking query sees, itself included: the window, if there is one."""
    queries, keys = mask.shape[2:]
    rows = mask.any(dim=1).any(dim=0)  # (query, key)
    own = torch.arange(queries, device=mask.device) + offset
    first = torch.where(rows, torch.arange(keys, device=mask.device), own[:, None]).amin(dim=1)
    return max(1, int((own - first).max()) + 1)


def _real_queries(mask: Tensor, seen: Tensor, offset: int) -> Tensor | None:
    """(batch, query): the queries whose own token some query sees, which is not so for padding. None: all are real.

    In a mask where no token sees itself that would drop the last one: there, all that see anything are real.
    """
    queries, keys = mask.shape[2:]
    own = torch.arange(queries, device=mask.device) + offset
    inside = (own >= 0) & (own < keys)
    own = own.clamp(0, keys - 1)
    itself = mask[:, :, torch.arange(queries, device=mask.device), own].any(dim=1) & inside  # (batch, query)
    real = torch.where(itself.any(dim=1, keepdim=True), seen[:, own] & inside, mask.any(dim=3).any(dim=1))
    return None if bool(real.all()) else real
