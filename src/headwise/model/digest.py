"""Tells whether two models have the same weights, and whether a model's weights are numbers at all.

A digest covers the name, shape and dtype of every parameter and saved buffer, the rotary settings, and the raw bytes of
up to 1024 entries spread over each tensor: milliseconds for any size, the same on every device. A fine-tune or a merged
adapter moves nearly every entry of the matrices it touches, so it is noticed; an edit of a few single entries of one
matrix may not be.

Buffers that are not saved (rotary frequencies) are made from the config on the device, and differ in the last bit
between devices; the settings they come from stand in for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import ModelError
from headwise.model.offload import is_offloaded, tied_names, values_of

__all__ = ["check_finite", "named_weights", "tensors_digest", "tokenizer_digest", "weights_digest"]

SAMPLE = 1024  # entries of a tensor that are looked at


def weights_digest(model: Any) -> str:
    """32 hexadecimal digits; ``model`` is a ``transformers`` model, or what ``load`` returned."""
    hf = getattr(model, "hf", model)
    return tensors_digest(named_weights(hf), getattr(hf, "config", None))


def tensors_digest(tensors: Iterable[tuple[str, Tensor]], config: Any, dtype: torch.dtype | None = None) -> str:
    """Of named tensors, as they are or as they would be once cast; with the rotary settings of the config."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in tensors:
        cast = dtype if dtype is not None and value.is_floating_point() else value.dtype
        digest.update(f"{name} {tuple(value.shape)} {cast}\n".encode())
        digest.update(_sample(value, cast))
    rotary = getattr(config.get_text_config(), "rope_parameters", None) if config is not None else None
    digest.update(json.dumps(rotary, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str | None:
    """Of what decides which ids a text becomes; ``None`` without a tokenizer."""
    if tokenizer is None:
        return None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = tokenizer.get_vocab()
    else:
        rules = json.loads(backend.to_str())
        rules.pop("padding", None)  # left over from the last call, not part of the tokenizer
        rules.pop("truncation", None)
    whole = [rules, getattr(tokenizer, "special_tokens_map", None), getattr(tokenizer, "chat_template", None)]
    text = json.dumps(whole, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_finite(model: Any) -> None:
    """Raises where a weight is NaN or infinite, and names it. One pass over all weights."""
    for name, value in named_weights(getattr(model, "hf", model)):
        value = value.float() if value.is_floating_point() and value.element_size() == 1 else value  # float8 has no sum
        if not value.is_floating_point() or torch.isfinite(value.sum(dtype=torch.float32)):
            continue
        bad = int((~torch.isfinite(value)).sum())  # a sum of huge but finite entries may overflow, so they are counted
        if bad:
            raise ModelError(
                f"{bad} of the {value.numel()} entries of {name} are NaN or infinite, so nothing measured on it would "
                "mean anything; load an undamaged copy, or a dtype with a larger range."
            )


def named_weights(hf: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and saved buffers with their names, tied ones once, in the order of their names.

    Offloaded ones are read one at a time.
    """
    found: dict[str, tuple[nn.Module, str]] = {}
    offloaded = is_offloaded(hf)
    tied, seen = tied_names(hf) if offloaded else {}, set[int | str]()
    for prefix, module in sorted(hf.named_modules(), key=lambda pair: pair[0]):
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            full = f"{prefix}.{name}".lstrip(".")
            known = tied.get(full, full) if offloaded else id(value)
            if value is None or known in seen or name in module._non_persistent_buffers_set:
                continue
            seen.add(known)
            found[full] = module, name
    for full, (module, name) in sorted(found.items()):
        yield full, values_of(module, name) if offloaded else getattr(module, name)


@torch.no_grad()
def _sample(value: Tensor, dtype: torch.dtype | None = None) -> bytes:
    if value.is_meta:
        raise ModelError("This model has shapes but no weights (it is on the 'meta' device); load it with its weights.")
    flat = value.detach().reshape(-1)
    step = -(-flat.numel() // SAMPLE) | 1  # odd, or all entries would come from a few columns of a matrix
    return flat[::step][:SAMPLE].cpu().to(dtype or value.dtype).contiguous().view(torch.uint8).numpy().tobytes()
