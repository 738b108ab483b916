"""Does the model need this head? Prompts of equal length, cut from the texts; heads ablated by attribution and exactly.

Prompts are of two kinds: on a few (`ranking`), heads are ranked by attribution and those to be ablated exactly are chosen,
so that the choice does not favour what chance did to the prompts on which they are measured; on the others (`prompts`)
everything is measured. Means of head outputs are over all of them. Both steps are repeated by every process that measures,
with the same result, so shards are independent of each other. How heads are ablated: `ablating`.

Chosen: the tenth of the heads with the largest absolute attribution (mean ablation, all tokens), and a random tenth of the
others, which stands for all that are not ablated. Each prompt exchanges head outputs with one other, drawn at random.

Questions are shown as plain texts ("Question: ... Answer: ...", no chat template) and only the tokens of the gold answer are
scored: their loss is -log P(gold answer). Their heads are replaced by the mean over texts, or by those of another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import ABLATION, EXAMPLE, HEAD, LAYER, PLACE, TOKEN_CLASS
from headwise.corpora import Example, Questions
from headwise.engines import Shard
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.causal.ablating import Ablations, HeadUnit, LabelledExample, units_of
from headwise.studies.causal.classes import ANSWER, CLASSES, classify
from headwise.studies.causal.finalize import finalize
from headwise.studies.causal.spec import ABLATIONS, SPEC, CausalOptions
from headwise.studies.inputs import StudyInputs, cut_prompts
from headwise.studies.passes import Batch, batches, observe_examples
from headwise.studies.run import StudyRun, study_provenance

__all__ = ["prepare"]

SHARE = 0.1  # of the heads, chosen by attribution; as many at random
QUESTION = "question"  # the register of questions
MIN_RANDOM = 8  # heads on which the correction is fitted, where the model has as many


def prepare(model: Model, inputs: StudyInputs, options: CausalOptions | None = None) -> StudyRun:
    """What this model loses on these texts without each of its heads."""
    options = options or CausalOptions()
    passages = inputs.passages
    wanted = options.prompts + options.ranking
    prompts = cut_prompts(model, passages, options.tokens, wanted, model.card.max_positions)
    count = len(prompts.examples)
    measured = options.prompts if count == wanted else count - max(2, min(options.ranking, count // 4))
    data = {"name": passages.name, "size": measured, "texts": prompts.texts, "digest": passages.digest}
    items = label(model, prompts.examples, options.seed)
    asked: list[LabelledExample] = []
    if options.questions:
        questions = inputs.questions.sample(options.questions, seed=options.seed)
        asked = ask(model, questions, options.seed)
        data["questions"] = {"name": questions.name, "size": len(asked), "digest": questions.digest}
    reader = CausalReader(model, [*items[:measured], *asked], items[measured:], options)
    provenance = study_provenance(SPEC, model, data, options)

    def finalize_run(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        attrs = {"prompts": measured, "prompt_tokens": prompts.tokens, "questions": len(asked), "unit": options.unit}
        return {SPEC.name: finalize(shards).assign_attrs(attrs)}

    return StudyRun(provenance, measured + len(asked), options.shard, reader.measure, finalize_run)


class Chosen(NamedTuple):
    """Units that are ablated exactly, in the order of layers, and how each was chosen."""

    units: list[HeadUnit]
    role: list[str]  # "top", "random" or "all"


class CausalReader:
    """Measures prompts on one model; means and choice of heads are computed on the first shard."""

    def __init__(
        self,
        model: Model,
        items: Sequence[LabelledExample],
        ranking: Sequence[LabelledExample],
        options: CausalOptions,
    ) -> None:
        self.structure, self.options = Structure(model), options
        self.items, self.ranking = items, ranking

    @cached_property
    def ablations(self) -> Ablations:
        """With the means of all prompts."""
        options = self.options
        found = Ablations(
            self.structure, len(CLASSES), unit=options.unit, draws=options.draws, batch_tokens=options.batch_tokens
        )
        found.fit_means([item.example for item in (*self.items, *self.ranking) if item.example.register != QUESTION])
        return found

    @cached_property
    def chosen(self) -> Chosen:
        """The units to ablate exactly."""
        units = units_of(self.structure, self.options.unit)
        total = torch.zeros(self.structure.card.layers, self.structure.card.heads)
        texts = [item.example for item in self.ranking]
        for batch in batches(texts, self.options.batch_tokens, self.structure.device):
            found = self.ablations.on(batch, self.ranking).attribute(split=False)
            total += (found.first_order + found.curvature)[:, 0, 0].sum(0)  # mean ablation: (layer, head)
        return choose(units, total, self.options)

    def measure(self, shard: Shard) -> xr.Dataset:
        """The readings of some prompts."""
        items = self.items[shard.start : shard.stop]
        texts = [item.example for item in items]

        def measure_batch(batch: Batch) -> xr.Dataset:
            return self._read(batch, items)

        readings = observe_examples(texts, self.options.batch_tokens, self.structure.device, measure_batch)
        names = np.array([f"L{unit.layer}H{unit.first}" for unit in self.chosen.units], dtype=object)
        return readings.assign_coords(
            {
                PLACE: names,
                "role": (PLACE, np.array(self.chosen.role, dtype=object)),
                "heads": (PLACE, np.array([unit.heads for unit in self.chosen.units])),
                ABLATION: np.array(ABLATIONS, dtype=object),
                TOKEN_CLASS: np.array(CLASSES, dtype=object),
            }
        )

    def _read(self, batch: Batch, items: Sequence[LabelledExample]) -> xr.Dataset:
        one = self.ablations.on(batch, items)
        attributed = one.attribute()
        units = self.chosen.units
        rises = torch.zeros(len(batch.indices), len(ABLATIONS), len(CLASSES), len(units))
        divergences = torch.zeros_like(rises)
        for place, unit in enumerate(units):
            for kind, name in enumerate(ABLATIONS):
                rises[:, kind, :, place], divergences[:, kind, :, place] = one.ablate(unit, name)
        card = self.structure.card
        maps = (EXAMPLE, ABLATION, TOKEN_CLASS, LAYER, HEAD)
        return xr.Dataset(
            {
                "tokens": ((EXAMPLE, TOKEN_CLASS), one.counts().cpu().numpy()),
                "loss": ((EXAMPLE, TOKEN_CLASS), one.by_class(one.loss).cpu().numpy()),
                "norm": ((EXAMPLE, LAYER, HEAD), one.norms().numpy()),
                "first_order": (maps, attributed.first_order.numpy()),
                "curvature": (maps, attributed.curvature.numpy()),
                "exact": ((EXAMPLE, ABLATION, TOKEN_CLASS, PLACE), rises.numpy()),
                "exact_kl": ((EXAMPLE, ABLATION, TOKEN_CLASS, PLACE), divergences.numpy()),
            },
            coords={LAYER: np.arange(card.layers), HEAD: np.arange(card.heads)},
        )


def label(model: Model, prompts: Sequence[Example], seed: int) -> list[LabelledExample]:
    """Every prompt with the classes of its tokens and the prompt that it exchanges head outputs with."""
    tokenizer = model.tokenizer
    assert tokenizer is not None  # model.ids has refused otherwise
    order = np.random.default_rng(seed).permutation(len(prompts))
    partner = {int(one): int(other) for one, other in zip(order, np.roll(order, 1), strict=True)}
    found = []
    for index, prompt in enumerate(prompts):
        texts = tokenizer.batch_decode([[token] for token in prompt.ids])
        draw = index + len(prompts) * seed
        found.append(LabelledExample(prompt, classify(prompt.ids, texts), prompts[partner[index]], draw))
    return found


def ask(model: Model, questions: Questions, seed: int) -> list[LabelledExample]:
    """Questions with their first gold answer as plain texts; scored are the tokens of the answer.

    Left out: questions whose tokens change when the answer follows.
    """
    texts, classes = [], []
    for item in questions.items:
        context = f"{item.context}\n" if item.context else ""
        prompt = f"{context}Question: {item.question}\nAnswer:"
        begun, whole = (
            model.ids(text, limit=model.card.max_positions) for text in (prompt, f"{prompt} {item.answers[0]}")
        )
        if len(whole) > len(begun) and whole[: len(begun)] == begun:
            texts.append(Example(f"question {item.id}", QUESTION, tuple(whole)))
            classes.append(np.where(np.arange(len(whole)) < len(begun), -1, CLASSES.index(ANSWER)))
    draws = np.random.default_rng([seed, 2]).integers(0, 2**31, len(texts))
    return [
        LabelledExample(text, own, texts[index - 1], int(draw))
        for index, (text, own, draw) in enumerate(zip(texts, classes, draws, strict=True))
    ]


def choose(units: Sequence[HeadUnit], attribution: torch.Tensor, options: CausalOptions) -> Chosen:
    """The tenth with the largest absolute attribution (layer, head), and a random tenth of the others."""
    count = max(1, round(SHARE * len(units)))
    strength = torch.stack([attribution[unit.layer, unit.first] for unit in units]).abs().numpy()
    order = np.argsort(-strength, kind="stable")
    rest = np.random.default_rng([options.seed, 1]).permutation(order[count:])[: max(count, MIN_RANDOM)]
    role = {int(index): "top" for index in order[:count]} | {int(index): "random" for index in rest}
    if options.exact == "all":
        role = {index: role.get(index, "all") for index in range(len(units))}
    return Chosen([units[index] for index in sorted(role)], [role[index] for index in sorted(role)])
