"""What a forward pass is about, read from the arguments of the decoder's call before its first layer runs.

Which tokens are real is told by the attention mask, in any form that transformers takes, or by `observe(valid=...)`;
how many went before, by the cache. The layers' own masks cannot tell the second: a sliding-window layer forgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.core.errors import SeamError
from headwise.seam.attention_call import ForwardContext
from headwise.seam.mask import parse_mask


def forward_context(index: int, arguments: Mapping[str, Any], valid: Tensor | None) -> ForwardContext:
    """The context of one call. `arguments` by name; `valid` as the caller of `observe` gave it."""
    ids = arguments.get("input_ids")
    names = (
        "input_ids",
        "inputs_embeds",
        "hidden_states",
    )  # the last where the layers' parent is not the whole decoder
    given = next((arguments[name] for name in names if isinstance(arguments.get(name), Tensor)), None)
    if given is None:
        raise SeamError("the decoder was called with neither input_ids nor inputs_embeds; give it one of them")
    batch, queries = given.shape[:2]
    cache = arguments.get("past_key_values")
    cached = 0 if cache is None else int(cache.get_seq_length())
    mask = _one_mask(arguments.get("attention_mask"))
    real, before = _told_by(mask, batch, queries, cached, given.device)
    if valid is not None:
        real = real & _checked(valid, batch, queries, mask).to(given.device)
    return ForwardContext(index, ids if isinstance(ids, Tensor) else None, real, cached, before)


def _one_mask(mask: Any) -> Tensor | None:
    """The mask that tells most. `generate` may hand over one for each kind of layer."""
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    return mask if isinstance(mask, Tensor) else None


def _told_by(mask: Tensor | None, batch: int, queries: int, cached: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(batch, query) bool and (batch,) long: which tokens are real, and how many were so before them."""
    real = torch.ones(batch, queries, dtype=torch.bool, device=device)
    before = torch.full((batch,), cached, device=device)
    if mask is None:
        return real, before
    mask = mask.to(device)
    if mask.ndim == 2:
        mask = mask.bool()
        here = mask[:, cached : cached + queries] if mask.shape[1] >= cached + queries else mask[:, -queries:]
        return real & here, mask[:, :cached].sum(dim=1).expand(batch) if mask.shape[1] > queries else before
    sight = parse_mask(mask, queries, mask.shape[-1], device)
    real = sight.valid_queries(batch)
    if cached:
        first = real.int().argmax(dim=1, keepdim=True)
        before = sight.n_visible_keys(batch)[:, 0].gather(1, first)[:, 0].long() - 1
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
