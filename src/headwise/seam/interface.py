"""The one place where Headwise meets transformers' attention.

transformers looks its attention function up by name, in `AttentionInterface`, and its mask function under the same
name in `AttentionMaskInterface` (without the second, causality is silently lost). We register the name ``headwise``
for both. The mask is SDPA's own. The function asks which forward pass is being observed in this context: outside of any
it is plain SDPA; inside one it hands over the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise.seam.outputs import attention_output

NAME = "headwise"


class Observer(Protocol):
    """What the interface needs of an observed pass."""

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
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
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
    """Route the attention of a model through a named function for the length of a `with`; put back what was there."""
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
