"""The graph that a circuit is cut from, and a forward pass in which every node of it reads an input of its own.

    senders     the input (embedded tokens), then layer by layer its heads and its MLP
    receivers   layer by layer its heads and its MLP, then the logits

An edge is a sender and a later receiver: everything that the receiver reads from what this sender wrote (a head by
queries, keys and values together). A head does not read from its own layer; the MLP of a layer reads from its heads.
With L layers of H heads that is about L^2 (H + 1)^2 / 2 edges, 44,371 for 30 x 9.

In `Wiring` each receiver reads its own stream: before the norm that the attention reads, the batch is repeated once per head,
each copy with that head's input; at the seam, query, key and value of head h are taken from copy h, and z is computed from
those; before the output projection the batch is reduced to one copy. The MLP's input is set through what the attention adds:
the attention's output becomes (desired MLP input - layer input). So no module is looked up by name, and everything else that
a family computes stays as it is.

That takes a layer of the common kind: norm, attention, added; then an MLP, added. Families with a parallel MLP, or with a
norm after the attention, are refused: `Wiring` refuses what is visible beforehand, `patching.EdgePatching` the rest, since
with all edges retained the pass must give the clean logits.

Cost: per token and layer, H times the query, key and value projections; about three times a plain pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.core.dims import head_name
from headwise.core.errors import StudyError
from headwise.seam import AttentionCall, Intervention, Structure, observe, output_projections
from headwise.seam.layout import LayoutFinder


@dataclass(frozen=True)
class Graph:
    """`heads`: how many each layer has."""

    heads: tuple[int, ...]

    @classmethod
    def of(cls, heads: Sequence[int]) -> Graph:
        """The graph of a decoder with so many heads in each layer."""
        return cls(tuple(heads))

    @property
    def nodes(self) -> int:
        """Senders; and as many receivers."""
        return 1 + sum(self.heads) + len(self.heads)

    def sent_before(self, layer: int) -> int:
        """Number of senders whose output is in the residual stream at the start of a layer."""
        return 1 + sum(self.heads[:layer]) + layer

    def head_receivers(self, layer: int) -> slice:
        """The indices of a layer's heads among the receivers."""
        start = self.sent_before(layer) - 1
        return slice(start, start + self.heads[layer])

    def mlp_receiver(self, layer: int) -> int:
        """The index of a layer's MLP among the receivers."""
        return self.head_receivers(layer).stop

    def senders_of(self, receiver: int) -> int:
        """How many of the first senders a receiver reads from."""
        for layer, heads in enumerate(self.heads):
            own = self.head_receivers(layer)
            if receiver < own.stop:
                return self.sent_before(layer)
            if receiver == own.stop:
                return self.sent_before(layer) + heads
        return self.nodes

    def edges(self) -> NDArray[np.bool_]:
        """(receiver, sender): where there is an edge."""
        reads = np.array([self.senders_of(receiver) for receiver in range(self.nodes)])
        return np.arange(self.nodes)[None, :] < reads[:, None]

    def senders(self) -> list[str]:
        """Their names in order: input, L0H0, ..., M0, L1H0, ..."""
        return ["input", *self._inner()]

    def receivers(self) -> list[str]:
        """Their names in order: L0H0, ..., M0, L1H0, ..., logits."""
        return [*self._inner(), "logits"]

    def _inner(self) -> list[str]:
        return [
            name
            for layer, heads in enumerate(self.heads)
            for name in (*(head_name(layer, head) for head in range(heads)), f"M{layer}")
        ]


class ReceiverInputs(Protocol):
    """What each receiver reads; the methods are called in the order of a forward pass."""

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        """(row, token, hidden): the input of the layer; only its MLP's input is measured from it."""

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        """(head, row, token, hidden): the inputs of a layer's heads; x is the input of the layer."""

    def heads_done(self, layer: int, z: Tensor) -> None:
        """Receives the outputs z of the heads, (row, token, head, width)."""

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        """What the attention adds, such that the MLP reads its own input."""

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        """The layer's output; what is returned replaces it."""


class Wiring:
    """The hook points at which a model's layers take their inputs, found once."""

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
                    f"layer {index} of {structure.card.id} has no norm before its attention, or one after it; what "
                    "a head adds to the stream is then no sum of edges, and edges are not measured"
                )
            self.norms.append(layer.get_submodule(layout.norm))
        self.projections = output_projections(structure)

    @contextmanager
    def on(self, inputs: ReceiverInputs) -> Iterator[None]:
        """Forward passes in which the receivers read these inputs."""
        with ExitStack() as stack:
            for index, layer in enumerate(self.structure.layers):
                self._hook(stack, inputs, index, layer)
            stack.enter_context(observe(self.structure, _HeadCopies(inputs)))
            yield

    def _hook(self, stack: ExitStack, inputs: ReceiverInputs, index: int, layer: nn.Module) -> None:
        seen: dict[str, Tensor] = {}

        def before_layer(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            seen["x"] = inputs.layer_input(index, args[0] if args else kwargs["hidden_states"])
            if args:
                return (seen["x"], *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": seen["x"]}

        def before_norm(_: nn.Module, args: tuple[Any, ...]) -> Any:
            return (inputs.head_inputs(index, seen["x"]).flatten(0, 1), *args[1:])

        def before_output(_: nn.Module, args: tuple[Any, ...]) -> Any:
            return (args[0][: len(seen["x"])], *args[1:])

        def after_attention(_: nn.Module, args: Any, result: Any) -> Any:
            is_tuple = isinstance(result, tuple)
            added = inputs.attention_added(index, seen["x"], result[0] if is_tuple else result)
            return (added, *result[1:]) if is_tuple else added

        def after_layer(_: nn.Module, args: Any, result: Any) -> Any:
            is_tuple = isinstance(result, tuple)
            out = inputs.layer_done(index, result[0] if is_tuple else result)
            return (out, *result[1:]) if is_tuple else out

        for handle in (
            layer.register_forward_pre_hook(before_layer, with_kwargs=True),
            self.norms[index].register_forward_pre_hook(before_norm),
            self.projections[index].module.register_forward_pre_hook(before_output),
            self.modules[index].register_forward_hook(after_attention),
            layer.register_forward_hook(after_layer),
        ):
            stack.callback(handle.remove)


class _HeadCopies(Intervention):
    """Computes z of head h from the h-th copy of the batch, for all copies."""

    on_values = True

    def __init__(self, inputs: ReceiverInputs):
        self.inputs = inputs

    def change(self, call: AttentionCall) -> Tensor:
        heads = call.heads
        index = torch.arange(heads, device=call.z.device)
        kv = index // call.attention.group

        def own(x: Tensor, which: Tensor) -> Tensor:
            """(row, head, token, width): from copy h the entry of head h."""
            return x.unflatten(0, (heads, -1))[index, :, which].transpose(0, 1)

        q, k, v = own(call.attention.q, index), own(call.attention.k, kv), own(call.v, kv)
        attention = replace(call.attention, q=q, k=k, lse=None)
        z = (
            (attention.weights(dtype=torch.float32) @ v.float()).transpose(1, 2).to(call.z.dtype)
        )  # (row, token, head, width)
        self.inputs.heads_done(call.layer, z)
        return z.repeat(heads, 1, 1, 1)


class Record:
    """The inputs of an unchanged pass, one copy per receiver, and what every sender writes: by layer."""

    def __init__(self, heads: tuple[int, ...]) -> None:
        self.heads = heads
        self.x: list[Tensor] = []  # (row, token, hidden) residual stream before the layer
        self.inputs: list[Tensor] = []  # (head, row, token, hidden)
        self.z: list[Tensor] = []  # (row, token, head, width)
        self.added: list[Tensor] = []  # (row, token, hidden) by the attention
        self.out: list[Tensor] = []  # (row, token, hidden) residual stream after the layer

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        """Recorded, unchanged."""
        self.x.append(x)
        return x

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        """The same for all heads."""
        self.inputs.append(x.repeat(self.heads[layer], 1, 1, 1))
        return self.inputs[-1]

    def heads_done(self, layer: int, z: Tensor) -> None:
        """Recorded."""
        self.z.append(z)

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        """Recorded, unchanged."""
        self.added.append(added)
        return added

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        """Recorded, unchanged."""
        self.out.append(out)
        return out

    def mlp(self, layer: int) -> Tensor:
        """(row, token, hidden): what the MLP wrote."""
        return self.out[layer] - self.x[layer] - self.added[layer]


def deltas(clean: Record, corrupt: Record, wiring: Wiring, graph: Graph) -> Tensor:
    """(prompt, sender, token x hidden): what each sender writes, clean minus corrupt."""
    rows = [(clean.x[0] - corrupt.x[0])[:, None]]
    for layer in range(len(graph.heads)):
        rows.append(written(wiring, layer, clean.z[layer] - corrupt.z[layer]))
        rows.append((clean.mlp(layer) - corrupt.mlp(layer))[:, None])
    return torch.cat(rows, dim=1).float().flatten(2)


def written(wiring: Wiring, layer: int, z: Tensor) -> Tensor:
    """(row, head, token, hidden): what heads add to the residual stream."""
    return torch.einsum("bthw,hwd->bhtd", z.float(), wiring.projections[layer].weight.to(z.device).float())
