"""A forward pass in which every head and every MLP has an input of its own.

Heads of a layer normally read one residual stream. Here each reads its own: in front of the norm that the attention
reads, the batch is repeated once a head, each copy with that head's input; at the seam head h's query, key and value are
taken from copy h, and z is made of those; in front of the output projection the batch is one again. The MLP's input is
set by what the attention adds: the layer is told that its attention wrote (wanted input - what it was given). So
nothing is looked up by name, and whatever a family does between these places it still does.

That takes a layer of the common kind: norm, attention, added; then an MLP, added. Families whose MLP reads beside the
attention, or that put a norm behind it, are refused: what can be seen beforehand by `Wiring`, the rest by who uses it,
since with all edges kept the pass must give the clean logits.

Cost: per token and layer, H times the query, key and value projections; about three times a plain pass. This module does not
know which inputs are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headwise.core.errors import StudyError
from headwise.seam import AttentionCall, Intervention, Structure, observe, output_projections
from headwise.seam.layout import LayoutFinder

__all__ = ["Given", "Wiring"]


class Given(Protocol):
    """What each receiver reads. Called in the order of a pass."""

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        """(row, token, hidden): what the layer is given; only its MLP's input is measured from it."""

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        """(head, row, token, hidden) for the heads of a layer; x is what the layer was given."""

    def heads_done(self, layer: int, z: Tensor) -> None:
        """(row, token, head, width): what the heads put out."""

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        """What the attention is to have added, so that the MLP reads what it should."""

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        """The layer's output; what is returned goes on."""


class Wiring:
    """Where a model's layers take their inputs, found once."""

    def __init__(self, structure: Structure, modules: dict[int, nn.Module]):
        self.structure, self.modules = structure, modules
        if set(modules) != set(range(len(structure.layers))):
            raise StudyError(f"{structure.card.id} has layers without attention heads; edges are not measured in it")
        layouts = LayoutFinder(structure.card)
        self.norms: list[nn.Module] = []
        for index, layer in enumerate(structure.layers):
            layout = layouts.of(index)
            if layout.norm is None or layout.post_norm is not None:
                raise StudyError(
                    f"layer {index} of {structure.card.id} has no norm in front of its attention, or one behind it; what "
                    "a head adds to the stream is then no sum of edges, and edges are not measured"
                )
            self.norms.append(layer.get_submodule(layout.norm))
        self.projections = output_projections(structure)

    @contextmanager
    def on(self, given: Given) -> Iterator[None]:
        """Passes in which the receivers read what is given."""
        with ExitStack() as stack:
            for index, layer in enumerate(self.structure.layers):
                self._hook(stack, given, index, layer)
            stack.enter_context(observe(self.structure, _OwnCopy(given)))
            yield

    def _hook(self, stack: ExitStack, given: Given, index: int, layer: nn.Module) -> None:
        seen: dict[str, Tensor] = {}

        def before_layer(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            seen["x"] = given.layer_input(index, args[0] if args else kwargs["hidden_states"])
            if args:
                return (seen["x"], *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": seen["x"]}

        def before_norm(_: nn.Module, args: tuple[Any, ...]) -> Any:
            return (given.head_inputs(index, seen["x"]).flatten(0, 1), *args[1:])

        def before_output(_: nn.Module, args: tuple[Any, ...]) -> Any:
            return (args[0][: len(seen["x"])], *args[1:])

        def after_attention(_: nn.Module, args: Any, result: Any) -> Any:
            is_tuple = isinstance(result, tuple)
            added = given.attention_added(index, seen["x"], result[0] if is_tuple else result)
            return (added, *result[1:]) if is_tuple else added

        def after_layer(_: nn.Module, args: Any, result: Any) -> Any:
            is_tuple = isinstance(result, tuple)
            out = given.layer_done(index, result[0] if is_tuple else result)
            return (out, *result[1:]) if is_tuple else out

        for handle in (
            layer.register_forward_pre_hook(before_layer, with_kwargs=True),
            self.norms[index].register_forward_pre_hook(before_norm),
            self.projections[index].module.register_forward_pre_hook(before_output),
            self.modules[index].register_forward_hook(after_attention),
            layer.register_forward_hook(after_layer),
        ):
            stack.callback(handle.remove)


class _OwnCopy(Intervention):
    """Makes z of head h from the h-th copy of the batch, and hands it to all copies."""

    def __init__(self, given: Given):
        self.given = given

    def change(self, call: AttentionCall) -> Tensor:
        heads = call.heads
        place = torch.arange(heads, device=call.z.device)
        kv = place // call.attention.group

        def own(x: Tensor, which: Tensor) -> Tensor:
            """(row, head, token, width): of every copy the head it was made for."""
            return x.unflatten(0, (heads, -1))[place, :, which].transpose(0, 1)

        q, k, v = own(call.attention.q, place), own(call.attention.k, kv), own(call.v, kv)
        attention = replace(call.attention, q=q, k=k, lse=None)
        z = (
            (attention.weights(dtype=torch.float32) @ v.float()).transpose(1, 2).to(call.z.dtype)
        )  # (row, token, head, width)
        self.given.heads_done(call.layer, z)
        return z.repeat(heads, 1, 1, 1)
