"""Which heads, and which connections between them, does a task need; and how few, dense against sparse?

Shown: pairs of prompts of small tasks (`corpora.circuit_tasks`), clean and corrupt. Measured, of one model or of two
(the second as in `patterns`, the sparse twin by default): how well the model does the task; the effect of every head
(`attribution`), checked by exact patching; and growing circuits of heads and of edges, all else as on the corrupt
prompt, beside random ones of the same size (`reading`). Concluded: the share of the clean-corrupt difference that circuits
explain, the size that explains 90 %, and the ratio of that size between the two models (`evidence`).

After Draye, Lei et al. (arXiv 2512.05865), who report 2 to 4 times fewer heads and 43 to 97 times fewer edges.

A task that the model does not do is named with the reason and left out. One work item is one task on one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, KEPT, LAYER, RANK, SUBJECT, TASK, UNIT
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import CIRCUIT_TASKS, TaskPairs, circuit_pairs
from headwise.corpora.rows import digest_of
from headwise.engines import Shard
from headwise.model import Model, check_finite, is_offloaded
from headwise.studies.circuits.evidence import UNITS, to_dataset
from headwise.studies.circuits.reading import Found, Reader
from headwise.studies.circuits.spec import SPEC, CircuitsOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.patterns.conditions import Condition, conditions_of, reference_model
from headwise.studies.run import StudyRun

__all__ = ["prepare"]

SLOTS, EDGES = 32, 20  # sizes of a curve, and edges named, at most


def prepare(model: Model, inputs: StudyInputs, options: CircuitsOptions | None = None) -> StudyRun:
    """The circuits of this model, beside those of another (`patterns.conditions.reference_model` says which)."""
    options = options or CircuitsOptions()
    against = inputs.reference
    if is_offloaded(model.hf):
        raise StudyError(
            f"circuits follows gradients back through all layers, which holds all weights of {model.id} in memory at once, and "
            "it is offloaded; load it whole, on one device or over several GPUs"
        )
    other = reference_model(model, against)
    if other is not None:
        check_finite(other.hf)
    subjects = conditions_of(model, other, None)
    count = options.ranking + options.measuring
    made = {name: circuit_pairs(name, model.ids, count=count, seed=options.seed) for name in options.chosen}
    few = {name: _too_few(pairs, count) for name, pairs in made.items() if len(pairs) < count}
    tasks = {name: pairs for name, pairs in made.items() if name not in few}
    if not tasks:
        raise DataError(
            f"no task can be put to {model.id}: " + "; ".join(f"{name}: {why}" for name, why in few.items())
        )
    _refuse_other_tokens(model, other, tasks)
    digest = digest_of([name, *row] for name, pairs in tasks.items() for row in (*pairs.clean, *pairs.corrupt))
    data = {"name": "circuit tasks", "size": len(tasks) * count, "digest": digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    parameters |= {"tasks": list(options.chosen), "against": None if other is None else _known(other)}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)
    work = _Circuits(subjects, list(tasks.values()), options)

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        names = [subject.name for subject in subjects]
        return {SPEC.name: to_dataset(shards, names, goal=options.goal, seed=options.seed, unusable=few)}

    return StudyRun(provenance, len(subjects) * len(tasks), 1, work.measure, conclude)


def _known(model: Model) -> dict[str, Any]:
    """Who the second model is, without what follows from the rest."""
    return {part: value for part, value in model.identity().items() if part != "parameters"}


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
                    f"{model.id} and {other.id} cut {pair.clean!r} into different tokens; circuits can be compared only "
                    "where both see the same tokens, so give a model of the same tokenizer"
                )


class _Circuits:
    """All tasks on the first model, then all on the second."""

    def __init__(self, subjects: Sequence[Condition], tasks: Sequence[TaskPairs], options: CircuitsOptions):
        self.subjects, self.tasks, self.options = subjects, tasks, options

    @cached_property
    def readers(self) -> list[Reader]:
        return [Reader(subject.structure, self.options) for subject in self.subjects]

    def measure(self, shard: Shard) -> xr.Dataset:
        """One task on one model."""
        subject, task = divmod(shard.start, len(self.tasks))
        found = self.readers[subject].read(self.tasks[task])
        return _readings(found, self.subjects[subject], self.tasks[task], self.options)


def _readings(found: Found, subject: Condition, pairs: TaskPairs, options: CircuitsOptions) -> xr.Dataset:
    """What was found in arrays of fixed size, NaN where there is nothing."""
    card, count, ranked = subject.structure.card, len(pairs), options.ranking
    effect = np.full((count, card.layers, card.heads), np.nan)
    if found.heads is not None:
        effect[:ranked, :, : found.heads.shape[2]] = found.heads
    size, random_size = (np.full((len(UNITS), SLOTS), np.nan) for _ in range(2))
    score, random_score = (np.full((len(UNITS), SLOTS, count), np.nan) for _ in range(2))
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
    edges = [*found.edges, *[("", np.nan)] * EDGES][:EDGES]
    exact = np.full((2, options.checked), np.nan)
    if found.exact is not None:
        exact[:, : found.exact.shape[1]] = found.exact
    return xr.Dataset(
        {
            "clean": (EXAMPLE, found.clean),
            "corrupt": (EXAMPLE, found.corrupt),
            "effect": ((EXAMPLE, LAYER, HEAD), effect),
            "size": ((UNIT, KEPT), size),
            "score": ((UNIT, KEPT, EXAMPLE), score),
            "random_size": ((UNIT, KEPT), random_size),
            "random_score": ((UNIT, KEPT, EXAMPLE), random_score),
            "edge": (RANK, np.array([name for name, _ in edges], dtype=object)),
            "edge_effect": (RANK, np.array([value for _, value in edges])),
            "exact": (("part", "place"), exact),
        },
        coords={UNIT: np.array(UNITS, dtype=object), LAYER: np.arange(card.layers), HEAD: np.arange(card.heads)},
        attrs={
            SUBJECT: subject.key, TASK: pairs.task.name, "reason": found.reason, "no_edges": found.no_edges, "ranked": ranked,
            "tokens": len(pairs.clean[0]), "shown": pairs.pairs[0].clean, "expected": pairs.pairs[0].right[0],
        },
    ).assign_coords(label=CIRCUIT_TASKS[pairs.task.name].label)  # fmt: skip
