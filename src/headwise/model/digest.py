"""Digests of a model's weights and tokenizer, and a check that all weights are finite.

A digest covers the name, shape and dtype of every parameter and persistent buffer, the rotary settings, and the raw bytes
of up to 1024 entries of each tensor: milliseconds for any size, the same on every device. A fine-tune or a merged adapter
changes nearly every entry of the matrices it touches, so it is detected; an edit of a few entries may not be.

Non-persistent buffers (rotary frequencies) are computed on the device and differ in the last bit between devices, so the
settings they are computed from are digested instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import ModelError
from headwise.model.offload import is_offloaded, load_parameter, tied_parameters
from headwise.model.packed import is_packed, some_rows

SAMPLE = 1024  # entries per tensor that are digested


def weights_digest(model: Any) -> str:
    """32 hexadecimal digits; ``model`` is a ``transformers`` model or a `Model`."""
    hf = getattr(model, "hf", model)
    return tensors_digest(named_weights(hf), getattr(hf, "config", None))


def tensors_digest(tensors: Iterable[tuple[str, Tensor]], config: Any, dtype: torch.dtype | None = None) -> str:
    """The digest of named tensors, optionally cast to `dtype`, and of the config's rotary settings."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in tensors:
        cast = dtype if dtype is not None and value.is_floating_point() else value.dtype
        digest.update(f"{name} {tuple(value.shape)} {cast}\n".encode())
        digest.update(_sample(value, cast))
    rotary = getattr(config.get_text_config(), "rope_parameters", None) if config is not None else None
    digest.update(json.dumps(rotary, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str | None:
    """The digest of everything that maps a text to ids; ``None`` without a tokenizer."""
    if tokenizer is None:
        return None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = tokenizer.get_vocab()
    else:
        rules = json.loads(backend.to_str())
        rules.pop("padding", None)  # state of the last call, not part of the tokenizer
        rules.pop("truncation", None)
    parts = [rules, getattr(tokenizer, "special_tokens_map", None), getattr(tokenizer, "chat_template", None)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_finite(model: Any) -> None:
    """Raise for the first weight with NaN or infinite entries. One pass over all weights."""
    for name, value in named_weights(getattr(model, "hf", model)):
        value = value.float() if value.is_floating_point() and value.element_size() == 1 else value  # float8 has no sum
        if not value.is_floating_point() or torch.isfinite(value.sum(dtype=torch.float32)):
            continue
        bad = int((~torch.isfinite(value)).sum())  # counted, because a sum of large finite entries may overflow
        if bad:
            raise ModelError(
                f"{bad} of the {value.numel()} entries of {name} are NaN or infinite, so no measurement would be "
                "meaningful; load an undamaged copy, or a dtype with a larger range."
            )


def named_weights(hf: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers, sorted by name, tied ones once; offloaded ones are loaded one at a time.

    Of a quantised layer, a few rows of the matrix that it multiplies by: libraries pack the same numbers in several formats,
    and some change the format when the layer is first called.
    """
    found: dict[str, tuple[nn.Module, str]] = {}
    packed: dict[str, Tensor] = {}
    offloaded = is_offloaded(hf)
    tied, seen = tied_parameters(hf) if offloaded else {}, set[int | str]()
    for prefix, module in sorted(hf.named_modules(), key=lambda pair: pair[0]):
        if is_packed(module):
            packed[f"{prefix}.weight"] = some_rows(module)
            continue
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            full = f"{prefix}.{name}".lstrip(".")
            known = tied.get(full, full) if offloaded else id(value)
            if value is None or known in seen or name in module._non_persistent_buffers_set:
                continue
            seen.add(known)
            found[full] = module, name
    for full in sorted([*found, *packed]):
        if full in packed:
            yield full, packed[full]
        else:
            module, name = found[full]
            yield full, load_parameter(module, name) if offloaded else getattr(module, name)


@torch.no_grad()
def _sample(value: Tensor, dtype: torch.dtype | None = None) -> bytes:
    if value.is_meta:
        raise ModelError("This model has shapes but no weights (it is on the 'meta' device); load it with its weights.")
    flat = value.detach().reshape(-1)
    step = -(-flat.numel() // SAMPLE) | 1  # odd, else all entries would come from a few columns of a matrix
    return flat[::step][:SAMPLE].cpu().to(dtype or value.dtype).contiguous().view(torch.uint8).numpy().tobytes()
