"""What do the attention maps look like, dense against sparse?

Shown: prompts of equal length, cut from the texts (`prompts`), and one prompt whose maps are kept whole. Observed: of
one model or of two (`subjects`), eight numbers of every head's map (`instruments.pattern_statistics`), the maps themselves
made small enough to draw (`instruments.PooledMaps`), how alike the two models' maps are (`instruments.MapComparison`),
and what comes out: the loss, and the divergence of the next-token distributions.

After Draye, Lei et al. (arXiv 2512.05865), whose figure sets the maps of a model over those of its sparse twin.

Cost: one pass over prompts x tokens a model, and a few passes over one layer's T x T maps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import xarray as xr

from headwise.core.provenance import Provenance
from headwise.engines import Shard
from headwise.model import Model, check_finite
from headwise.studies.inputs import StudyInputs
from headwise.studies.patterns.maps import conclude
from headwise.studies.patterns.prompts import cut_prompts
from headwise.studies.patterns.reading import read, shown_maps
from headwise.studies.patterns.spec import SPEC, PatternsOptions
from headwise.studies.patterns.subjects import context_of, identity_of, model_beside, refuse_other_tokens, subjects_of
from headwise.studies.run import StudyRun

__all__ = ["prepare"]


def prepare(model: Model, inputs: StudyInputs, options: PatternsOptions | None = None) -> StudyRun:
    """The patterns of this model on these texts, beside those of another (`subjects.model_beside` says which)."""
    options = options or PatternsOptions()
    passages, against = inputs.passages, inputs.reference
    other = None if options.heads_off is not None and against is None else model_beside(model, against)
    if other is not None:
        check_finite(other.hf)
    subjects = subjects_of(model, other, options.heads_off)
    refuse_other_tokens(model, other, passages, options.prompt)
    prompts = cut_prompts(model, passages, options, context_of([model, other]))
    options = replace(options, tokens=prompts.tokens, prompts=len(prompts.examples))
    data = {"name": passages.name, "size": len(prompts.examples), "texts": prompts.texts, "digest": passages.digest}
    parameters = asdict(options) | {"against": None if other is None else identity_of(other)}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, 0)

    def measure(shard: Shard) -> xr.Dataset:
        readings = read(subjects, prompts.examples[shard.start : shard.stop], options)
        return readings if shard.start else readings.assign(shown=shown_maps(subjects, prompts.shown))

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        thresholds = {"active": options.active, "peak": options.peak}
        names = [subject.name for subject in subjects]
        return {SPEC.name: conclude(shards, names, model.tokens(list(prompts.shown.ids)), thresholds)}

    return StudyRun(provenance, len(prompts.examples), options.shard, measure, finish)
