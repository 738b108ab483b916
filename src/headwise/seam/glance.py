"""A glance: one forward pass at which an onlooker stands at the attention, and which it ends when it has seen enough.

How a layer is built shows when it is at work, long before a pass is over, and weights of later layers need not even be
there. So an onlooker raises `Enough` from a hook, and `glance` says that it did.

This module does not know what is looked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from headwise.seam.interface import CURRENT, installed

__all__ = ["Enough", "Onlooker", "glance"]


class Enough(Exception):  # noqa: N818 - not an error: the way out of a forward pass that has shown enough
    pass


class Onlooker(ABC):
    """Stands at the attention of every layer, and takes all of them for layer 0."""

    def layer_of(self, module: nn.Module) -> int:
        return 0

    @abstractmethod
    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        """z, (batch, query, head, value width)."""


def glance(hf: nn.Module, onlooker: Onlooker, run: Callable[[], object]) -> bool:
    """Run a pass of this model under the onlooker's eyes; whether it had seen enough before the end."""
    token = CURRENT.set(onlooker)
    try:
        with installed(hf):
            run()
    except Enough:
        return True
    finally:
        CURRENT.reset(token)
    return False
