"""What a mask of transformers means: for a layer an `AttentionMask`, for a forward pass a `ForwardContext`.

The mask of a layer is boolean (batch, 1, query, key), True = visible, or None for plain causal attention. It is parsed once
per forward pass: causality, a window and padding become a compact `AttentionMask`; anything else (packed texts, chunks, masks
that differ between heads) stays explicit. A mask that shows a query later tokens, or adds a bias to the logits, is refused:
the maps would be wrong. Everything is read from the mask itself, so nothing depends on how a family names its options.

Which tokens of a pass are real follows from the attention mask in the decoder's arguments, in any form transformers accepts,
or from `observe(valid=...)`; how many tokens came before follows from the KV cache. The layers' own masks do not show the
latter: a sliding-window layer forgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.core.errors import SeamError
from headwise.kernels.attention import AttentionMask
from headwise.seam.instrument import ForwardContext


def parse_mask(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> AttentionMask:
    """Which keys the queries of a layer may attend to, and which queries are real tokens."""
    if mask is None:
        # plain causal attention: the keys end at the last query, and no window is shorter than the keys
        return AttentionMask(queries, keys, keys - queries, device)
    mask = _boolean(mask)[..., :keys]
    offset = _offset(mask)
    visible = mask.any(dim=2).any(dim=1)  # (batch, key): keys that some query sees
    valid = None if bool(visible.all()) else visible
    real = _real_queries(mask, visible, offset)
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


def parse_row(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> AttentionMask | None:
    """The mask of a single query, taken as it is and without reading it; None where `parse_mask` has to read it.

    The query of a decode step is the last token, so its row can show it nothing later.
    """
    if queries != 1 or (mask is not None and (mask.dtype != torch.bool or mask.shape[1] != 1)):
        return None
    explicit = None if mask is None else mask[..., :keys]
    return AttentionMask(queries, keys, keys - queries, device, explicit=explicit)


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

    In such a cache no query sees anything after the last token, and a real token sees itself.
    """
    queries, keys = mask.shape[2:]
    if queries == keys:
        return 0
    index = torch.arange(keys, device=mask.device)
    last = torch.where(mask.any(dim=1).any(dim=0), index, -keys).amax(dim=1)  # (query,): the last key each one sees
    furthest = int((last - torch.arange(queries, device=mask.device)).max())
    return min(furthest, keys - queries) if furthest > -queries else keys - queries


def _reach(mask: Tensor, offset: int) -> int:
    """How many keys back the furthest-reaching query sees, itself included: the window, if there is one."""
    queries, keys = mask.shape[2:]
    rows = mask.any(dim=1).any(dim=0)  # (query, key)
    own = torch.arange(queries, device=mask.device) + offset
    first = torch.where(rows, torch.arange(keys, device=mask.device), own[:, None]).amin(dim=1)
    return max(1, int((own - first).max()) + 1)


def _real_queries(mask: Tensor, visible: Tensor, offset: int) -> Tensor | None:
    """(batch, query): the queries whose own token is visible to some query, unlike padding. None: all are real.

    In a mask where no token sees itself that would drop the last one: there, all that see anything are real.
    """
    queries, keys = mask.shape[2:]
    own = torch.arange(queries, device=mask.device) + offset
    inside = (own >= 0) & (own < keys)
    own = own.clamp(0, keys - 1)
    itself = mask[:, :, torch.arange(queries, device=mask.device), own].any(dim=1) & inside  # (batch, query)
    real = torch.where(itself.any(dim=1, keepdim=True), visible[:, own] & inside, mask.any(dim=3).any(dim=1))
    return None if bool(real.all()) else real


def forward_context(index: int, arguments: Mapping[str, Any], valid: Tensor | None) -> ForwardContext:
    """The context of one call of the decoder: its arguments by name, and `valid` as given to `observe`."""
    ids = arguments.get("input_ids")
    names = (
        "input_ids",
        "inputs_embeds",
        "hidden_states",
    )  # the last if the parent of the layers is not the whole decoder
    given = next((arguments[name] for name in names if isinstance(arguments.get(name), Tensor)), None)
    if given is None:
        raise SeamError("the decoder was called with neither input_ids nor inputs_embeds; give it one of them")
    batch, queries = given.shape[:2]
    cache = arguments.get("past_key_values")
    cached = 0 if cache is None else int(cache.get_seq_length())
    mask = arguments.get("attention_mask")
    if isinstance(mask, Mapping):  # `generate` may pass one for each kind of layer; the full one tells most
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    mask = mask if isinstance(mask, Tensor) else None
    real, before = _real_tokens(mask, batch, queries, cached, given.device)
    if valid is not None:
        real = real & _checked(valid, batch, queries, mask).to(given.device)
    return ForwardContext(index, ids if isinstance(ids, Tensor) else None, real, cached, before)


def _real_tokens(
    mask: Tensor | None, batch: int, queries: int, cached: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(batch, query) bool and (batch,) long: which tokens are real, and how many real ones came before."""
    if mask is not None and mask.ndim == 2:
        mask = mask.to(device).bool()
        here = mask[:, cached : cached + queries] if mask.shape[1] >= cached + queries else mask[:, -queries:]
        here = here.expand(batch, queries)
        if mask.shape[1] > queries:
            return here, mask[:, :cached].sum(dim=1).expand(batch)
        return here, torch.full((batch,), cached, device=device)
    before = torch.full((batch,), cached, device=device)
    if mask is None:
        return torch.ones(batch, queries, dtype=torch.bool, device=device), before
    mask = mask.to(device)
    parsed = parse_mask(mask, queries, mask.shape[-1], device)
    real = parsed.valid_queries(batch)
    if cached:
        first = real.int().argmax(dim=1, keepdim=True)
        before = parsed.n_visible_keys(batch)[:, 0].gather(1, first)[:, 0].long() - 1
    return real, before


def _checked(valid: Tensor, batch: int, queries: int, mask: Tensor | None) -> Tensor:
    if tuple(valid.shape) != (batch, queries):
        raise SeamError(
            f"valid is {' x '.join(map(str, valid.shape))} and the model was given {batch} x {queries} tokens; "
            "give one bool for every token of the batch"
        )
    valid = valid.bool()
    if mask is None and bool((valid[:, 1:] & ~valid[:, :-1]).any()):
        raise SeamError(
            "valid has padding before real tokens, and without an attention mask these would attend to it; "
            "pad on the right, or pass attention_mask to the model instead"
        )
    return valid
