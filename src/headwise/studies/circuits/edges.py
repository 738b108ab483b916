"""What is left of a task when only some edges carry the clean prompt, and all others what the corrupt one made senders say.

Exact, in one pass: each receiver reads the corrupt run's residual stream, plus for every kept edge what its sender writes
in this very pass less what it wrote on the corrupt prompt:

    input of r = corrupt stream at r + sum over kept edges s -> r of (write of s here - write of s on the corrupt prompt)

With no edge kept that is the corrupt run, with all of them the clean one; the second is checked when a task begins, and
a model that does not pass (its layers are of another kind than `receivers` takes) is refused.

Cost: about three times a plain pass. Memory: prompts x senders x tokens x hidden numbers. This module does not know how edges
were ranked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.errors import StudyError
from headwise.studies.circuits.attribution import deltas, record, written
from headwise.studies.circuits.bench import Bench
from headwise.studies.circuits.graph import Graph
from headwise.studies.circuits.receivers import Wiring

__all__ = ["EdgePatching"]

ALLOWED = 0.05  # of the score between corrupt and clean that keeping all edges may miss


class EdgePatching:
    """The corrupt run of some prompts, ready to be mixed edge by edge with the clean one."""

    @torch.no_grad()
    def __init__(self, bench: Bench, wiring: Wiring, graph: Graph):
        self.bench, self.wiring, self.graph = bench, wiring, graph
        self.corrupt, low = record(bench, wiring, graph, bench.corrupt)
        clean, high = record(bench, wiring, graph, bench.clean)
        self.change = deltas(clean, self.corrupt, wiring, graph)
        every = torch.from_numpy(graph.edges())[None, None]
        missed = float((self.kept(every)[0] - high).abs().mean() / (high - low).abs().mean().clamp(min=1e-9))
        if missed > ALLOWED:
            raise StudyError(
                f"keeping all edges of {bench.structure.card.id} misses {missed:.0%} of the clean score: its layers add "
                "up in another way than one input a head allows, so edges are not measured in it"
            )

    @torch.no_grad()
    def kept(self, keep: Tensor) -> Tensor:
        """(set, prompt) scores; `keep` is (set, prompt or 1, receiver, sender) bool."""
        found = []
        for one in keep:
            given = _Mixed(self, one.expand(len(self.bench), -1, -1).to(self.change.device))
            with self.wiring.on(given):
                found.append(self.bench.score(self.bench.logits(self.bench.clean)))
        return torch.stack(found)


class _Mixed:
    """Gives each receiver the corrupt stream, with the kept senders' part as in this pass."""

    def __init__(self, patching: EdgePatching, keep: Tensor):
        self.graph, self.wiring, self.corrupt = patching.graph, patching.wiring, patching.corrupt
        self.keep = keep.to(patching.change.dtype)  # (prompt, receiver, sender)
        self.change = torch.zeros_like(patching.change)  # (prompt, sender, token x hidden), filled as the pass goes
        self.change[:, 0] = patching.change[:, 0]
        self.mlp_input = self.corrupt.x[0]

    def layer_input(self, layer: int, x: Tensor) -> Tensor:
        return self.corrupt.x[layer]

    def head_inputs(self, layer: int, x: Tensor) -> Tensor:
        heard = self._heard(self.graph.head_receivers(layer), self.graph.sent_before(layer), x)
        return x + heard.transpose(0, 1)

    def heads_done(self, layer: int, z: Tensor) -> None:
        start = self.graph.sent_before(layer)
        new = written(self.wiring, layer, z - self.corrupt.z[layer]).flatten(2)
        self.change[:, start : start + self.graph.heads[layer]] = new

    def attention_added(self, layer: int, x: Tensor, added: Tensor) -> Tensor:
        place = self.graph.mlp_receiver(layer)
        senders = self.graph.sent_before(layer) + self.graph.heads[layer]
        heard = self._heard(slice(place, place + 1), senders, x)[:, 0]
        self.mlp_input = x + self.corrupt.added[layer] + heard
        return self.mlp_input - x

    def layer_done(self, layer: int, out: Tensor) -> Tensor:
        place = self.graph.sent_before(layer + 1) - 1
        self.change[:, place] = (out - self.mlp_input - self.corrupt.mlp(layer)).float().flatten(1)
        if layer + 1 < len(self.graph.heads):
            return out
        heard = self._heard(slice(self.graph.nodes - 1, self.graph.nodes), self.graph.nodes, out)[:, 0]
        return self.corrupt.out[layer] + heard

    def _heard(self, receivers: slice, senders: int, like: Tensor) -> Tensor:
        """(prompt, receiver, token, hidden): what the kept edges add."""
        heard = self.keep[:, receivers, :senders] @ self.change[:, :senders]
        return heard.unflatten(2, like.shape[1:]).to(like.dtype)
