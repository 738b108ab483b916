"""The one place where Headwise meets transformers' attention.

transformers looks up its attention function by name in `AttentionInterface`, and its mask function under the same name in
`AttentionMaskInterface` (without the second, causality is silently lost). The name ``headwise`` is registered for both; the
mask is SDPA's. The attention function passes each layer to the observer of this context (`CURRENT`); without one it is
plain SDPA.

`trace_until` runs a forward pass under a `ForwardTracer`, which may stop it early: how a layer is built shows while it runs,
long before a pass ends, and the weights of later layers need not even be loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise.seam.outputs import attention_output

NAME = "headwise"


class Observer(Protocol):
    """What the interface needs from an observed forward pass."""

    def layer_of(self, module: nn.Module) -> int | None: ...

    def attend(
        self,
        layer: int,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        options: dict[str, Any],
    ) -> Tensor: ...


CURRENT: ContextVar[Observer | None] = ContextVar("headwise_observer", default=None)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The registered attention function: z of shape (batch, query, head, width), and no weights."""
    observer = CURRENT.get()
    layer = observer.layer_of(module) if observer is not None else None
    if observer is None or layer is None:
        scale = options.pop("scaling", None)
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        return attention_output(module, query, key, value, attention_mask, scale, options)[0], None
    return observer.attend(layer, module, query, key, value, attention_mask, options), None


@contextmanager
def routed(model: nn.Module, name: str) -> Iterator[None]:
    """Route the attention of a model through a named function within a `with`, and restore the previous one after it."""
    configs: dict[int, Any] = {id(m.config): m.config for m in model.modules() if "config" in vars(m)}
    before = [(c, c._attn_implementation) for c in configs.values() if hasattr(c, "_attn_implementation")]
    try:
        for config, _ in before:
            config._attn_implementation_internal = name  # the public setter would overwrite sub-configs as well
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextmanager
def installed(model: nn.Module) -> Iterator[None]:
    """Route the attention of a model through `attend`."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    with routed(model, NAME):
        yield


class StopForward(Exception):  # noqa: N818 - not an error: ends a forward pass that has shown enough
    """Raised by a `ForwardTracer` or its hooks."""


class ForwardTracer(ABC):
    """An observer at the attention of every layer; it takes all of them for layer 0."""

    def layer_of(self, module: nn.Module) -> int:
        return 0

    @abstractmethod
    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        """z, (batch, query, head, value width)."""


def trace_until(hf: nn.Module, tracer: ForwardTracer, run: Callable[[], object]) -> bool:
    """Run a forward pass under the tracer; whether it was stopped before its end."""
    token = CURRENT.set(tracer)
    try:
        with installed(hf):
            run()
    except StopForward:
        return True
    finally:
        CURRENT.reset(token)
    return False
