"""One task on one model: does the model do it, which heads and edges matter, and what do circuits of them explain?

Steps. Score all pairs, clean and corrupt. A model that is not right more often than chance (the lower end of Wilson's
interval over one half), or scores clean prompts no higher than corrupt ones, does not do the task: that is said, and
nothing more is measured. Otherwise rank heads and edges by the size of their effect on some pairs (`attribution`), and on
the others measure growing circuits (`heads`, `edges`, `curve`), the highest ranked first. Control: as many heads or
edges at random, other ones for every prompt. Some heads are patched exactly, for the ranking's own credit: half of
them the highest ranked, half drawn from the rest.

By size, not by sign: heads that work against the answer are part of what the model does, and a circuit without them
would explain more than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import SeamError, StudyError
from headwise.corpora import TaskPairs
from headwise.instruments import RawHeadOutputs
from headwise.seam import Structure, observe
from headwise.stats import t_half_width, wilson_interval
from headwise.studies.circuits.attribution import effects, head_effects
from headwise.studies.circuits.bench import Bench
from headwise.studies.circuits.curve import sizes_up_to, trace
from headwise.studies.circuits.edges import EdgePatching
from headwise.studies.circuits.graph import Graph
from headwise.studies.circuits.heads import HeadPatching
from headwise.studies.circuits.receivers import Wiring
from headwise.studies.circuits.spec import CircuitsOptions

__all__ = ["Circuit", "Found", "Reader"]

Floats = NDArray[np.float64]
ROOM = 1 << 27  # numbers held for the prompts at hand
CHANCE = 0.5


@dataclass
class Circuit:
    """Growing circuits of heads, or of edges."""

    sizes: list[int]
    scores: Floats  # (size, prompt)
    random_sizes: list[int]
    random_scores: Floats  # (size, prompt)


@dataclass
class Found:
    """What was found about a task; the rest is empty where the model does not do it."""

    clean: Floats  # (prompt,): all pairs, first those for ranking
    corrupt: Floats
    reason: str = ""  # why it is no task for this model
    heads: Floats | None = None  # (ranking prompt, layer, head) effects, in scores
    edges: list[tuple[str, float]] = field(default_factory=list)  # the largest from a head to a head or the logits
    circuits: dict[str, Circuit] = field(default_factory=dict)  # "heads", "edges"
    no_edges: str = ""  # why edges were not measured
    exact: Floats | None = None  # (2, head): effects by gradient and by patching, of those checked


class Reader:
    """A model, ready for tasks."""

    def __init__(self, structure: Structure, options: CircuitsOptions):
        self.structure, self.options = structure, options
        self.graph = Graph.of([layer.heads for layer in structure.card.per_layer])
        streams = RawHeadOutputs()
        with torch.no_grad(), observe(structure, streams):
            structure.decoder(input_ids=structure.few_tokens(), use_cache=False)
        self.wiring: Wiring | None = None
        self.no_edges = "" if options.edges else "edges were not asked for"
        if options.edges:
            try:
                self.wiring = Wiring(structure, streams.modules)
            except (StudyError, SeamError) as error:
                self.no_edges = str(error)
        self.every_head = torch.tensor(
            [[head < count for head in range(max(self.graph.heads))] for count in self.graph.heads]
        )  # (layer, head): heads that are there

    def read(self, pairs: TaskPairs) -> Found:
        """A task on this model."""
        bench = Bench(self.structure, pairs)
        found = Found(_numbers(bench.scores()), _numbers(bench.scores(corrupt=True)))
        found.reason = not_done(found.clean, found.corrupt)
        if found.reason:
            return found
        ranking = range(self.options.ranking)
        rank, measure = bench.only(ranking), bench.only(range(self.options.ranking, len(bench)))
        mixed = self._mixed(measure)
        heads, edges = self._ranked(rank, with_edges=bool(mixed))
        found.no_edges = self.no_edges
        found.heads = _numbers(heads)
        found.exact = self._exact(rank, heads.mean(0))
        patching = HeadPatching(measure, self.options.batch_tokens)
        found.circuits["heads"] = self._circuit(
            found, heads.mean(0), self.every_head, patching.kept, first=1, factor=2, every=2
        )
        if edges is not None:
            found.circuits["edges"] = self._circuit(
                found, edges, torch.from_numpy(self.graph.edges()), _in_parts(mixed), first=16, factor=4, every=2
            )
            found.edges = self._largest(edges)
        return found

    def _rows(self, bench: Bench) -> int:
        """Prompts whose senders fit into the room."""
        return max(1, ROOM // (self.graph.nodes * bench.tokens * self.structure.card.hidden_size))

    def _mixed(self, bench: Bench) -> list[EdgePatching]:
        """Ready for edges; empty, with the reason kept, where this model's layers do not allow it."""
        if self.wiring is None:
            return []
        try:
            return [EdgePatching(part, self.wiring, self.graph) for part in bench.chunks(self._rows(bench))]
        except StudyError as error:
            self.no_edges = str(error)
        except RuntimeError as error:  # a norm that the MLP reads as well gets more rows than it can bear
            self.no_edges = f"its layers cannot be run with one input a head ({str(error).splitlines()[0]})"
        self.wiring = None
        return []

    def _ranked(self, bench: Bench, *, with_edges: bool) -> tuple[Tensor, Tensor | None]:
        """Effects of heads (prompt, layer, head), and of edges (receiver, sender) where asked for."""
        parts = bench.chunks(self._rows(bench))
        if not with_edges or self.wiring is None:
            return torch.cat([head_effects(part, steps=self.options.steps) for part in parts]), None
        found = [effects(part, self.wiring, self.graph, steps=self.options.steps) for part in parts]
        weights = torch.tensor([len(part) for part in parts]) / len(bench)
        edges = torch.stack([one.edges for one in found]).mul(weights[:, None, None]).sum(0)
        return torch.cat([one.heads for one in found]), edges

    def _circuit(
        self,
        found: Found,
        effect: Tensor,
        there: Tensor,
        kept: Callable[[Tensor], Tensor],
        *,
        first: int,
        factor: int,
        every: int,
    ) -> Circuit:
        """Circuits of the members that are `there`, (..., ...), by the size of their effect; and random ones."""
        places = torch.nonzero(there.flatten())[:, 0]
        order = places[effect.flatten()[places].abs().argsort(descending=True, stable=True)]
        clean, corrupt = found.clean[self.options.ranking :], found.corrupt[self.options.ranking :]
        generator = torch.Generator().manual_seed(self.options.seed)
        drawn = torch.stack([places[torch.randperm(len(places), generator=generator)] for _ in clean])

        def measure(sizes: Sequence[int], ranks: Tensor = order[None]) -> Floats:
            keep = torch.zeros(len(sizes), len(ranks), there.numel(), dtype=torch.bool)
            for row, size in enumerate(sizes):
                keep[row].scatter_(1, ranks[:, :size], True)
            return _numbers(kept(keep.unflatten(2, there.shape)))

        sizes = sizes_up_to(len(places), first=first, factor=factor)
        done, scores = trace(measure, sizes, len(places), clean, corrupt, self.options.goal)
        at_random = sizes[1::every]
        return Circuit(done, scores, at_random, measure(at_random, drawn))

    def _exact(self, bench: Bench, effect: Tensor) -> Floats:
        """Effects of some heads by gradient and by patching, (2, head)."""
        places = torch.nonzero(self.every_head.flatten())[:, 0]
        order = places[effect.flatten()[places].abs().argsort(descending=True, stable=True)]
        count = min(self.options.checked, len(order))
        rest = order[count // 2 :]
        generator = torch.Generator().manual_seed(self.options.seed)
        chosen = torch.cat(
            [order[: count // 2], rest[torch.randperm(len(rest), generator=generator)[: count - count // 2]]]
        )
        keep = torch.ones(len(chosen), self.every_head.numel(), dtype=torch.bool)
        keep[torch.arange(len(chosen)), chosen] = False
        left = HeadPatching(bench, self.options.batch_tokens).kept(keep.unflatten(1, self.every_head.shape)[:, None])
        patched = bench.scores()[None] - left
        return np.stack([_numbers(effect.flatten()[chosen]), _numbers(patched.mean(1))])

    def _largest(self, edges: Tensor, count: int = 20) -> list[tuple[str, float]]:
        """The largest effects among edges from a head to a head or to the logits."""
        senders, receivers = self.graph.senders(), self.graph.receivers()
        sends = torch.tensor([name.startswith("L") for name in senders])
        reads = torch.tensor([not name.startswith("M") for name in receivers])
        asked = torch.where(reads[:, None] & sends[None, :], edges, 0.0).flatten()
        order = asked.abs().argsort(descending=True, stable=True)[:count].tolist()
        nodes = self.graph.nodes
        return [
            (f"{senders[one % nodes]} > {receivers[one // nodes]}", float(asked[one])) for one in order if asked[one]
        ]


def not_done(clean: Floats, corrupt: Floats) -> str:
    """Why a model does not do a task; empty where it does. Scores are (prompt,)."""
    right = float((clean > 0).mean())
    if float(wilson_interval(np.array(right), np.array(len(clean)))[0]) <= CHANCE:
        return f"right in {100 * right:.0f} % of {len(clean)} prompts, which is not above chance"
    gaps = clean - corrupt
    half = float(t_half_width(gaps))
    if gaps.mean() - half <= 0:
        return f"clean prompts score {gaps.mean():.2f} more than corrupt ones, which is not above 0"
    return ""


def _in_parts(mixed: Sequence[EdgePatching]) -> Callable[[Tensor], Tensor]:
    """`kept` of several groups of prompts, one after the other."""
    ends = np.cumsum([0, *(len(part.bench) for part in mixed)])

    def kept(keep: Tensor) -> Tensor:
        rows = [keep if keep.shape[1] == 1 else keep[:, a:b] for a, b in pairwise(ends)]
        return torch.cat([part.kept(row) for part, row in zip(mixed, rows, strict=True)], dim=1)

    return kept


def _numbers(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()
