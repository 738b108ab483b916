"""Sparse models: attention whose gates close every edge with a logit below a threshold (see `kernels.gated`).

A sparse model differs from a dense one in a flag of its config, ``attention_gate`` (the bias b; 0 for a trained one), which
``save_pretrained`` stores, and in its attention function, registered here as ``headwise_gated``. With an adapter the flag
is in ``headwise_gate.json`` next to it, together with the base model.

The gate is a property of the model and not of an observation: a sparse model answers the same whether or not the seam is
attached, so `load` registers its attention, and the seam (`seam.outputs`) calls `attend_gated` where it observes one.

In training the gates are noisy, and every layer reports their expected number: inside ``with training(...)``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.utils import cached_file

from headwise.core.errors import ModelError
from headwise.core.files import write_output
from headwise.core.parsing import Finite, parse
from headwise.kernels.attention import Attention, AttentionMask
from headwise.kernels.gated import gated

NAME = "headwise_gated"
FLAG = "attention_gate"
FILE = "headwise_gate.json"


@dataclass
class Training:
    """A training pass: the current bias, the seed of its noise (None: hard gates), and the layers' reports."""

    bias: float
    seed: int | None
    expected: list[Tensor] = field(default_factory=list)  # open gates, per layer: (batch, head)
    opened: list[Tensor] = field(default_factory=list)


_TRAINING: ContextVar[Training | None] = ContextVar("headwise_gate_training", default=None)


@contextmanager
def training(bias: float, seed: int | None) -> Iterator[Training]:
    """Run forward passes with these gates instead of the model's own hard ones; gradients flow through the gates."""
    session = Training(bias, seed)
    token = _TRAINING.set(session)
    try:
        yield session
    finally:
        _TRAINING.reset(token)


def gate_of(module: nn.Module) -> float | None:
    """The bias of the gates of a model, or of one of its attention modules; None: it is dense."""
    found = getattr(getattr(module, "config", None), FLAG, None)
    return None if found is None else float(found)


def register() -> str:
    """Register the gated attention with transformers; returns its name."""
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
        raise ModelError("This family's attention has learned sinks, for which gates are not defined; use another.")
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
    """A separate seed per layer of a pass."""
    return None if session is None or session.seed is None else session.seed * 1009 + len(session.expected)


class GateNote(msgspec.Struct):
    """What is read of an adapter's gate file."""

    bias: Finite
    model: str | None = None  # the base model it was trained on, and the digest of that model's weights
    digest: str | None = None


def gate_note(adapter: str | Path, hub: dict[str, Any]) -> GateNote | None:
    """An adapter's gate file (bias, base model, ...), in its folder or on the hub; None if there is none."""
    file = cached_file(
        str(adapter), FILE, _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False, **hub,
    )  # fmt: skip
    if file is None:
        return None
    try:
        return parse(Path(file).read_bytes(), GateNote)
    except ValueError as error:
        raise ModelError(f"{file} is damaged ({error}); copy or download the adapter again.") from error


def write_gate(folder: str | Path, bias: float, **about: Any) -> None:
    """Write the gate file next to an adapter."""
    write_output(Path(folder) / FILE, json.dumps({"bias": bias, **about}, indent=2) + "\n")
