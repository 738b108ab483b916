"""One batch of prompts, shown to one model or to both: numbers of every map, maps made small, and what comes out.

    value        (subject, example, statistic, layer, head)      `PatternStatistics`
    uniform      (example, statistic, layer, head)               the same of a head that looks evenly
    maps         (subject, layer, head, ...)                     sum over examples of the maps, pooled
    loss         (subject, example)                              mean over tokens of -log P(next token), in nats
    and between two subjects: similarity, other, elsewhere, before, after, both (`MapComparison`), and
    kl           (example)                                       mean over tokens of KL(first || second), in nats

The first subject's whole maps and next-token distributions are held while the second runs: 4 bytes x examples x
heads x T x T, and examples x T x vocabulary, of one batch. So a batch is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, KEY, LAYER, POOLED_KEY, POOLED_QUERY, QUERY, STATISTIC, SUBJECT
from headwise.core.errors import StudyError
from headwise.corpora import Batch, Example
from headwise.instruments import MapComparison, Patterns, PatternStatistics, PooledMaps
from headwise.instruments.pattern_statistics import COMPARED
from headwise.seam import Instrument, observe
from headwise.studies.passes import observe_examples
from headwise.studies.patterns.spec import PatternsOptions
from headwise.studies.patterns.subjects import Subject

SIZE = 64  # pixels, at most, of a map that is kept


def read(subjects: Sequence[Subject], examples: Sequence[Example], options: PatternsOptions) -> xr.Dataset:
    """The readings of some prompts of equal length, in the order they were given."""
    device = subjects[0].structure.device
    maps: list[xr.DataArray] = []  # summed over the examples of each batch

    def measure_batch(batch: Batch) -> xr.Dataset:
        part = _read_batch(subjects, batch, options)
        maps.append(part["maps"])
        return part.drop_vars("maps")

    readings = observe_examples(examples, options.batch_tokens, device, measure_batch)
    return readings.assign(maps=sum(maps)).assign_coords(register=(EXAMPLE, [one.register for one in examples]))


def shown_maps(subjects: Sequence[Subject], example: Example) -> xr.DataArray:
    """Every head's map of one prompt, (subject, layer, head, query, key); pooled where it is longer than `SIZE`."""
    found = []
    for subject in subjects:
        ids = torch.tensor([example.ids], device=subject.structure.device)
        _, seen = _run(subject, ids, PooledMaps(SIZE))
        found.append(seen["pooled_maps"]["maps"].isel({EXAMPLE: 0}))
    return xr.concat(found, dim=SUBJECT).transpose(SUBJECT, LAYER, HEAD, QUERY, KEY)


def _read_batch(subjects: Sequence[Subject], batch: Batch, options: PatternsOptions) -> xr.Dataset:
    first, *rest = subjects
    numbers, maps, losses = [], [], []
    held, beside, before, between = Patterns(), None, None, {}
    for subject in subjects:
        watchers: list[Instrument] = [PatternStatistics(options.active, options.peak), PooledMaps(SIZE)]
        if rest:
            watchers.append(held if beside is None else MapComparison(beside, options.active))
        logits, seen = _run(subject, batch.ids.to(subject.structure.device), *watchers)
        _refuse_not_finite(subject, seen["pattern_statistics"])
        logs = logits[:, :-1].float().log_softmax(dim=-1)  # (batch, token, vocabulary)
        losses.append(_loss(logs, batch.ids))
        numbers.append(seen["pattern_statistics"])
        maps.append(_small(seen["pooled_maps"]["maps"].sum(EXAMPLE, skipna=False)))
        if rest and subject is first:
            beside, before = held.result(), logs
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


def _run(subject: Subject, ids: Tensor, *watchers: Instrument) -> tuple[Tensor, Any]:
    with torch.no_grad(), observe(subject.structure, *subject.interventions, *watchers) as seen:
        logits = subject.structure.hf(input_ids=ids, use_cache=False).logits
    return logits, seen


def _loss(logs: Tensor, ids: Tensor) -> np.ndarray:
    """(batch,): the mean over tokens of what the next token cost."""
    chosen = logs.gather(-1, ids[:, 1:, None].to(logs.device))[..., 0]
    return (-chosen.double().mean(dim=1)).cpu().numpy().astype(np.float32)


def _kl(before: Tensor, after: Tensor) -> np.ndarray:
    """(batch,): the mean over tokens of KL(before || after)."""
    after = after.to(before.device)
    each = (before.exp() * (before - after)).sum(dim=-1)
    return each.double().mean(dim=1).clamp(min=0).cpu().numpy().astype(np.float32)


def _small(maps: xr.DataArray) -> xr.DataArray:
    return maps.rename({QUERY: POOLED_QUERY, KEY: POOLED_KEY})


def _refuse_not_finite(subject: Subject, readings: xr.Dataset) -> None:
    """A head that looks nowhere has no entropy, but every head has a largest weight."""
    peak = readings["value"].sel({STATISTIC: "peak"})
    for layer in subject.structure.card.per_layer:
        here = peak.isel({LAYER: layer.index, HEAD: slice(0, layer.heads)})
        if layer.reason is None and bool(here.isnull().any()):
            raise StudyError(
                f"layer {layer.index} of {subject.name} gives attention that is not a number; the model's dtype overflows "
                "or its weights are damaged: load it with dtype=float32, or check the files"
            )
