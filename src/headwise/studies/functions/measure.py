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
from dataclasses import asdict

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.engines import Shard
from headwise.model import Model
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length
from headwise.studies.functions.choice import choose
from headwise.studies.functions.key_tokens import RULES
from headwise.studies.functions.maps import attributes, to_dataset
from headwise.studies.functions.reading import Reader, prompts_of
from headwise.studies.functions.spec import SPEC, FunctionsOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.run import StudyRun


def prepare(model: Model, inputs: StudyInputs, options: FunctionsOptions | None = None) -> StudyRun:
    """The maps of this model on these steps."""
    options = options or FunctionsOptions()
    steps = inputs.steps
    if not isinstance(model, Model):
        raise StudyError(f"{SPEC.name} runs the model, and {model.id} was only opened; load it")
    chosen = choose(steps, options.steps, options.seed)
    prompts = prompts_of(model, chosen.chains, options.max_new_tokens)
    flat = [prompt for own in prompts for prompt in own]
    order = sorted(range(len(prompts)), key=lambda place: (max(map(len, prompts[place])), place))  # like goes with like
    decoder = PrefixCachedDecoder(
        model,
        flat[0][: common_prefix_length(flat)],
        longest=max(map(len, flat)) + options.max_new_tokens,
        batch=options.batch,
    )
    reader = Reader(model, decoder, limit=options.max_new_tokens, key_tokens=options.key_tokens)
    shown = hashlib.blake2b(json.dumps(flat).encode(), digest_size=8).hexdigest()
    data = {"name": steps.name, "size": len(flat), "given": len(steps), "digest": steps.digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"} | {"prompts": shown}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        some = order[shard.start : shard.stop]
        return reader.read([chosen.chains[place] for place in some], [prompts[place] for place in some])

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        readings = readings.sel(
            {EXAMPLE: np.array([step.id for chain in chosen.chains for step in chain], dtype=object)}
        )
        found = to_dataset(readings, chosen.functions, options, model.device)
        return {SPEC.name: found.assign_attrs(attributes(chosen.left_out, RULES[options.key_tokens]))}

    return StudyRun(provenance, len(chosen.chains), options.shard, measure, conclude)
