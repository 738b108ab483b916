"""What do the attention maps look like, dense and sparse?

Shown: prompts of equal length, so that maps can be averaged, and one prompt whose maps are stored. Observed, of one model or
of two (`conditions`): eight statistics per head (`instruments.pattern_statistics`), maps pooled to a size that can be drawn
(`PooledMaps`), the similarity of the two models' maps (`MapComparison`), the loss, and the divergence of the next-token
distributions.

Prompts are the first T tokens of each text, the registers in turn, then further stretches of T tokens where there are too
few texts (less independent, so the number of texts is recorded too). Every prompt begins with the tokens that the tokenizer
puts in front of a text. T is the option; else the first of 128, 64, 32 and 16 at which there are enough prompts.

After Draye, Lei et al. (arXiv 2512.05865), whose figure shows the maps of a model above those of its sparse version.

Cost: one pass over prompts x tokens per model, and a few over one layer's T x T maps at a time. While the second model runs,
the first one's maps and next-token distributions of the batch are held: 4 bytes x examples x (heads x T x T + T x vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, POOLED_KEY, POOLED_QUERY, QUERY, STATISTIC, SUBJECT
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Example, Passages
from headwise.engines import Shard
from headwise.instruments import MapComparison, Patterns, PatternStatistics, PooledMaps
from headwise.instruments.pattern_statistics import COMPARED
from headwise.model import Model, check_finite
from headwise.seam import Instrument, observe
from headwise.studies.inputs import StudyInputs
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
from headwise.studies.patterns.spec import MIN_PROMPTS, MIN_TOKENS, SPEC, PatternsOptions
from headwise.studies.run import StudyRun


def prepare(model: Model, inputs: StudyInputs, options: PatternsOptions | None = None) -> StudyRun:
    """The patterns of this model on these texts, next to those of a reference model."""
    options = options or PatternsOptions()
    passages, against = inputs.passages, inputs.reference
    other = None if options.heads_off is not None and against is None else reference_model(model, against)
    if other is not None:
        check_finite(other.hf)
    conditions = conditions_of(model, other, options.heads_off)
    check_same_tokens(model, other, passages, options.prompt)
    prompts = cut_prompts(model, passages, options, context_of([model, other]))
    options = replace(options, tokens=prompts.tokens, prompts=len(prompts.examples))
    data = {"name": passages.name, "size": len(prompts.examples), "texts": prompts.texts, "digest": passages.digest}
    parameters = asdict(options) | {"against": None if other is None else identity_of(other)}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, 0)

    def measure(shard: Shard) -> xr.Dataset:
        readings = measure_prompts(conditions, prompts.examples[shard.start : shard.stop], options)
        return readings if shard.start else readings.assign(shown=shown_maps(conditions, prompts.shown))

    def finalize_run(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        thresholds = {"active": options.active, "peak": options.peak}
        names = [condition.name for condition in conditions]
        return {SPEC.name: finalize(shards, names, model.tokens(list(prompts.shown.ids)), thresholds)}

    return StudyRun(provenance, len(prompts.examples), options.shard, measure, finalize_run)


LENGTHS = (128, 64, 32, MIN_TOKENS)


@dataclass(frozen=True)
class Prompts:
    """What both models are shown."""

    examples: tuple[Example, ...]  # all of `tokens` tokens
    tokens: int
    texts: int  # number of different texts they were cut from
    shown: Example  # the prompt whose maps are stored


def cut_prompts(model: Model, passages: Passages, options: PatternsOptions, context: int | None) -> Prompts:
    """The prompts, and the one to be shown; `context`: the most tokens that all models accept."""
    shown = Example("shown", "shown", tuple(model.ids(options.prompt)))
    _refuse_short(shown, context, options)
    texts = [(item.id, item.register, _body(model, item.text)) for item in passages.first(len(passages)).items]
    prefix = _prefix(model)
    lengths = [length for length in LENGTHS if context is None or length <= context]
    if options.tokens is not None:
        _refuse_long(model, options.tokens, context)
        lengths = [options.tokens]
    tries = [_stretches(texts, prefix, length, options.prompts) for length in lengths]
    for wanted in (options.prompts, MIN_PROMPTS):
        for length, found in zip(lengths, tries, strict=True):
            if len(found) >= wanted:
                own = len({example.id.rpartition(":")[0] or example.id for example in found})
                return Prompts(tuple(found), length, own, shown)
    most = max((len(found) for found in tries), default=0)
    raise DataError(
        f"{passages.name} gives {most} prompts of {lengths[-1] if lengths else MIN_TOKENS} tokens, and patterns need at least "
        f"{MIN_PROMPTS} for a paired test; give more or longer texts"
    )


def _stretches(
    texts: Sequence[tuple[str, str, tuple[int, ...]]], prefix: tuple[int, ...], length: int, wanted: int
) -> list[Example]:
    """The first stretch of every text that is long enough, then the second of each, and so on."""
    step = length - len(prefix)
    found: list[Example] = []
    turn = 0
    while step > 0 and len(found) < wanted:
        here = [(name, kind, body[turn * step : (turn + 1) * step]) for name, kind, body in texts]
        here = [one for one in here if len(one[2]) == step]
        if not here:
            break
        found += [Example(f"{name}:{turn + 1}" if turn else name, kind, prefix + cut) for name, kind, cut in here]
        turn += 1
    return found[:wanted]


def _prefix(model: Model) -> tuple[int, ...]:
    """What the tokenizer puts in front of every text."""
    tokenizer = model.tokenizer
    assert tokenizer is not None  # model.ids has refused otherwise
    begun, ended = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    for length in range(len(begun)):
        if begun[length : length + len(ended)] == ended:
            return tuple(begun[:length])
    return ()


def _body(model: Model, text: str) -> tuple[int, ...]:
    """A text's own tokens, as far as one context reaches."""
    prefix = _prefix(model)
    ids = tuple(model.ids(text, limit=model.card.max_positions))
    return ids[len(prefix) :] if ids[: len(prefix)] == prefix else ids


def _refuse_short(shown: Example, context: int | None, options: PatternsOptions) -> None:
    if len(shown.ids) < 2:
        raise DataError(f"the prompt {options.prompt!r} has one token, and a map of one token shows nothing; give more")
    if context is not None and len(shown.ids) > context:
        raise DataError(
            f"the prompt to be shown has {len(shown.ids)} tokens, and the smaller context of the two models is {context}; "
            "shorten it"
        )


def _refuse_long(model: Model, tokens: int, context: int | None) -> None:
    if context is not None and tokens > context:
        raise StudyError(
            f"prompts of {tokens} tokens were asked for (tokens={tokens}), and the context of {model.id} and what it is "
            f"compared with is {context}; give at most that"
        )


MAX_PIXELS = 64  # side of a stored map


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
    return xr.concat(found, dim=SUBJECT).transpose(SUBJECT, LAYER, HEAD, QUERY, KEY)


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
            "value": xr.concat([one["value"] for one in numbers], dim=SUBJECT),
            "uniform": numbers[0]["uniform"],
            "maps": xr.concat(maps, dim=SUBJECT),
            "loss": ((SUBJECT, EXAMPLE), np.stack(losses)),
            **between,
        }
    ).transpose(SUBJECT, EXAMPLE, STATISTIC, LAYER, HEAD, ...)


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
