"""Where does each head attend? Eleven statistics per head, over texts and over repeated random tokens.

Inputs: passages (the packaged ones in eight registers, such as code or dialogue), and random sequences, each repeated
once, for the induction and duplicate-token scores, which ordinary text would blur. Instrument: `Profile`, in one forward
pass that never stores the attention weights.

Each value is the mean over examples with its 95 % interval (Student's t). The control is a uniform head on the same
tokens; without it nearly every head would look like a sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import REPEATS, Example, Passages, delimiter_ids, repeated_random
from headwise.engines import Shard
from headwise.instruments.profile import STATISTICS, Profile
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.stats import mean_interval
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import Batch, choose_sizes, observe_examples
from headwise.studies.profile.spec import SPEC, ProfileOptions
from headwise.studies.run import StudyRun

MIN_TOKENS = 8  # shorter texts say nothing about where a head attends


def prepare(model: Model, inputs: StudyInputs, options: ProfileOptions | None = None) -> StudyRun:
    """A profile of this model on these texts."""
    options = options or ProfileOptions()
    passages = inputs.passages
    structure = Structure(model)
    examples = _examples(model, passages, options)
    delimiters = delimiter_ids(model.tokenizer)
    used = len(examples) - options.repeats  # texts of a few tokens are left out
    data = {"name": passages.name, "size": used, "given": len(passages), "digest": passages.digest}
    sizes = choose_sizes(
        options, structure, tokens=4096, shard=10, example_bytes=64.0 * model.card.layers * model.card.heads
    )
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"} | sizes.parameters
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        return _measure(structure, examples[shard.start : shard.stop], delimiters, sizes.tokens_that_fit)

    return StudyRun(provenance, len(examples), sizes.shard, measure, lambda shards: {SPEC.name: finalize(shards)})


def _examples(model: Model, passages: Passages, options: ProfileOptions) -> list[Example]:
    """The texts as tokens, then the repeated random tokens."""
    for item in passages.items:
        if item.register == REPEATS:
            raise DataError(
                f"the passage {item.id!r} has the register {REPEATS!r}, which is reserved for repeated random tokens; "
                "give it another"
            )
    limit = min(options.max_tokens, model.card.max_positions or options.max_tokens)
    texts = [Example(item.id, item.register, tuple(model.ids(item.text, limit=limit))) for item in passages.items]
    long_enough = [example for example in texts if len(example.ids) >= MIN_TOKENS]
    if len(long_enough) < 2:
        raise DataError(
            f"{passages.name} has {'one' if long_enough else 'no'} text of at least {MIN_TOKENS} tokens, and the confidence "
            "intervals of a profile need two; give more or longer texts"
        )
    tokenizer = model.tokenizer
    assert tokenizer is not None  # model.ids has refused otherwise
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    ordinary = set(range(min(len(tokenizer), model.card.vocabulary_size))) - special
    if options.repeat == "texts":
        ordinary &= {token for example in long_enough for token in example.ids}
    prefix = tokenizer("")["input_ids"]
    period = min(options.period, (limit - len(prefix)) // 2)
    return long_enough + repeated_random(options.repeats, period, ordinary, seed=options.seed, prefix=prefix)


def _measure(
    structure: Structure, examples: Sequence[Example], delimiters: frozenset[int], batch_tokens: int
) -> xr.Dataset:
    """The readings of some examples, in the order they were given."""

    def measure_batch(batch: Batch) -> Callable[[], xr.Dataset]:
        with torch.no_grad(), observe(structure, Profile(delimiters), valid=batch.valid) as seen:
            structure.decoder(input_ids=batch.ids, use_cache=False)
        return lambda: seen["profile"]

    readings = observe_examples(examples, batch_tokens, structure.device, measure_batch)
    _refuse_not_finite(structure, readings)
    return readings.assign_coords(register=(EXAMPLE, [example.register for example in examples]))


def _refuse_not_finite(structure: Structure, readings: xr.Dataset) -> None:
    entropy = readings["value"].sel({STATISTIC: STATISTICS[0]})
    for layer in structure.card.per_layer:
        if layer.reason is None and bool(
            entropy.isel({LAYER: layer.index, HEAD: slice(0, layer.heads)}).isnull().any()
        ):
            raise StudyError(
                f"layer {layer.index} gives attention that is not a number; the model's dtype overflows or its weights "
                "are damaged: load it with dtype=float32, or check the files"
            )


ON_REPEATS = ("induction", "duplicate")  # measured on repeated random tokens; all others on texts
STATISTIC_INFO = {  # statistic -> label, unit, definition
    "entropy": (
        "Entropy",
        "",
        "entropy of a row divided by the log of the number of visible keys (0: one key, 1: uniform)",
    ),
    "sink": ("First token (sink)", "", "weight on the first token of the text"),
    "diagonal": ("Own token", "", "weight on the token itself"),
    "previous": ("Previous token", "", "weight on the token before"),
    "distance": ("Mean distance", "tokens", "how far back the head attends on average"),
    "spread": ("Spread of distance", "tokens", "standard deviation of the distance within a row"),
    "induction": ("Induction", "", "weight on the token that followed the earlier occurrence of this one"),
    "duplicate": ("Duplicate token", "", "weight on the earlier occurrence of this token"),
    "delimiter": ("Delimiters", "", "weight on punctuation and line ends, except the first token"),
    "top1": ("Largest weight", "", "largest weight of a row"),
    "output_norm_ratio": (
        "Output norm (relative)",
        "",
        "norm of the head's output over the norm of the residual stream that it reads",
    ),
}


def finalize(shards: Sequence[xr.Dataset]) -> xr.Dataset:
    """All shards to one Dataset."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").transpose(EXAMPLE, STATISTIC, LAYER, HEAD)
    used = readings.where((readings["register"] == REPEATS) == readings[STATISTIC].isin(ON_REPEATS))
    interval = mean_interval(used["value"], EXAMPLE)
    labels, units, definitions = zip(*(STATISTIC_INFO[name] for name in readings[STATISTIC].values), strict=True)
    result = xr.Dataset(
        {
            "value": interval["mean"],
            "low": interval["low"],
            "high": interval["high"],
            "uniform": used["uniform"].mean(EXAMPLE),
            "per_example": used["value"],
        }
    ).astype(np.float32)
    return result.assign_coords(
        label=(STATISTIC, list(labels)), unit=(STATISTIC, list(units)), definition=(STATISTIC, list(definitions))
    ).assign_attrs(title="Where each head attends", record=json.dumps(["value"]))
