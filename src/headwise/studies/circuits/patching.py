"""How much does each head and edge matter to a task, and what is left of it with only some of them? Activation patching.

The prompts of a task and their score are in `TaskBatch`:

    score = logsumexp(logits of the right tokens) - logsumexp(logits of the wrong ones), at the last token

With one token on each side that is their logit difference; it is above 0 where the model prefers right to wrong.

**Attribution** (`head_effects`, `edge_effects`): the effect of a head is what the score loses when the head's output is
replaced by that of the corrupt prompt; of an edge, when its receiver alone reads the corrupt output of its sender. To first
order, for all of them at once,

    effect of head h            sum over tokens of (z_clean - z_corrupt)_h . dscore / dz_h
    effect of an edge s -> r    sum over tokens of (what s writes, clean - corrupt) . dscore / d(input of r)

The gradient is not that at the clean prompt, where saturated softmaxes and norms hide much, but its mean over steps
between the two prompts: the embedded tokens go from clean to corrupt in equal steps, one pass each (integrated gradients
along the input). After attribution patching (Nanda 2023; Syed et al., arXiv 2310.10348) and EAP-IG (Hanna et al., arXiv
2403.17806). Since every receiver has an input of its own (`graph.Wiring`), one backward pass gives all gradients. The MLP's
own input is not available as a tensor: its gradient is that of what the attention adds minus that of the layer's output.
`measure` patches some heads exactly and reports the rank correlation with the approximation. Cost: two passes, and per step a
pass of three times the usual work and its backward. Memory: for one chunk of prompts, senders x tokens x hidden numbers.

**Exact patching.** `HeadPatching`: one pass over the clean prompts in which the z of every head outside the set is that of the
corrupt run. The last token of both prompts is the same, so with no head retained the score is the corrupt run's, and with all
of them the clean run's. Every row of a batch has its own set, so a pass tries several sizes. Cost: one pass per set.

`EdgePatching`: each receiver reads the corrupt run's residual stream, plus for every retained edge what its sender writes
in this very pass minus what it wrote on the corrupt prompt:

    input of r = corrupt stream at r + sum over retained edges s -> r of (write of s here - write of s on the corrupt prompt)

With no edge retained that is the corrupt run, with all of them the clean one; the latter is checked when a task begins, and
a model that fails (its layers are of another kind than `graph.Wiring` takes) is refused. Cost: about three times a plain
pass per set. Memory: prompts x senders x tokens x hidden numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.core.errors import StudyError
from headwise.corpora import TaskPairs
from headwise.instruments.outputs import RawHeadOutputs
from headwise.interventions.ablation import Replace
from headwise.model import embedding
from headwise.seam import Structure, observe
from headwise.studies.circuits.graph import Graph, Record, Wiring, deltas, written


class TaskBatch:
    """The pairs of one task as tensors on a model's device, and their score."""

    def __init__(self, structure: Structure, pairs: TaskPairs):
        self.structure, self.pairs = structure, pairs
        self.clean = torch.tensor(pairs.clean, device=structure.device)  # (prompt, token)
        self.corrupt = torch.tensor(pairs.corrupt, device=structure.device)
        self.right, self.wrong = _padded(pairs.right, structure.device), _padded(pairs.wrong, structure.device)
        last_only = "logits_to_keep" in inspect.signature(structure.hf.forward).parameters
        self.options: dict[str, Any] = {"use_cache": False} | ({"logits_to_keep": 1} if last_only else {})

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def tokens(self) -> int:
        """Number of tokens of a prompt."""
        return self.clean.shape[1]

    def subset(self, rows: Sequence[int]) -> TaskBatch:
        """Some of the pairs."""
        return TaskBatch(self.structure, self.pairs.only(rows))

    def chunks(self, rows: int) -> list[TaskBatch]:
        """The pairs in groups of at most ``rows``."""
        return [self.subset(range(len(self))[start : start + rows]) for start in range(0, len(self), rows)]

    def logits(self, ids: Tensor) -> Tensor:
        """(row, vocabulary): next-token logits at the last token."""
        hf: Any = self.structure.hf
        logits: Tensor = hf(input_ids=ids, **self.options).logits
        return logits[:, -1].float()

    def score(self, logits: Tensor) -> Tensor:
        """(row,); the rows are the prompts in order, repeated any number of times."""
        times = len(logits) // len(self)
        sides = []
        for index in (self.right, self.wrong):
            index = index.repeat(times, 1)
            found = logits.gather(1, index.clamp(min=0)).masked_fill(index < 0, -torch.inf)
            sides.append(found.logsumexp(dim=1))
        return sides[0] - sides[1]

    @torch.no_grad()
    def scores(self, *, corrupt: bool = False) -> Tensor:
        """(prompt,) scores of the unchanged model."""
        return self.score(self.logits(self.corrupt if corrupt else self.clean))


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(row, longest), padded with -1."""
    width = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], device=device)


def record(batch: TaskBatch, wiring: Wiring, graph: Graph, ids: Tensor) -> tuple[Record, Tensor]:
    """The record of an unchanged pass, and its scores (prompt,)."""
    found = Record(graph.heads)
    with wiring.on(found):
        scores = batch.score(batch.logits(ids))
    return found, scores


class HeadPatching:
    """The clean and corrupt runs of some prompts, to be mixed head by head."""

    def __init__(self, batch: TaskBatch, batch_tokens: int = 2048):
        self.batch = batch
        self.sets = max(1, batch_tokens // (batch.tokens * len(batch)))  # sets of heads per pass
        self.corrupt_z = _head_outputs(batch, batch.corrupt)

    @torch.no_grad()
    def scores_with(self, retain: Tensor) -> Tensor:
        """(set, prompt) scores; `retain` is (set, prompt or 1, layer, head) bool."""
        retain = retain.expand(-1, len(self.batch), -1, -1)
        parts = [self._run(part) for part in retain.split(self.sets)]
        return torch.cat(parts)

    def _run(self, retain: Tensor) -> Tensor:
        times = len(retain)
        values = {layer: z.repeat(times, 1, 1, 1) for layer, z in self.corrupt_z.items()}
        with observe(self.batch.structure, Replace(values, ~retain.flatten(0, 1))):
            logits = self.batch.logits(self.batch.clean.repeat(times, 1))
        return self.batch.score(logits).view(times, -1)


@torch.no_grad()
def _head_outputs(batch: TaskBatch, ids: Tensor) -> dict[int, Tensor]:
    streams = RawHeadOutputs()
    with observe(batch.structure, streams):
        batch.structure.decoder(input_ids=ids, use_cache=False)
    return streams.z


MAX_MISSED_SHARE = 0.05  # of the clean-corrupt difference, with all edges retained


class EdgePatching:
    """The corrupt run of some prompts, to be mixed edge by edge with the clean one."""

    @torch.no_grad()
    def __init__(self, batch: TaskBatch, wiring: Wiring, graph: Graph):
        self.batch, self.wiring, self.graph = batch, wiring, graph
        self.corrupt, low = record(batch, wiring, graph, batch.corrupt)
        clean, high = record(batch, wiring, graph, batch.clean)
        self.change = deltas(clean, self.corrupt, wiring, graph)
        every = torch.from_numpy(graph.edges())[None, None]
        missed = float((self.scores_with(every)[0] - high).abs().mean() / (high - low).abs().mean().clamp(min=1e-9))
        if missed > MAX_MISSED_SHARE:
            raise StudyError(
                f"retaining all edges of {batch.structure.card.id} misses {missed:.0%} of the clean score: its layers "
                "do not add up as one input per head requires, so edges are not measured in it"
            )

    @torch.no_grad()
    def scores_with(self, retain: Tensor) -> Tensor:
        """(set, prompt) scores; `retain` is (set, prompt or 1, receiver, sender) bool."""
        found = []
        for one in retain:
            given = _PatchedInputs(self, one.expand(len(self.batch), -1, -1).to(self.change.device))
            with self.wiring.on(given):
                found.append(self.batch.score(self.batch.logits(self.batch.clean)))
        return torch.stack(found)


class _PatchedInputs:
    """Gives each receiver the corrupt stream, with the retained edges as in this pass."""

    def __init__(self, patching: EdgePatching, retain: Tensor):
        self.graph, self.wiring, self.corrupt = patching.graph, patching.wiring, patching.corrupt
        self.retain = retain.to(patching.change.dtype)  # (prompt, receiver, sender)
        self.change = torch.zeros_like(patching.change)  # (prompt, sender, token x hidden), filled as the pass goes
        self.change[:, 0] = patching.change[:, 0]
        self.mlp_input = self.corrupt.x[0]

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        return self.corrupt.x[layer]

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        received = self._received(self.graph.head_receivers(layer), self.graph.sent_before(layer), x)
        return x + received.transpose(0, 1)

    def heads_done(self, layer: int, z: Tensor) -> None:
        start = self.graph.sent_before(layer)
        new = written(self.wiring, layer, z - self.corrupt.z[layer]).flatten(2)
        self.change[:, start : start + self.graph.heads[layer]] = new

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        mlp = self.graph.mlp_receiver(layer)
        senders = self.graph.sent_before(layer) + self.graph.heads[layer]
        received = self._received(slice(mlp, mlp + 1), senders, x)[:, 0]
        self.mlp_input = x + self.corrupt.added[layer] + received
        return self.mlp_input - x

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        mlp = self.graph.sent_before(layer + 1) - 1
        self.change[:, mlp] = (out - self.mlp_input - self.corrupt.mlp(layer)).float().flatten(1)
        if layer + 1 < len(self.graph.heads):
            return out
        received = self._received(slice(self.graph.nodes - 1, self.graph.nodes), self.graph.nodes, out)[:, 0]
        return self.corrupt.out[layer] + received

    def _received(self, receivers: slice, senders: int, like: Tensor) -> Tensor:
        """(prompt, receiver, token, hidden): what the retained edges add."""
        received = self.retain[:, receivers, :senders] @ self.change[:, :senders]
        return received.unflatten(2, like.shape[1:]).to(like.dtype)


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
    has_head = torch.tensor([[head < layer.heads for head in range(card.heads)] for layer in card.per_layer])
    return found.masked_fill(~has_head, torch.nan)


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
