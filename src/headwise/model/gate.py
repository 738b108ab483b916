"""Sparse models: a model whose attention cuts every edge with a logit not above a bar (see `kernels.gated`).

Nothing is added to the model but a flag in its config, ``attention_gate`` (the bias b; 0 for a trained one), which
``save_pretrained`` keeps, and the route: its attention goes through the function registered here under ``headwise_gated``.
With an adapter the flag lies beside it, in ``headwise_gate.json``, with the model it was trained on.

In training the gates are noisy and their expected number is wanted from every layer: `training` says so for the length
of a ``with``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.utils import cached_file

from headwise.core.errors import ModelError
from headwise.kernels import Attention, AttentionMask
from headwise.kernels.gated import gated

__all__ = ["FILE", "Training", "attend_gated", "gate_note", "gate_of", "put_gate", "register", "training", "write_gate"]

NAME = "headwise_gated"
FLAG = "attention_gate"
FILE = "headwise_gate.json"


@dataclass
class Training:
    """A training pass: the bias now, the seed of its noise (None: hard gates), and what the layers hand over."""

    bias: float
    seed: int | None
    expected: list[Tensor] = field(default_factory=list)  # a layer each: (batch, head)
    opened: list[Tensor] = field(default_factory=list)


_TRAINING: ContextVar[Training | None] = ContextVar("headwise_gate_training", default=None)


@contextmanager
def training(bias: float, seed: int | None) -> Iterator[Training]:
    """Passes with these gates instead of the model's own hard ones; gradients go through the gates."""
    session = Training(bias, seed)
    token = _TRAINING.set(session)
    try:
        yield session
    finally:
        _TRAINING.reset(token)


def gate_of(module: nn.Module) -> float | None:
    """The bias of a model's, or one of its attention modules', gates; None: it is dense."""
    found = getattr(getattr(module, "config", None), FLAG, None)
    return None if found is None else float(found)


def register() -> str:
    """Make the gated attention known to transformers; gives its name."""
    AttentionInterface.register(NAME, attend_gated)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def put_gate(hf: nn.Module, bias: float = 0.0) -> None:
    """Make a model's attention gated, in place."""
    register()
    configs: dict[int, Any] = {id(m.config): m.config for m in hf.modules() if hasattr(m, "config")}
    for config in configs.values():
        if hasattr(config, "_attn_implementation"):
            setattr(config, FLAG, float(bias))
            config._attn_implementation_internal = NAME


def attend_gated(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The registered attention function of a sparse model."""
    if s_aux is not None:
        raise ModelError("This family's attention has learned sinks, which gates are not defined for; use another.")
    session = _TRAINING.get()
    bias = gate_of(module) if session is None else session.bias
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask > torch.finfo(attention_mask.dtype).min / 2
    mask = AttentionMask(queries, keys, keys - queries, query.device, explicit=attention_mask)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    attention = Attention(query, key, scale, mask, softcap, gate=bias)
    found = gated(attention, value, noise=_seed(session), straight=session is not None)
    if session is not None:
        session.expected.append(found.expected)
        session.opened.append(found.opened)
    return found.y, None


def _seed(session: Training | None) -> int | None:
    """Each layer of a pass has noise of its own."""
    return None if session is None or session.seed is None else session.seed * 1009 + len(session.expected)


def gate_note(adapter: str | Path, finding: dict[str, Any]) -> dict[str, Any] | None:
    """What an adapter's gate file says (the bias, the model it was trained on, ...), in its folder or on the hub; or None."""
    file = cached_file(
        str(adapter), FILE, _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False, **finding,
    )  # fmt: skip
    if file is None:
        return None
    try:
        note = json.loads(Path(file).read_text(encoding="utf-8"))
        return {**note, "bias": float(note["bias"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{file} is damaged ({error}); take the adapter's folder anew.") from error


def write_gate(folder: str | Path, bias: float, **about: Any) -> None:
    """Put the gate file beside an adapter."""
    (Path(folder) / FILE).write_text(json.dumps({"bias": bias, **about}, indent=2) + "\n", encoding="utf-8")
