"""How much does each head, and each edge, matter to a task? The gradient form of patching, all of them at once.

The effect of a head is what the score loses when the head says what it said on the corrupt prompt; of an edge, when its
receiver alone hears that from its sender. To first order, with the score's gradient,

    effect of head h            sum over tokens of (z_clean - z_corrupt)_h . dscore / dz_h
    effect of an edge s -> r    sum over tokens of (what s writes, clean - corrupt) . dscore / d(input of r)

The gradient is not that at the clean prompt, where saturated softmaxes and norms hide much, but its mean over steps
between the two prompts: the embedded tokens go from clean to corrupt in equal steps, one pass each (integrated gradients
along the input). After attribution patching (Nanda 2023; Syed et al., arXiv 2310.10348) and EAP-IG (Hanna et al., arXiv
2403.17806). Since every receiver has an input of its own (`receivers`), one backward pass gives all gradients. The MLP's
own input is never seen as a tensor: its gradient is that of what the attention adds, less that of the layer's output.

For heads alone (`head_effects`) plain passes are enough, in any family.

An approximation: `study` patches some heads exactly and reports the rank correlation.
Cost: two passes, and per step a pass of three times the usual work and its backward. Memory: for the prompts at hand, senders x
tokens x hidden numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.instruments import RawHeadOutputs
from headwise.model import embedding
from headwise.seam import observe
from headwise.studies.circuits.bench import Bench
from headwise.studies.circuits.graph import Graph
from headwise.studies.circuits.receivers import Wiring

__all__ = ["Effects", "Record", "deltas", "effects", "head_effects", "record"]


class Effects(NamedTuple):
    """Over 0: helps the right answer."""

    heads: Tensor  # (prompt, layer, head); NaN where a layer has no such head
    edges: Tensor  # (receiver, sender), mean over prompts; 0 where there is no edge


class Record:
    """The inputs that a plain pass has anyway, one copy a receiver, and what everyone writes: by layer."""

    def __init__(self, heads: tuple[int, ...]) -> None:
        self.heads = heads
        self.x: list[Tensor] = []  # (row, token, hidden) residual stream before the layer
        self.inputs: list[Tensor] = []  # (head, row, token, hidden)
        self.z: list[Tensor] = []  # (row, token, head, width)
        self.added: list[Tensor] = []  # (row, token, hidden) by the attention
        self.out: list[Tensor] = []  # (row, token, hidden) residual stream behind the layer

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        """As it comes."""
        self.x.append(x)
        return x

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        """The same for all."""
        self.inputs.append(x.repeat(self.heads[layer], 1, 1, 1))
        return self.inputs[-1]

    def heads_done(self, layer: int, z: Tensor) -> None:
        """Kept."""
        self.z.append(z)

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        """As it comes."""
        self.added.append(added)
        return added

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        """As it comes."""
        self.out.append(out)
        return out

    def mlp(self, layer: int) -> Tensor:
        """(row, token, hidden): what the MLP wrote."""
        return self.out[layer] - self.x[layer] - self.added[layer]


def record(bench: Bench, wiring: Wiring, graph: Graph, ids: Tensor) -> tuple[Record, Tensor]:
    """A pass as it is, and its scores (prompt,)."""
    found = Record(graph.heads)
    with wiring.on(found):
        scores = bench.score(bench.logits(ids))
    return found, scores


def deltas(clean: Record, corrupt: Record, wiring: Wiring, graph: Graph) -> Tensor:
    """(prompt, sender, token x hidden): what each sender writes on the clean prompt less what on the corrupt one."""
    rows = [(clean.x[0] - corrupt.x[0])[:, None]]
    for layer in range(len(graph.heads)):
        rows.append(written(wiring, layer, clean.z[layer] - corrupt.z[layer]))
        rows.append((clean.mlp(layer) - corrupt.mlp(layer))[:, None])
    return torch.cat(rows, dim=1).float().flatten(2)


def written(wiring: Wiring, layer: int, z: Tensor) -> Tensor:
    """(row, head, token, hidden): what heads add to the residual stream."""
    return torch.einsum("bthw,hwd->bhtd", z.float(), wiring.projections[layer].weight.to(z.device).float())


def effects(bench: Bench, wiring: Wiring, graph: Graph, *, steps: int) -> Effects:
    """The effects over these prompts."""
    with torch.no_grad():
        clean, corrupt = (record(bench, wiring, graph, ids)[0] for ids in (bench.clean, bench.corrupt))
        change = deltas(clean, corrupt, wiring, graph)
    heads = torch.full((len(bench), len(graph.heads), max(graph.heads)), torch.nan)
    gradients = _Gradients(graph, change.shape)
    for step in range(steps):
        gradients.add(_at(bench, wiring, graph, (step + 0.5) / steps), 1 / steps)
    for layer, count in enumerate(graph.heads):
        moved = (clean.z[layer] - corrupt.z[layer]).float()
        heads[:, layer, :count] = (moved * gradients.z[layer]).sum(dim=(1, 3)).cpu()
    edges = torch.einsum("bri,bsi->rs", gradients.receivers, change).cpu() / len(bench)
    return Effects(heads, edges * torch.from_numpy(graph.edges()))


def head_effects(bench: Bench, *, steps: int) -> Tensor:
    """(prompt, layer, head) as in `Effects`."""
    clean, corrupt = RawHeadOutputs(), RawHeadOutputs()
    for streams, ids in ((clean, bench.clean), (corrupt, bench.corrupt)):
        with torch.no_grad(), observe(bench.structure, streams):
            bench.structure.decoder(input_ids=ids, use_cache=False)
    card = bench.structure.card
    found = torch.zeros(len(bench), card.layers, card.heads)
    for step in range(steps):
        streams = RawHeadOutputs(attached=True)
        with _mixed(bench, (step + 0.5) / steps), observe(bench.structure, streams):
            scores = bench.score(bench.logits(bench.clean))
        gradients = torch.autograd.grad(scores.sum(), list(streams.z.values()))
        for layer, gradient in zip(streams.z, gradients, strict=True):
            moved = (clean.z[layer] - corrupt.z[layer]).float() * gradient.float()
            found[:, layer, : moved.shape[2]] += moved.sum(dim=(1, 3)).cpu() / steps
    there = torch.tensor([[head < layer.heads for head in range(card.heads)] for layer in card.per_layer])
    return found.masked_fill(~there, torch.nan)


class _Gradients:
    """Means over the steps."""

    def __init__(self, graph: Graph, shape: torch.Size):
        self.graph = graph
        self.receivers = torch.zeros(shape[0], graph.nodes, shape[2])  # (prompt, receiver, token x hidden)
        self.z: dict[int, Tensor] = {}

    def add(self, found: tuple[list[Tensor], ...], weight: float) -> None:
        """One step: the gradients of head inputs, z, what the attention added, and the layers' outputs."""
        self.receivers = self.receivers.to(found[0][0].device)
        for layer, (inputs, z, added, out) in enumerate(zip(*found, strict=True)):
            self.receivers[:, self.graph.head_receivers(layer)] += weight * inputs.transpose(0, 1).flatten(2).float()
            self.receivers[:, self.graph.mlp_receiver(layer)] += weight * (added - out).flatten(1).float()
            self.z[layer] = self.z.get(layer, 0) + weight * z.float()
        self.receivers[:, -1] += weight * found[3][-1].flatten(1).float()


def _at(bench: Bench, wiring: Wiring, graph: Graph, part: float) -> tuple[list[Tensor], ...]:
    """The gradients with the embedded tokens so far on the way from clean to corrupt."""
    with _mixed(bench, part):
        found, scores = record(bench, wiring, graph, bench.clean)
        kinds = (found.inputs, found.z, found.added, found.out)
        flat = torch.autograd.grad(scores.sum(), [one for kind in kinds for one in kind])
    layers = len(graph.heads)
    return tuple(list(flat[start : start + layers]) for start in range(0, len(flat), layers))


@contextmanager
def _mixed(bench: Bench, part: float) -> Iterator[None]:
    """Passes over the clean prompts whose embedded tokens are so far on the way to corrupt; gradients are kept."""
    module = embedding(bench.structure)
    with torch.no_grad():
        other = module(bench.corrupt)

    def mix(_: object, __: object, own: Tensor) -> Tensor:
        return torch.lerp(own.detach(), other, part).requires_grad_(True)

    handle = module.register_forward_hook(mix)
    try:
        with torch.enable_grad():
            yield
    finally:
        handle.remove()
