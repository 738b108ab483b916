"""What do the attention maps look like, dense and sparse?

Shown: prompts of equal length (`inputs.cut_prompts`), so that maps can be averaged, and one prompt whose maps are stored.
Observed, of one model or of two (`conditions`): eight statistics per head (`instruments.pattern_statistics`), maps pooled
to a size that can be drawn (`PooledMaps`), the similarity of the two models' maps (`MapComparison`), the loss, and the
divergence of the next-token distributions.

Per head: means over prompts with 95 % intervals (Student's t). Between two conditions: the change of each statistic with a
paired test over prompts (`stats.paired_changes`), the similarity of the maps with its control, and the shares of active
edges dropped and gained. For the model as a whole (`whole`, along `feature`): one number per prompt, such as the share of
heads that are dominant there, then mean, interval and paired test over prompts.

After Draye, Lei et al. (arXiv 2512.05865), whose figure shows the maps of a model above those of its sparse version.

Cost: one pass over prompts x tokens per model, and a few over one layer's T x T maps at a time. While the second model runs,
the first one's maps and next-token distributions of the batch are held: 4 bytes x examples x (heads x T x T + T x vocabulary).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import CONDITION, EXAMPLE, FEATURE, HEAD, KEY, LAYER, POOLED_KEY, POOLED_QUERY, QUERY, STATISTIC
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.core.schema import with_interval
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments.pattern_statistics import COMPARED, MapComparison, PatternStatistics
from headwise.instruments.patterns import Patterns, PooledMaps
from headwise.model import Model, check_finite
from headwise.seam import Instrument, observe
from headwise.stats import mean_interval, paired_changes
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


HALF = 0.5  # a head with more than half of its weight on the diagonal band is dominant
STATISTIC_INFO = {  # number -> label, definition
    "diagonal": ("Diagonal band", "share of the weight that lies on |i - j| <= 1"),
    "first": ("First token", "weight on the first token, per row"),
    "peak": ("Peak", "largest weight of a row"),
    "off_diagonal": ("Off-diagonal", "weights over {peak} with i - j >= 2, except the first token, per row"),
    "entropy": (
        "Entropy",
        "entropy of a row divided by the log of the number of visible keys",
    ),
    "active": ("Active edges", "share of visible pairs with weight over {active}"),
    "open": ("Open edges", "share of visible pairs with any weight"),
    "mass": ("Row sum", "sum of the weights of a row"),
}
FEATURE_INFO = {  # feature -> what it is, over all heads of a prompt
    "dominant": "share of heads with over half of their weight on the diagonal band",
    "peaked": "share of heads with an off-diagonal peak",
    **{name: f"mean over heads: {definition}" for name, (_, definition) in STATISTIC_INFO.items()},
    "loss": "mean next-token loss, nats",
}


def finalize(
    shards: Sequence[xr.Dataset], names: Sequence[str], tokens: Sequence[str], thresholds: dict[str, float]
) -> xr.Dataset:
    """All shards to the study's Dataset. `names`: of the conditions; `tokens`: of the shown prompt."""
    shown = shards[0]["shown"]
    readings = xr.concat([shard.drop_vars(["shown", "maps"], errors="ignore") for shard in shards], dim=EXAMPLE,
                         data_vars="all")  # fmt: skip
    count = readings.sizes[EXAMPLE]
    values = readings["value"].transpose(CONDITION, EXAMPLE, STATISTIC, LAYER, HEAD)
    each = mean_interval(values, EXAMPLE).rename(mean="value")
    found = each.assign(
        uniform=readings["uniform"].mean(EXAMPLE).transpose(STATISTIC, LAYER, HEAD),
        per_example=values,
        loss=readings["loss"].transpose(CONDITION, EXAMPLE),
        peaked=(values.sel({STATISTIC: "off_diagonal"}, drop=True) > 0).mean(EXAMPLE),
    )
    whole = whole_of(values, readings["loss"])
    found = found.assign(_mean_of("whole", whole))
    if values.sizes[CONDITION] == 2:
        found = found.assign(_between(readings, values, whole))
    found = found.astype(np.float32)
    average = xr.concat([shard["maps"] for shard in shards], dim=EXAMPLE).sum(EXAMPLE, skipna=False) / count
    found = found.assign(average=average.astype(np.float16), shown=shown.astype(np.float16))
    return _named(found, names, tokens, thresholds).assign_attrs(
        title="What the attention maps look like",
        record=json.dumps(
            [name for name in ("value", "change", "q", "similarity", "elsewhere", "dropped") if name in found]
        ),
    )


def whole_of(values: xr.DataArray, loss: xr.DataArray) -> xr.DataArray:
    """Features over all heads together, (condition, example, feature)."""
    heads = (LAYER, HEAD)
    diagonal, peaks = values.sel({STATISTIC: "diagonal"}), values.sel({STATISTIC: "off_diagonal"})
    measured = values.sel({STATISTIC: "peak"}).notnull()
    shares = {
        "dominant": (diagonal > HALF).sum(heads) / measured.sum(heads),
        "peaked": (peaks > 0).sum(heads) / measured.sum(heads),
    }
    means = {name: values.sel({STATISTIC: name}).mean(heads) for name in STATISTIC_INFO}
    found = [one.reset_coords(drop=True) for one in (shares | means | {"loss": loss}).values()]
    return (
        xr.concat(found, dim=FEATURE)
        .assign_coords({FEATURE: list(FEATURE_INFO)})
        .transpose(CONDITION, EXAMPLE, FEATURE)
    )


def _between(readings: xr.Dataset, values: xr.DataArray, whole: xr.DataArray) -> dict[str, xr.DataArray]:
    """Everything that needs two conditions."""
    before, after = values.isel({CONDITION: 0}), values.isel({CONDITION: 1})
    tests = paired_changes(before, after).rename(low="change_low", high="change_high")
    overall = paired_changes(whole.isel({CONDITION: 0}), whole.isel({CONDITION: 1}), maps=(FEATURE,))
    overall = overall.drop_vars("q").rename({name: f"whole_{name}" for name in ("change", "p")})
    overall = overall.rename(low="whole_change_low", high="whole_change_high")
    found: dict[Any, Any] = dict(tests.data_vars) | dict(overall.data_vars)
    for name, one in _edges(readings).items():
        found |= _mean_of(name, one)
    heads = (LAYER, HEAD)
    summed = readings[["before", "after", "both"]].sum(heads)
    overall_edges = _edges(
        summed.assign({name: readings[name].mean(heads) for name in ("similarity", "other", "elsewhere")})
    )
    for name, one in (overall_edges | {"kl": readings["kl"]}).items():
        found[f"{name}_of_prompt"] = one
        found |= _mean_of(f"whole_{name}", one)
    return {str(name): one.reset_coords(drop=True) for name, one in found.items()}


def _edges(readings: xr.Dataset) -> dict[str, xr.DataArray]:
    """Shares of the active edges that only one of the two has; NaN where there are none."""
    before, after, both = (readings[name] for name in ("before", "after", "both"))
    return {
        "dropped": 1 - both / before.where(before > 0),
        "gained": 1 - both / after.where(after > 0),
        "similarity": readings["similarity"],
        "other": readings["other"],
        "elsewhere": readings["elsewhere"],
    }


def _mean_of(name: str, values: xr.DataArray) -> dict[str, Any]:
    """The mean over examples, and its interval."""
    interval = mean_interval(values, EXAMPLE)
    return with_interval(name, interval["mean"], interval["low"], interval["high"])


def _named(found: xr.Dataset, names: Sequence[str], tokens: Sequence[str], thresholds: dict[str, float]) -> xr.Dataset:
    labels, definitions = zip(*(STATISTIC_INFO[name] for name in found[STATISTIC].values.tolist()), strict=True)
    formatted = [text.format(**thresholds) for text in definitions]
    features = [FEATURE_INFO[name].format(**thresholds) for name in found[FEATURE].values.tolist()]
    keys = ("model", "reference")[: len(names)]
    return found.assign_coords(
        {CONDITION: list(keys), "name": (CONDITION, list(names)), "label": (STATISTIC, list(labels)),
         "definition": (STATISTIC, formatted), "feature_definition": (FEATURE, features), **_positions(found, len(tokens)),
         "token_text": ("token", list(tokens))}
    )  # fmt: skip


def _positions(found: xr.Dataset, tokens: int) -> dict[str, np.ndarray]:
    """Where the rows and columns of the shown maps begin, in tokens: one per token unless they were pooled."""
    return {dim: np.arange(found.sizes[dim]) * tokens // found.sizes[dim] for dim in ("query", "key")}
