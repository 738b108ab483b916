"""Which heads, and which edges between them, does a task need; and how unusable, dense against sparse?

Shown: pairs of prompts of small tasks (`corpora.circuit_tasks`), clean and corrupt, of one model or of two (the reference as
in `patterns`, the sparse twin by default). A shard is one task on one model:

1. Score all pairs, clean and corrupt. A model that is not right more often than chance (lower end of the Wilson interval at
   most one half), or scores clean prompts no higher than corrupt ones, does not solve the task: the reason is reported, and
   nothing more is measured.
2. Rank heads and edges by the absolute size of their effect on some pairs (`attribution`). By size, not by sign: heads that
   work against the answer are part of what the model does, and a circuit without them would explain more than there is.
3. On the other pairs, measure growing circuits (`patching`), the highest ranked first, all else as on the corrupt prompt: a
   coarse series of sizes, then bisection (by factors) around the size that explains enough, until its ends differ by less than
   a tenth. Control: as many heads or edges at random, a different set for every prompt.
4. Patch some heads exactly, as a check of the ranking: half of them the highest ranked, half drawn from the rest.

`finalize` computes the share of the clean-corrupt difference that circuits explain, the size that explains 90 %, and the
ratio of that size between the two models. After Draye, Lei et al. (arXiv 2512.05865), who report 2 to 4 times fewer heads
and 43 to 97 times fewer edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import CIRCUIT_SIZE, CONDITION, EXAMPLE, HEAD, LAYER, RANK, TASK, UNIT
from headwise.core.errors import DataError, SeamError, StudyError
from headwise.corpora import CIRCUIT_TASKS, TaskPairs, circuit_pairs
from headwise.corpora.rows import digest_of
from headwise.engines import Shard
from headwise.instruments.outputs import RawHeadOutputs
from headwise.model import Model, check_finite, is_offloaded
from headwise.seam import Structure, observe
from headwise.stats import t_half_width, wilson_interval
from headwise.studies.circuits.finalize import UNITS, finalize, needed
from headwise.studies.circuits.graph import Graph, Wiring
from headwise.studies.circuits.patching import EdgePatching, HeadPatching, TaskBatch, effects, head_effects
from headwise.studies.circuits.spec import SPEC, CircuitsOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.patterns.conditions import Condition, conditions_of, reference_model
from headwise.studies.run import StudyRun, study_provenance

Floats = NDArray[np.float64]
MAX_SIZES, MAX_EDGES = 32, 20  # stored per curve; named per task
MAX_HELD_NUMBERS = 1 << 27  # per chunk of prompts
MIN_SIZE_FACTOR = 1.1  # between two sizes that are both measured
CHANCE = 0.5


def prepare(model: Model, inputs: StudyInputs, options: CircuitsOptions | None = None) -> StudyRun:
    """The circuits of this model, compared with those of a reference model (see `patterns.conditions.reference_model`)."""
    options = options or CircuitsOptions()
    if is_offloaded(model.hf):
        raise StudyError(
            f"circuits backpropagates through all layers, which needs all weights of {model.id} in memory, and it is "
            "offloaded; load it without offloading, on one device or on several GPUs"
        )
    other = reference_model(model, inputs.reference)
    if other is not None:
        check_finite(other.hf)
    conditions = conditions_of(model, other, None)
    count = options.ranking + options.measuring
    drawn = {name: circuit_pairs(name, model.ids, count=count, seed=options.seed) for name in options.chosen}
    unusable = {name: _too_few(pairs, count) for name, pairs in drawn.items() if len(pairs) < count}
    tasks = {name: pairs for name, pairs in drawn.items() if name not in unusable}
    if not tasks:
        raise DataError(
            f"no task can be used with {model.id}: " + "; ".join(f"{name}: {why}" for name, why in unusable.items())
        )
    _refuse_other_tokens(model, other, tasks)
    digest = digest_of([name, *row] for name, pairs in tasks.items() for row in (*pairs.clean, *pairs.corrupt))
    data = {"name": "circuit tasks", "size": len(tasks) * count, "digest": digest}
    reference = None
    if other is not None:  # all but what follows from the rest of its identity
        reference = {part: value for part, value in other.identity().items() if part != "parameters"}
    provenance = study_provenance(SPEC, model, data, options, tasks=list(options.chosen), reference=reference)
    reader_of = cache(lambda index: CircuitReader(conditions[index].structure, options))

    def measure(shard: Shard) -> xr.Dataset:
        """One task on one model: all tasks on the model, then all on the reference."""
        index, task = divmod(shard.start, len(tasks))
        pairs = list(tasks.values())[task]
        return _readings(reader_of(index).read(pairs), conditions[index], pairs, options)

    def reduce_shards(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        names = [condition.name for condition in conditions]
        return {SPEC.name: finalize(shards, names, goal=options.goal, seed=options.seed, unusable=unusable)}

    return StudyRun(provenance, len(conditions) * len(tasks), 1, measure, reduce_shards)


def _too_few(pairs: TaskPairs, count: int) -> str:
    why = ", ".join(f"{reason}: {number}" for reason, number in pairs.dropped.items())
    return f"{len(pairs)} of {count} pairs can be used with this tokenizer" + (f" ({why})" if why else "")


def _refuse_other_tokens(model: Model, other: Model | None, tasks: dict[str, TaskPairs]) -> None:
    if other is None or other.tokenizer is None or other.tokenizer is model.tokenizer:
        return
    for pairs in tasks.values():
        for pair, ids in zip(pairs.pairs, pairs.clean, strict=True):
            if tuple(other.ids(pair.clean)) != ids:
                raise DataError(
                    f"{model.id} and {other.id} tokenise {pair.clean!r} differently; circuits can be compared only on "
                    "the same tokens, so give a reference model with the same tokenizer"
                )


def _readings(found: TaskReadings, condition: Condition, pairs: TaskPairs, options: CircuitsOptions) -> xr.Dataset:
    """The readings as arrays of fixed size, NaN where there is nothing."""
    card, count, ranked = condition.structure.card, len(pairs), options.ranking
    effect = np.full((count, card.layers, card.heads), np.nan)
    if found.heads is not None:
        effect[:ranked, :, : found.heads.shape[2]] = found.heads
    size, random_size = (np.full((len(UNITS), MAX_SIZES), np.nan) for _ in range(2))
    score, random_score = (np.full((len(UNITS), MAX_SIZES, count), np.nan) for _ in range(2))
    for row, unit in enumerate(UNITS):
        circuit = found.circuits.get(unit)
        if circuit is None:
            continue
        for sizes, scores, into, scored in (
            (circuit.sizes, circuit.scores, size, score),
            (circuit.random_sizes, circuit.random_scores, random_size, random_score),
        ):
            into[row, : len(sizes)] = sizes
            scored[row, : len(sizes), ranked:] = scores
    edges = [*found.edges, *[("", np.nan)] * MAX_EDGES][:MAX_EDGES]
    exact = np.full((2, options.checked), np.nan)
    if found.exact is not None:
        exact[:, : found.exact.shape[1]] = found.exact
    return xr.Dataset(
        {
            "clean": (EXAMPLE, found.clean),
            "corrupt": (EXAMPLE, found.corrupt),
            "effect": ((EXAMPLE, LAYER, HEAD), effect),
            "size": ((UNIT, CIRCUIT_SIZE), size),
            "score": ((UNIT, CIRCUIT_SIZE, EXAMPLE), score),
            "random_size": ((UNIT, CIRCUIT_SIZE), random_size),
            "random_score": ((UNIT, CIRCUIT_SIZE, EXAMPLE), random_score),
            "edge": (RANK, np.array([name for name, _ in edges], dtype=object)),
            "edge_effect": (RANK, np.array([value for _, value in edges])),
            "exact": (("part", "place"), exact),
        },
        coords={UNIT: np.array(UNITS, dtype=object), LAYER: np.arange(card.layers), HEAD: np.arange(card.heads)},
        attrs={
            CONDITION: condition.key, TASK: pairs.task.name, "reason": found.reason, "no_edges": found.no_edges,
            "ranked": ranked, "tokens": len(pairs.clean[0]), "shown": pairs.pairs[0].clean, "expected": pairs.pairs[0].right[0],
        },
    ).assign_coords(label=CIRCUIT_TASKS[pairs.task.name].label)  # fmt: skip


@dataclass
class Circuit:
    """Growing circuits of heads, or of edges."""

    sizes: list[int]
    scores: Floats  # (size, prompt)
    random_sizes: list[int]
    random_scores: Floats  # (size, prompt)


@dataclass
class TaskReadings:
    """The readings of a task; all but the scores is empty where the model does not solve it."""

    clean: Floats  # (prompt,): all pairs, first those for ranking
    corrupt: Floats
    reason: str = ""  # why the model does not solve it
    heads: Floats | None = None  # (ranking prompt, layer, head) effects, in scores
    edges: list[tuple[str, float]] = field(default_factory=list)  # the largest from a head to a head or the logits
    circuits: dict[str, Circuit] = field(default_factory=dict)  # "heads", "edges"
    no_edges: str = ""  # why edges were not measured
    exact: Floats | None = None  # (2, head): effects by gradient and by patching, of those checked


class CircuitReader:
    """Measures tasks on one model."""

    def __init__(self, structure: Structure, options: CircuitsOptions):
        self.structure, self.options = structure, options
        self.graph = Graph.of([layer.heads for layer in structure.card.per_layer])
        streams = RawHeadOutputs()
        with torch.no_grad(), observe(structure, streams):
            structure.decoder(input_ids=structure.few_tokens(), use_cache=False)
        self.wiring: Wiring | None = None
        self.no_edges = "" if options.edges else "edges were switched off"
        if options.edges:
            try:
                self.wiring = Wiring(structure, streams.modules)
            except (StudyError, SeamError) as error:
                self.no_edges = str(error)
        self.head_exists = torch.tensor(
            [[head < count for head in range(max(self.graph.heads))] for count in self.graph.heads]
        )  # (layer, head)

    def read(self, pairs: TaskPairs) -> TaskReadings:
        """Measure one task."""
        batch = TaskBatch(self.structure, pairs)
        found = TaskReadings(_to_numpy(batch.scores()), _to_numpy(batch.scores(corrupt=True)))
        found.reason = why_not_solved(found.clean, found.corrupt)
        if found.reason:
            return found
        rank, measure = (
            batch.subset(rows) for rows in (range(self.options.ranking), range(self.options.ranking, len(batch)))
        )
        patchings = self._edge_patchings(measure)
        heads, edges = self._ranked(rank, with_edges=bool(patchings))
        found.no_edges = self.no_edges
        found.heads = _to_numpy(heads)
        found.exact = self._exact(rank, heads.mean(0))
        patching = HeadPatching(measure, self.options.batch_tokens)
        found.circuits["heads"] = self._circuit(
            found, heads.mean(0), self.head_exists, patching.scores_with, first=1, factor=2
        )
        if edges is not None:
            found.circuits["edges"] = self._circuit(
                found,
                edges,
                torch.from_numpy(self.graph.edges()),
                _patch_chunks(patchings),
                first=16,
                factor=4,
            )
            found.edges = self._largest_edges(edges)
        return found

    def _chunk_size(self, batch: TaskBatch) -> int:
        """Number of prompts whose senders fit into memory."""
        return max(1, MAX_HELD_NUMBERS // (self.graph.nodes * batch.tokens * self.structure.card.hidden_size))

    def _edge_patchings(self, batch: TaskBatch) -> list[EdgePatching]:
        """One per chunk of prompts; empty, with the reason in `no_edges`, where the model's layers do not allow it."""
        if self.wiring is None:
            return []
        try:
            return [EdgePatching(part, self.wiring, self.graph) for part in batch.chunks(self._chunk_size(batch))]
        except StudyError as error:
            self.no_edges = str(error)
        except RuntimeError as error:  # a norm that the MLP reads as well gets one batch per head
            self.no_edges = f"its layers cannot be run with one input per head ({str(error).splitlines()[0]})"
        self.wiring = None
        return []

    def _ranked(self, batch: TaskBatch, *, with_edges: bool) -> tuple[Tensor, Tensor | None]:
        """Effects of heads (prompt, layer, head), and of edges (receiver, sender) if requested."""
        parts = batch.chunks(self._chunk_size(batch))
        if not with_edges or self.wiring is None:
            return torch.cat([head_effects(part, steps=self.options.steps) for part in parts]), None
        found = [effects(part, self.wiring, self.graph, steps=self.options.steps) for part in parts]
        weights = torch.tensor([len(part) for part in parts]) / len(batch)
        edges = torch.stack([one.edges for one in found]).mul(weights[:, None, None]).sum(0)
        return torch.cat([one.heads for one in found]), edges

    def _circuit(
        self,
        found: TaskReadings,
        effect: Tensor,
        exists: Tensor,
        scores_with: Callable[[Tensor], Tensor],
        *,
        first: int,
        factor: int,
    ) -> Circuit:
        """Growing circuits of the units that exist, largest absolute effect first; and random ones."""
        indices = torch.nonzero(exists.flatten())[:, 0]
        order = indices[effect.flatten()[indices].abs().argsort(descending=True, stable=True)]
        clean, corrupt = found.clean[self.options.ranking :], found.corrupt[self.options.ranking :]
        generator = torch.Generator().manual_seed(self.options.seed)
        drawn = torch.stack([indices[torch.randperm(len(indices), generator=generator)] for _ in clean])

        def measure(sizes: Sequence[int], ranks: Tensor = order[None]) -> Floats:
            retain = torch.zeros(len(sizes), len(ranks), exists.numel(), dtype=torch.bool)
            for row, size in enumerate(sizes):
                retain[row].scatter_(1, ranks[:, :size], True)
            return _to_numpy(scores_with(retain.unflatten(2, exists.shape)))

        sizes = sizes_up_to(len(indices), first=first, factor=factor)
        done, scores = trace_curve(measure, sizes, len(indices), clean, corrupt, self.options.goal)
        at_random = sizes[1::2]
        return Circuit(done, scores, at_random, measure(at_random, drawn))

    def _exact(self, batch: TaskBatch, effect: Tensor) -> Floats:
        """Effects of some heads by gradient and by patching, (2, head)."""
        indices = torch.nonzero(self.head_exists.flatten())[:, 0]
        order = indices[effect.flatten()[indices].abs().argsort(descending=True, stable=True)]
        count = min(self.options.checked, len(order))
        rest = order[count // 2 :]
        generator = torch.Generator().manual_seed(self.options.seed)
        chosen = torch.cat(
            [order[: count // 2], rest[torch.randperm(len(rest), generator=generator)[: count - count // 2]]]
        )
        retain = torch.ones(len(chosen), self.head_exists.numel(), dtype=torch.bool)
        retain[torch.arange(len(chosen)), chosen] = False
        left = HeadPatching(batch, self.options.batch_tokens).scores_with(
            retain.unflatten(1, self.head_exists.shape)[:, None]
        )
        patched = batch.scores()[None] - left
        return np.stack([_to_numpy(effect.flatten()[chosen]), _to_numpy(patched.mean(1))])

    def _largest_edges(self, edges: Tensor) -> list[tuple[str, float]]:
        """The largest effects among edges from a head to a head or to the logits."""
        senders, receivers = self.graph.senders(), self.graph.receivers()
        sends = torch.tensor([name.startswith("L") for name in senders])
        reads = torch.tensor([not name.startswith("M") for name in receivers])
        between_heads = torch.where(reads[:, None] & sends[None, :], edges, 0.0).flatten()
        order = between_heads.abs().argsort(descending=True, stable=True)[:MAX_EDGES].tolist()
        nodes = self.graph.nodes
        return [
            (f"{senders[one % nodes]} > {receivers[one // nodes]}", float(between_heads[one]))
            for one in order
            if between_heads[one]
        ]


def why_not_solved(clean: Floats, corrupt: Floats) -> str:
    """Why a model does not solve a task; empty where it does. Scores are (prompt,)."""
    right = float((clean > 0).mean())
    if float(wilson_interval(np.array(right), np.array(len(clean)))[0]) <= CHANCE:
        return f"right in {100 * right:.0f} % of {len(clean)} prompts, which is not above chance"
    gaps = clean - corrupt
    half = float(t_half_width(gaps))
    if gaps.mean() - half <= 0:
        return f"clean prompts score {gaps.mean():.2f} more than corrupt ones, which is not above 0"
    return ""


def _patch_chunks(patchings: Sequence[EdgePatching]) -> Callable[[Tensor], Tensor]:
    """`EdgePatching.scores_with` of several chunks of prompts, one after the other."""
    ends = np.cumsum([0, *(len(part.batch) for part in patchings)])

    def scores_with(retain: Tensor) -> Tensor:
        rows = [retain if retain.shape[1] == 1 else retain[:, a:b] for a, b in pairwise(ends)]
        return torch.cat([part.scores_with(row) for part, row in zip(patchings, rows, strict=True)], dim=1)

    return scores_with


def _to_numpy(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()


def sizes_up_to(total: int, *, first: int, factor: int) -> list[int]:
    """Growing sizes below the total.

    >>> sizes_up_to(20, first=1, factor=2)
    [1, 2, 4, 8, 16]
    """
    sizes = []
    while first < total:
        sizes.append(first)
        first *= factor
    return sizes


def trace_curve(
    measure: Callable[[Sequence[int]], Floats],
    sizes: Sequence[int],
    total: int,
    clean: Floats,
    corrupt: Floats,
    goal: float,
) -> tuple[list[int], Floats]:
    """Sizes in order and scores (size, prompt).

    `measure` gives the scores of some sizes; clean and corrupt scores are (prompt,). At the total the score is the clean one.
    """
    found = dict(zip(sizes, measure(sizes), strict=True)) | {total: clean}
    while True:
        order = sorted(found)
        above = needed(order, _shares([found[size] for size in order], clean, corrupt), goal)
        below = max((size for size in order if size < above), default=0)
        middle = round((max(below, 1) * above) ** 0.5)
        if above <= below + 1 or above < MIN_SIZE_FACTOR * below or middle in found:
            return order, np.stack([found[size] for size in order])
        found[middle] = measure([middle])[0]


def _shares(scores: Sequence[Floats], clean: Floats, corrupt: Floats) -> Floats:
    return (np.mean(scores, axis=1) - corrupt.mean()) / (clean.mean() - corrupt.mean())
