"""Do heads do in texts what their weights say, and does the model need them for it? The relations study, validated.

**Outputs.** For every relation, prompts around its source words ("The capital of {s} is"); for every prompt, two vectors
per head:

    natural   z at the last token, with the attention as it is
    forced    z as it would be with all attention on the source: the source's value vector

Each is multiplied out, z W_O U, without the final norm, and the target is found when it is among the k largest entries, with
the k of the `relations` study. A head that writes nothing (a pruned one) finds nothing. The share of prompts where the target
is found is compared over all heads with the score from weights, by Pearson's correlation with a bootstrap interval over
heads. Control: the mean correlation with the scores of all the *other* relations (`other_*`).

**Removal** (`removal`). For some relations as few-shot tasks, on prompts that the whole model completes correctly: heads are
ablated at the last token, the relation's own from the highest score down. Controls: as many heads of the same layers, drawn
twenty times, among which the relation's heads are ranked; and the other tasks, whose accuracy should not fall without this
relation's heads.

    effect    mean over all steps of (accuracy without random heads - accuracy without the relation's heads)
    spill     the same on the control tasks: their accuracy without random heads, less that without this relation's heads

both with a 95 % interval over prompts (and, for the effect, over draws). A task of which the model solves too few prompts is
reported as unsolved and left out.

After the validation of Elhelo & Geva (arXiv 2412.11965), who report correlations of .44 to .98 (forced). Cost: one pass over
the prompts, then per head 2 width vocabulary (hidden + 2 prompts) operations (`headwise.kernels.ov_logits`); held: 2 x
prompts x heads x width numbers. On the default model about three minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import CONTROL, DRAW, EXAMPLE, HEAD, LAYER, RELATION, REMOVED, TOKEN
from headwise.core.errors import DataError, StudyError
from headwise.core.progress import StepCount
from headwise.corpora import SLOT, Example, Relations, SingleTokenPairs, single_token_pairs
from headwise.engines import Shard
from headwise.instruments.outputs import HeadOutputs, HeadValues
from headwise.kernels.ov_logits import RankQuery, ov_logit_blocks, topk_hits
from headwise.model import Model
from headwise.seam import HeadWeights, Structure, observe, output_projections
from headwise.studies.inputs import StudyInputs, origin_of, require_loaded
from headwise.studies.passes import Batch, observe_examples
from headwise.studies.relation_validation.finalize import finalize
from headwise.studies.relation_validation.removal import (
    GENERIC_TEMPLATES,
    Head,
    LastToken,
    RemovalOutcomes,
    ranked_heads,
    remove,
    shuffled_rows,
    task_of,
)
from headwise.studies.relation_validation.spec import SPEC, RelationValidationOptions
from headwise.studies.run import StudyRun, study_provenance

TASKS = ("antonym", "comparative", "copying", "country-capital", "past-tense", "plural")  # where the data has them
MAX_TASKS = 6  # of a user's own relations


def prepare(model: Any, inputs: StudyInputs, options: RelationValidationOptions | None = None) -> StudyRun:
    """The validation of a map of the study `relations`, made from the same relations on the same model."""
    options = options or RelationValidationOptions()
    relations, maps = inputs.relations, inputs.maps["relations"]
    require_loaded(model, SPEC.name)
    origin = origin_of(maps, "relations", relations)
    validation = RelationValidation(model, relations, maps, options)
    count = len(validation.pairs)
    data = {"name": relations.name, "size": count, "digest": origin.key()}

    def reduce_shards(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=RELATION, data_vars="all")
        return {SPEC.name: finalize(readings, maps, least_solved=options.least_solved, seed=options.seed)}

    provenance = study_provenance(SPEC, model, data, options)
    return StudyRun(provenance, count, options.shard, validation.measure, reduce_shards)


class RelationValidation:
    """A model, the single-token pairs of the relations, and the heads of each relation in order of their scores."""

    def __init__(self, model: Model, relations: Relations, maps: xr.Dataset, options: RelationValidationOptions):
        self.model, self.options = model, options
        self.structure = Structure(model)
        self.unembedding = HeadWeights(model).unembedding
        names = [str(name) for name in maps[RELATION].values]
        self.pairs: list[SingleTokenPairs] = [single_token_pairs(relations[name], model.tokenizer) for name in names]
        self.k = dict(zip(names, maps["k"].values.tolist(), strict=True))
        score = maps["score"].transpose(RELATION, LAYER, HEAD).values
        self.all_heads: list[Head] = [(int(layer), int(head)) for layer, head in np.argwhere(np.isfinite(score[0]))]
        self.ranked = {name: ranked_heads(score[names.index(name)]) for name in self._tasks(relations, names)}
        self.steps = [step for step in options.removed if step <= max(1, len(self.all_heads) // 2)]

    def _tasks(self, relations: Relations, names: Sequence[str]) -> list[str]:
        if self.options.tasks is None:
            known = [name for name in TASKS if name in names]
            return known or list(names[:MAX_TASKS])
        for name in self.options.tasks:
            relations[name]  # raises for an unknown one
            if name not in names:
                raise DataError(
                    f"the relation {name!r} has too few single-token pairs for {self.model.id}; choose another task"
                )
        return list(self.options.tasks)

    def measure(self, shard: Shard) -> xr.Dataset:
        """Some relations: targets found in the outputs of heads and, for tasks, accuracy without heads."""
        some = self.pairs[shard.start : shard.stop]
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
        """A task's outcomes, padded with NaN to the maximum number of prompts; all NaN for a relation that is no task."""
        options, others = self.options, list(self.ranked)
        tried, right, run = self._solved(one)
        if run is None:
            shape = (0, len(self.steps))  # (prompt, removed)
            found = RemovalOutcomes(
                *(np.zeros((*more, *shape), np.float32) for more in ((), (options.draws,), (len(others),)))
            )
        else:
            found = remove(
                run,
                self.ranked,
                self.all_heads,
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
        """Number of prompts tried and correct, and the prompts to ablate on; None for no task, or one solved too rarely."""
        options = self.options
        if one.relation.name not in self.ranked:
            return 0, 0, None
        task = task_of(self.model, one, shots=options.shots, count=options.tried, seed=options.seed)
        right = np.flatnonzero(LastToken(self.model, task).right([()])[0]).tolist() if len(task) else []
        if len(right) < options.least_solved:
            return len(task), len(right), None
        return len(task), len(right), LastToken(self.model, task.only(right[: options.solved]))


@dataclass(frozen=True)
class SourcePrompt:
    """A template with a source word."""

    ids: tuple[int, ...]
    source_index: int  # of the source among the tokens
    target: int  # its token


def prompts_of(model: Model, pairs: SingleTokenPairs, count: int, seed: int) -> list[SourcePrompt]:
    """At most ``count`` prompts, cycling through the relation's templates; sources that are no token of their own are left out.

    Which pairs are used depends only on the seed and the relation's name.
    """
    templates = pairs.relation.templates or GENERIC_TEMPLATES
    found: list[SourcePrompt] = []
    for row in shuffled_rows(len(pairs), pairs, seed):
        template = templates[len(found) % len(templates)]
        ids, index = _ids_and_source_index(model, template, pairs.pairs[row][0])
        if len(found) < count and ids[index] == pairs.sources[row]:
            found.append(SourcePrompt(ids, index, pairs.targets[row]))
    return found


def _ids_and_source_index(model: Model, template: str, source: str) -> tuple[tuple[int, ...], int]:
    """A prompt's tokens, and the index of the source, which is the last token of the text up to it."""
    before, _, after = template.partition(SLOT)
    ids = tuple(model.ids(before + source + after))
    return ids, min(len(model.ids(before + source)), len(ids)) - 1


Floats = NDArray[np.float64]


def found_in_outputs(
    structure: Structure, unembedding: Tensor, prompts: Sequence[SourcePrompt], k: Sequence[int], batch_tokens: int
) -> tuple[Floats, Floats]:
    """For each prompt and head, 1 where the target is among the k largest: natural and forced, (prompt, layer, head).

    `unembedding` is (vocabulary, hidden); NaN stands where a layer has no such head.
    """
    outputs, values = _vectors(structure, prompts, batch_tokens)
    natural, forced = (np.full(outputs.shape[:3], np.nan) for _ in range(2))
    device, count = structure.device, len(prompts)
    rows = torch.arange(2 * count, device=device)
    targets = torch.tensor([prompt.target for prompt in prompts] * 2, device=device)[None]
    query = RankQuery(rows, targets, torch.tensor([*k, *k], device=device))
    projections = output_projections(structure)
    done = StepCount("layers", len(projections))
    for layer, projection in projections.items():
        if projection.between is not None:
            raise StudyError(
                f"layer {layer} of {structure.card.id} has a {projection.between} before its output projection, so a "
                "value is not what its head would write; validate the relations of another model"
            )
        weight = projection.weight.to(device=device, dtype=torch.float32)  # (head, width, hidden)
        heads, width, _ = weight.shape
        both = np.concatenate([outputs[:, layer, :heads, :width], values[:, layer, :heads, :width]])
        z = torch.from_numpy(both).to(device).transpose(0, 1).contiguous()  # (head, 2 x prompt, width)
        writes = torch.bmm(z, weight).abs().amax(-1) > 0  # (head, 2 x prompt)
        for some, product in ov_logit_blocks(weight, unembedding):
            found = (
                (topk_hits(z[some], product, query).largest[:, 0] & writes[some]).T.cpu().numpy()
            )  # (2 x prompt, head)
            natural[:, layer, some], forced[:, layer, some] = found[:count], found[count:]
        done()
    return natural, forced


def _vectors(structure: Structure, prompts: Sequence[SourcePrompt], batch_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """For every head: z at the last token and v at the source, (prompt, layer, head, width)."""
    examples = [Example(str(row), "prompt", prompt.ids) for row, prompt in enumerate(prompts)]

    def measure_batch(batch: Batch) -> xr.Dataset:
        sources = torch.tensor([[prompts[row].source_index] for row in batch.indices], device=structure.device)
        with torch.no_grad(), observe(structure, HeadOutputs("last"), HeadValues(sources), valid=batch.valid) as seen:
            structure.decoder(input_ids=batch.ids, use_cache=False)
        return xr.Dataset({"z": seen["outputs"]["z"].isel({TOKEN: 0}), "v": seen["values"]["v"].isel({TOKEN: 0})})

    readings = observe_examples(examples, batch_tokens, structure.device, measure_batch)
    return readings["z"].values, readings["v"].values
