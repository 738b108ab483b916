"""Forward passes that begin in the middle: layers before a changed one give what they gave in an earlier pass.

A head that is ablated in layer l changes nothing before it, so a pass that tests it can begin there:

    with LayerOutputs(structure) as given:                  # one whole pass over the batch
        model(**inputs)
    with resumed(structure, given, 12), observe(structure, MeanAblation("L12H3", mean)):
        model(**inputs)                                     # the same batch; layers 0 to 11 do not run

Cost: on average half of the layers, and memory for one hidden state per layer. Families whose layers give each other more
than the hidden state (shared keys and values) cannot be resumed; `can_resume` tries it on a few tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import nn

from headwise.seam.observation import observe
from headwise.seam.structure import Structure


class LayerOutputs:
    """What every layer returned in the last pass inside a ``with``."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.outputs: dict[int, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for index, layer in enumerate(self.structure.layers):
            self._stack.callback(layer.register_forward_hook(self._hook(index)).remove)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _hook(self, index: int) -> Any:
        def record(_: nn.Module, __: Any, output: Any) -> None:
            self.outputs[index] = output

        return record


@contextmanager
def resumed(structure: Structure, given: LayerOutputs, layer: int) -> Iterator[None]:
    """Passes over the same batch in which layers before this one return what they returned then."""
    with ExitStack() as stack:
        stack.callback(setattr, structure, "first_layer", structure.first_layer)
        structure.first_layer = layer
        for index in range(layer):
            module = structure.layers[index]
            own = vars(module).get("forward")
            module.forward = _returns(given.outputs[index])
            stack.callback(_restore, module, own)
        yield


def _returns(output: Any) -> Any:
    return lambda *args, **kwargs: output


def _restore(module: nn.Module, own: Any) -> None:
    if own is None:
        del module.forward
    else:
        module.forward = own


@torch.no_grad()
def can_resume(structure: Structure) -> bool:
    """Whether a pass over a few tokens that begins in the last layer ends as a whole one does."""
    hf: Any = structure.hf
    tokens = structure.few_tokens(8)
    with LayerOutputs(structure) as given, observe(structure):
        whole = hf(input_ids=tokens, use_cache=False).logits
    try:
        with resumed(structure, given, len(structure.layers) - 1), observe(structure):
            return torch.equal(hf(input_ids=tokens, use_cache=False).logits, whole)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):  # a family's own code
        return False
