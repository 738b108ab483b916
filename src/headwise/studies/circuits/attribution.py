"""How much does each head, and each edge, matter to a task? Attribution patching: all of them at once, by gradients.

The effect of a head is what the score loses when the head's output is replaced by that of the corrupt prompt; of an edge,
when its receiver alone reads the corrupt output of its sender. To first order, with the score's gradient,

    effect of head h            sum over tokens of (z_clean - z_corrupt)_h . dscore / dz_h
    effect of an edge s -> r    sum over tokens of (what s writes, clean - corrupt) . dscore / d(input of r)

The gradient is not that at the clean prompt, where saturated softmaxes and norms hide much, but its mean over steps
between the two prompts: the embedded tokens go from clean to corrupt in equal steps, one pass each (integrated gradients
along the input). After attribution patching (Nanda 2023; Syed et al., arXiv 2310.10348) and EAP-IG (Hanna et al., arXiv
2403.17806). Since every receiver has an input of its own (`graph.Wiring`), one backward pass gives all gradients. The MLP's
own input is not available as a tensor: its gradient is that of what the attention adds minus that of the layer's output.
For heads alone (`head_effects`) plain passes are enough, in any family.

An approximation: `measure` patches some heads exactly and reports the rank correlation.
Cost: two passes, and per step a pass of three times the usual work and its backward. Memory: for one chunk of prompts,
senders x tokens x hidden numbers.
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
from headwise.studies.circuits.graph import Graph, Wiring, deltas
from headwise.studies.circuits.patching import TaskBatch, record


class Effects(NamedTuple):
    """Effects; positive values help the right answer."""

    heads: Tensor  # (prompt, layer, head); NaN where a layer has no such head
    edges: Tensor  # (receiver, sender), mean over prompts; 0 where there is no edge


def effects(batch: TaskBatch, wiring: Wiring, graph: Graph, *, steps: int) -> Effects:
    """The effects of heads and edges over these prompts."""
    with torch.no_grad():
        clean, corrupt = (record(batch, wiring, graph, ids)[0] for ids in (batch.clean, batch.corrupt))
        change = deltas(clean, corrupt, wiring, graph)
    heads = torch.full((len(batch), len(graph.heads), max(graph.heads)), torch.nan)
    gradients = _Gradients(graph, change.shape)
    for step in range(steps):
        gradients.add(_gradients_at(batch, wiring, graph, (step + 0.5) / steps), 1 / steps)
    for layer, count in enumerate(graph.heads):
        change_of_z = (clean.z[layer] - corrupt.z[layer]).float()
        heads[:, layer, :count] = (change_of_z * gradients.z[layer]).sum(dim=(1, 3)).cpu()
    edges = torch.einsum("bri,bsi->rs", gradients.receivers, change).cpu() / len(batch)
    return Effects(heads, edges * torch.from_numpy(graph.edges()))


def head_effects(batch: TaskBatch, *, steps: int) -> Tensor:
    """(prompt, layer, head) as in `Effects`."""
    clean, corrupt = RawHeadOutputs(), RawHeadOutputs()
    for streams, ids in ((clean, batch.clean), (corrupt, batch.corrupt)):
        with torch.no_grad(), observe(batch.structure, streams):
            batch.structure.decoder(input_ids=ids, use_cache=False)
    card = batch.structure.card
    found = torch.zeros(len(batch), card.layers, card.heads)
    for step in range(steps):
        streams = RawHeadOutputs(attached=True)
        with _interpolated(batch, (step + 0.5) / steps), observe(batch.structure, streams):
            scores = batch.score(batch.logits(batch.clean))
        gradients = torch.autograd.grad(scores.sum(), list(streams.z.values()))
        for layer, gradient in zip(streams.z, gradients, strict=True):
            product = (clean.z[layer] - corrupt.z[layer]).float() * gradient.float()
            found[:, layer, : product.shape[2]] += product.sum(dim=(1, 3)).cpu() / steps
    there = torch.tensor([[head < layer.heads for head in range(card.heads)] for layer in card.per_layer])
    return found.masked_fill(~there, torch.nan)


class _Gradients:
    """Mean gradients over the steps."""

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


def _gradients_at(batch: TaskBatch, wiring: Wiring, graph: Graph, part: float) -> tuple[list[Tensor], ...]:
    """The gradients at one point (0 to 1) of the path from clean to corrupt."""
    with _interpolated(batch, part):
        found, scores = record(batch, wiring, graph, batch.clean)
        kinds = (found.inputs, found.z, found.added, found.out)
        flat = torch.autograd.grad(scores.sum(), [one for kind in kinds for one in kind])
    layers = len(graph.heads)
    return tuple(list(flat[start : start + layers]) for start in range(0, len(flat), layers))


@contextmanager
def _interpolated(batch: TaskBatch, part: float) -> Iterator[None]:
    """Passes over the clean prompts, with embeddings interpolated towards the corrupt ones, and with gradients."""
    module = embedding(batch.structure)
    with torch.no_grad():
        other = module(batch.corrupt)

    def mix(_: object, __: object, own: Tensor) -> Tensor:
        return torch.lerp(own.detach(), other, part).requires_grad_(True)

    handle = module.register_forward_hook(mix)
    try:
        with torch.enable_grad():
            yield
    finally:
        handle.remove()
