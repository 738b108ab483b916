"""Which heads carry which cognitive function? A joint probe on what heads say while the model answers, head by head.

Shown: questions worked out in steps, each labelled with the function it calls for (`corpora.steps`). Observed: z of every
head at the key tokens of the model's own answers. Made of it: one classifier over all heads (>= 5 seeds), how well it names
the function of steps it has not seen, and each head's share in that (gradient x activation); see `maps` for the
controls. After Ma et al., "Cognitive Mirrors" (arXiv 2512.10978).

Importance says which heads' outputs tell a function from the others. Whether the model needs them is another question:
the study `function_masking` asks it.

Cost: see `reading` and `probes.joint`. With the default model, 405 steps took 180 s of one core: 140 to ask and read them, 40
to fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import xarray as xr

from headwise.atlas import Provenance
from headwise.core.dims import EXAMPLE
from headwise.core.errors import StudyError
from headwise.corpora import Steps
from headwise.engines import Shard
from headwise.model import Model
from headwise.studies.answers.decoding import shared_beginning
from headwise.studies.functions.choice import choose
from headwise.studies.functions.key_tokens import RULES, key_places
from headwise.studies.functions.maps import attributes, to_dataset
from headwise.studies.functions.readied import Readied
from headwise.studies.functions.reading import Reader, prompts_of
from headwise.studies.work import Work

NAME = "functions"
VERSION = 1
LEAST = {"max_new_tokens": 1, "seeds": 2, "shuffles": 1, "most_epochs": 1, "batch": 1, "shard": 1}


@dataclass(frozen=True)
class FunctionsOptions:
    """What can be chosen about the study `functions`: which heads carry which cognitive function?

    Examples:
        All packaged steps, read at every token of the answer.

        >>> FunctionsOptions(steps=None, key_tokens="all").seeds
        5
    """

    steps: int | None = 360  # about so many are asked, whole questions of them, evenly over functions; None: all
    max_new_tokens: int = 8  # of an answer
    key_tokens: str = "content"  # or "all", "first", "last": which tokens of an answer heads are read at
    seeds: int = 5  # probes
    shuffles: int = 2  # probes with shuffled labels
    most_epochs: int = 20  # of training; how many are made is chosen inside the training steps
    batch: int = 32  # questions at a time
    shard: int = 32  # questions between two commits
    seed: int = 0  # of the choice of steps, and the first of the probes'

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise StudyError(f"{NAME} was asked for with {name}={getattr(self, name)}, and needs at least {least}")
        key_places([], self.key_tokens)  # refuses an unknown rule


def prepare(model: Model, steps: Steps, options: FunctionsOptions | None = None) -> Work:
    """The maps of this model on these steps."""
    options = options or FunctionsOptions()
    if not isinstance(model, Model):
        raise StudyError(f"{NAME} runs the model, and {model.id} was only opened; load it")
    chosen = choose(steps, options.steps, options.seed)
    prompts = prompts_of(model, chosen.chains, options.max_new_tokens)
    flat = [prompt for own in prompts for prompt in own]
    order = sorted(range(len(prompts)), key=lambda place: (max(map(len, prompts[place])), place))  # like goes with like
    decoder = Readied(
        model,
        flat[0][: shared_beginning(flat)],
        longest=max(map(len, flat)) + options.max_new_tokens,
        rows=options.batch,
    )
    reader = Reader(model, decoder, limit=options.max_new_tokens, key_tokens=options.key_tokens)
    shown = hashlib.blake2b(json.dumps(flat).encode(), digest_size=8).hexdigest()
    data = {"name": steps.name, "size": len(flat), "given": len(steps), "digest": steps.digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"} | {"prompts": shown}
    provenance = Provenance(NAME, VERSION, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        some = order[shard.start : shard.stop]
        return reader.read([chosen.chains[place] for place in some], [prompts[place] for place in some])

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        readings = readings.sel(
            {EXAMPLE: np.array([step.id for chain in chosen.chains for step in chain], dtype=object)}
        )
        found = to_dataset(readings, chosen.functions, options, model.device)
        return {NAME: found.assign_attrs(attributes(chosen.left_out, RULES[options.key_tokens]))}

    return Work(provenance, len(chosen.chains), options.shard, measure, conclude)
