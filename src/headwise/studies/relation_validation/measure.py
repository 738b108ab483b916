"""Do heads do in texts what their weights say, and does the model need them for it? The relations study, checked.

**Outputs.** For every relation, prompts around its source words: is the target among the k tokens that the head's output
at the last token promotes most, with the attention as it is (`natural`), and with all of it on the source (`forced`)?
Compared over all heads with the score from weights, by Pearson's correlation with a bootstrap interval over heads.
Control: the mean correlation with the scores of all the *other* relations (`other_*`).

**Removal.** For some relations as few-shot tasks, on prompts that the whole model completes right: heads are switched off
at the last token, the relation's own from the highest score down. Controls: as many heads drawn at random, several
times; and the other tasks, whose accuracy should not fall when this relation's heads are gone.

    effect    mean over all steps of (accuracy without random heads - accuracy without the relation's heads)
    spill     the same on the control tasks: their accuracy without random heads, less that without this relation's heads

both with a 95 % interval over prompts (and, for the effect, over draws). A task of which the model solves too few
prompts is named as unsolved and left out.

After the validation of Elhelo & Geva (arXiv 2412.11965). Cost: see `outputs` and `removal`; on the
default model about three minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import CONTROL, DRAW, EXAMPLE, HEAD, LAYER, RELATION, REMOVED
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Relations, SingleTokenPairs, single_token_pairs
from headwise.engines import Shard
from headwise.model import Model
from headwise.seam import HeadWeights, Structure
from headwise.studies.inputs import StudyInputs
from headwise.studies.relation_validation.evidence import to_dataset
from headwise.studies.relation_validation.outputs import found_in_outputs
from headwise.studies.relation_validation.prompts import prompts_of, task_of
from headwise.studies.relation_validation.removal import Head, LastToken, Outcomes, ranked_heads, remove
from headwise.studies.relation_validation.spec import SPEC, RelationValidationOptions
from headwise.studies.run import StudyRun

TASKS = ("antonym", "comparative", "copying", "country-capital", "past-tense", "plural")  # where the data has them
MOST_TASKS = 6  # of a user's own relations


def prepare(model: Any, inputs: StudyInputs, options: RelationValidationOptions | None = None) -> StudyRun:
    """The validation of `maps` (the Dataset of the study `relations`), made from these relations on this model."""
    options = options or RelationValidationOptions()
    relations, maps = inputs.relations, inputs.maps["relations"]
    if not isinstance(model, Model):
        raise StudyError(f"{SPEC.name} runs the model, and {model.id} was only opened; load it")
    origin = Provenance.from_attrs(maps.attrs)
    if origin.data.get("digest") != relations.digest:
        raise DataError(
            f"the map of relations was made from {origin.data.get('name')} ({origin.data.get('digest')}), and these are "
            f"{relations.name} ({relations.digest}); give the same relations, or make the map anew with --redo relations"
        )
    work = Validation(model, relations, maps, options)
    data = {"name": relations.name, "size": len(work.kept), "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=RELATION, data_vars="all")
        return {SPEC.name: to_dataset(readings, maps, least_solved=options.least_solved, seed=options.seed)}

    return StudyRun(provenance, len(work.kept), options.shard, work.measure, conclude)


class Validation:
    """A model, the relations as its tokenizer has them, and the heads of each relation in order."""

    def __init__(self, model: Model, relations: Relations, maps: xr.Dataset, options: RelationValidationOptions):
        self.model, self.options = model, options
        self.structure = Structure(model)
        self.unembedding = HeadWeights(model).unembedding
        names = [str(name) for name in maps[RELATION].values]
        self.kept: list[SingleTokenPairs] = [single_token_pairs(relations[name], model.tokenizer) for name in names]
        self.k = dict(zip(names, maps["k"].values.tolist(), strict=True))
        score = maps["score"].transpose(RELATION, LAYER, HEAD).values
        self.everyone: list[Head] = [(int(layer), int(head)) for layer, head in np.argwhere(np.isfinite(score[0]))]
        self.ranked = {name: ranked_heads(score[names.index(name)]) for name in self._tasks(relations, names)}
        self.steps = [step for step in options.removed if step <= max(1, len(self.everyone) // 2)]

    def _tasks(self, relations: Relations, names: Sequence[str]) -> list[str]:
        if self.options.tasks is None:
            known = [name for name in TASKS if name in names]
            return known or list(names[:MOST_TASKS])
        for name in self.options.tasks:
            relations[name]  # refuses an unknown one
            if name not in names:
                raise DataError(
                    f"the relation {name!r} has too few single-token pairs for {self.model.id}; choose another task"
                )
        return list(self.options.tasks)

    def measure(self, shard: Shard) -> xr.Dataset:
        """Some relations: what heads put out, and where the relation is a task, what is left of it."""
        some = self.kept[shard.start : shard.stop]
        outputs = self._outputs(some)
        removal = xr.concat([self._removal(one) for one in some], dim=RELATION, data_vars="all")
        names = np.array([one.relation.name for one in some], dtype=object)
        return xr.merge([outputs, removal]).assign_coords({RELATION: names})

    def _outputs(self, some: Sequence[SingleTokenPairs]) -> xr.Dataset:
        options = self.options
        prompts = [prompts_of(self.model, one, options.prompts, options.seed) for one in some]
        for one, found in zip(some, prompts, strict=True):
            if not found:
                raise DataError(
                    f"no prompt of {one.relation.name!r} has its source word as a token of its own; change its templates"
                )
        flat = [prompt for found in prompts for prompt in found]
        k = [self.k[one.relation.name] for one, found in zip(some, prompts, strict=True) for _ in found]
        natural, forced = found_in_outputs(self.structure, self.unembedding, flat, k, options.batch_tokens)
        ends = np.cumsum([len(found) for found in prompts])[:-1]
        dims = (RELATION, LAYER, HEAD)
        card = self.structure.card
        return xr.Dataset(
            {
                "natural": (dims, np.stack([part.mean(0) for part in np.split(natural, ends)])),
                "forced": (dims, np.stack([part.mean(0) for part in np.split(forced, ends)])),
                "prompts": (RELATION, [len(found) for found in prompts]),
            },
            coords={LAYER: np.arange(card.layers), HEAD: np.arange(card.heads)},
        )

    def _removal(self, one: SingleTokenPairs) -> xr.Dataset:
        """A task's outcomes, in as many rows as prompts are asked at most; all NaN for what is no task."""
        options, others = self.options, list(self.ranked)
        tried, right, run = self._solved(one)
        if run is None:
            shape = (0, len(self.steps))  # (prompt, removed)
            found = Outcomes(
                *(np.zeros((*more, *shape), np.float32) for more in ((), (options.draws,), (len(others),)))
            )
        else:
            found = remove(
                run,
                self.ranked,
                self.everyone,
                steps=self.steps,
                draws=options.draws,
                seed=options.seed,
                same_layers=options.same_layers,
            )
        missing = options.solved - len(found.own)
        own, random, control = (
            np.pad(part, [(0, 0)] * (part.ndim - 2) + [(0, missing), (0, 0)], constant_values=np.nan)
            for part in (found.own, found.random, found.control)
        )
        return xr.Dataset(
            {
                "own": ((EXAMPLE, REMOVED), own),
                "random": ((DRAW, EXAMPLE, REMOVED), random),
                "others": ((CONTROL, EXAMPLE, REMOVED), control),
                "tried": tried,
                "right": right,
                "asked": len(found.own),
                "is_task": one.relation.name in self.ranked,
            },
            coords={REMOVED: self.steps, CONTROL: np.array(others, dtype=object)},
        )

    def _solved(self, one: SingleTokenPairs) -> tuple[int, int, LastToken | None]:
        """Prompts tried, prompts right, and those to ask again; None where the relation is no task, or solved too rarely."""
        options = self.options
        if one.relation.name not in self.ranked:
            return 0, 0, None
        task = task_of(self.model, one, shots=options.shots, count=options.tried, seed=options.seed)
        right = np.flatnonzero(LastToken(self.structure, task).right()).tolist() if len(task) else []
        if len(right) < options.least_solved:
            return len(task), len(right), None
        return len(task), len(right), LastToken(self.structure, task.only(right[: options.solved]))
