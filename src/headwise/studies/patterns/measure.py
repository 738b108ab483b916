"""What do the attention maps look like, dense and sparse?

Shown: prompts of equal length (`inputs.cut_prompts`), so that maps can be averaged, and one prompt whose maps are stored.
Observed, of one model or of two (`conditions`): eight statistics per head (`instruments.pattern_statistics`), maps pooled
to a size that can be drawn (`PooledMaps`), the similarity of the two models' maps (`MapComparison`), the loss, and the
divergence of the next-token distributions.

After Draye, Lei et al. (arXiv 2512.05865), whose figure shows the maps of a model above those of its sparse version.

Cost: one pass over prompts x tokens per model, and a few over one layer's T x T maps at a time. While the second model runs,
the first one's maps and next-token distributions of the batch are held: 4 bytes x examples x (heads x T x T + T x vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import CONDITION, EXAMPLE, HEAD, KEY, LAYER, POOLED_KEY, POOLED_QUERY, QUERY, STATISTIC
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments import MapComparison, Patterns, PatternStatistics, PooledMaps
from headwise.instruments.pattern_statistics import COMPARED
from headwise.model import Model, check_finite
from headwise.seam import Instrument, observe
from headwise.studies.inputs import StudyInputs, cut_prompts
from headwise.studies.passes import Batch, observe_examples
from headwise.studies.patterns.conditions import (
    Condition,
    check_same_tokens,
    conditions_of,
    context_of,
    identity_of,
    reference_model,
)
from headwise.studies.patterns.finalize import finalize
from headwise.studies.patterns.spec import SPEC, PatternsOptions
from headwise.studies.run import StudyRun

MAX_PIXELS = 64  # side of a stored map


def prepare(model: Model, inputs: StudyInputs, options: PatternsOptions | None = None) -> StudyRun:
    """The patterns of this model on these texts, next to those of a reference model."""
    options = options or PatternsOptions()
    passages, against = inputs.passages, inputs.reference
    other = None if options.heads_off is not None and against is None else reference_model(model, against)
    if other is not None:
        check_finite(other.hf)
    conditions = conditions_of(model, other, options.heads_off)
    check_same_tokens(model, other, passages, options.prompt)
    context = context_of([model, other])
    shown = _shown_prompt(model, options.prompt, context)
    prompts = cut_prompts(model, passages, options.tokens, options.prompts, context)
    options = replace(options, tokens=prompts.tokens, prompts=len(prompts.examples))
    data = {"name": passages.name, "size": len(prompts.examples), "texts": prompts.texts, "digest": passages.digest}
    parameters = asdict(options) | {"reference": None if other is None else identity_of(other)}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, 0)

    def measure(shard: Shard) -> xr.Dataset:
        readings = measure_prompts(conditions, prompts.examples[shard.start : shard.stop], options)
        return readings if shard.start else readings.assign(shown=shown_maps(conditions, shown))

    def finalize_run(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        thresholds = {"active": options.active, "peak": options.peak}
        names = [condition.name for condition in conditions]
        return {SPEC.name: finalize(shards, names, model.tokens(list(shown.ids)), thresholds)}

    return StudyRun(provenance, len(prompts.examples), options.shard, measure, finalize_run)


def _shown_prompt(model: Model, prompt: str, context: int | None) -> Example:
    """The prompt whose maps are stored, as tokens; `context`: the most tokens that all models accept."""
    ids = tuple(model.ids(prompt))
    if len(ids) < 2:
        raise DataError(f"the prompt {prompt!r} has one token, and a map of one token shows nothing; give more")
    if context is not None and len(ids) > context:
        raise DataError(
            f"the prompt to be shown has {len(ids)} tokens, and the smaller context of the two models is {context}; shorten it"
        )
    return Example("shown", "shown", ids)


def measure_prompts(
    conditions: Sequence[Condition], examples: Sequence[Example], options: PatternsOptions
) -> xr.Dataset:
    """The readings of some prompts of equal length, in the order they were given."""
    device = conditions[0].structure.device
    maps: list[xr.DataArray] = []  # summed over the examples of each batch

    def measure_batch(batch: Batch) -> xr.Dataset:
        part = _measure_batch(conditions, batch, options)
        maps.append(part["maps"])
        return part.drop_vars("maps")

    readings = observe_examples(examples, options.batch_tokens, device, measure_batch)
    return readings.assign(maps=sum(maps)).assign_coords(register=(EXAMPLE, [one.register for one in examples]))


def shown_maps(conditions: Sequence[Condition], example: Example) -> xr.DataArray:
    """Every head's map of one prompt, (condition, layer, head, query, key); pooled where it is longer than `MAX_PIXELS`."""
    found = []
    for condition in conditions:
        ids = torch.tensor([example.ids], device=condition.structure.device)
        _, seen = _run(condition, ids, PooledMaps(MAX_PIXELS))
        found.append(seen["pooled_maps"]["maps"].isel({EXAMPLE: 0}))
    return xr.concat(found, dim=CONDITION).transpose(CONDITION, LAYER, HEAD, QUERY, KEY)


def _measure_batch(conditions: Sequence[Condition], batch: Batch, options: PatternsOptions) -> xr.Dataset:
    first, *rest = conditions
    numbers, maps, losses = [], [], []
    held, first_maps, before, between = Patterns(), None, None, {}
    for condition in conditions:
        observers: list[Instrument] = [PatternStatistics(options.active, options.peak), PooledMaps(MAX_PIXELS)]
        if rest:
            observers.append(held if first_maps is None else MapComparison(first_maps, options.active))
        logits, seen = _run(condition, batch.ids.to(condition.structure.device), *observers)
        _refuse_not_finite(condition, seen["pattern_statistics"])
        logs = logits[:, :-1].float().log_softmax(dim=-1)  # (batch, token, vocabulary)
        losses.append(_loss(logs, batch.ids))
        numbers.append(seen["pattern_statistics"])
        maps.append(
            seen["pooled_maps"]["maps"].sum(EXAMPLE, skipna=False).rename({QUERY: POOLED_QUERY, KEY: POOLED_KEY})
        )
        if rest and condition is first:
            first_maps, before = held.result(), logs
        elif before is not None:
            between = dict(seen["map_comparison"][list(COMPARED)].data_vars) | {"kl": (EXAMPLE, _kl(before, logs))}
    return xr.Dataset(
        {
            "value": xr.concat([one["value"] for one in numbers], dim=CONDITION),
            "uniform": numbers[0]["uniform"],
            "maps": xr.concat(maps, dim=CONDITION),
            "loss": ((CONDITION, EXAMPLE), np.stack(losses)),
            **between,
        }
    ).transpose(CONDITION, EXAMPLE, STATISTIC, LAYER, HEAD, ...)


def _run(condition: Condition, ids: Tensor, *observers: Instrument) -> tuple[Tensor, Any]:
    with torch.no_grad(), observe(condition.structure, *condition.interventions, *observers) as seen:
        logits = condition.structure.hf(input_ids=ids, use_cache=False).logits
    return logits, seen


def _loss(logs: Tensor, ids: Tensor) -> np.ndarray:
    """(batch,): mean over tokens of -log P(next token), in nats."""
    chosen = logs.gather(-1, ids[:, 1:, None].to(logs.device))[..., 0]
    return (-chosen.double().mean(dim=1)).cpu().numpy().astype(np.float32)


def _kl(before: Tensor, after: Tensor) -> np.ndarray:
    """(batch,): the mean over tokens of KL(before || after)."""
    after = after.to(before.device)
    each = (before.exp() * (before - after)).sum(dim=-1)
    return each.double().mean(dim=1).clamp(min=0).cpu().numpy().astype(np.float32)


def _refuse_not_finite(condition: Condition, readings: xr.Dataset) -> None:
    """A head without any attention has no entropy, but every head has a largest weight."""
    peak = readings["value"].sel({STATISTIC: "peak"})
    for layer in condition.structure.card.per_layer:
        here = peak.isel({LAYER: layer.index, HEAD: slice(0, layer.heads)})
        if layer.reason is None and bool(here.isnull().any()):
            raise StudyError(
                f"layer {layer.index} of {condition.name} gives attention that is not a number; the model's dtype overflows "
                "or its weights are damaged: load it with dtype=float32, or check the files"
            )
