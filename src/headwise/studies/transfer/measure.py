"""Does a detector of wrong answers carry over to another question set? The main table of the detector papers, with intervals.

Shown: some questions of every set in `TransferOptions.sets`, which the model answers as in the study `answers` (questions
that do not fit into its context are left out). Observed: what the study `spectral` reads of a question with its answer. Both
happen shard by shard, so that a stopped run resumes.

Sets are files of questions, names of known sets, ``NAME=FOLDER`` for rows of a known set in local files, or ``packaged``
(`headwise.corpora.find_questions`). On a cluster the files must be visible to every worker.

Cost: that of answering and of one more pass per answer, then a few seconds of fitting per set and detector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.core.errors import DataError, StudyError
from headwise.corpora import Questions, find_questions
from headwise.engines import Shard
from headwise.model import Model
from headwise.probes.generalisation import OTHERS
from headwise.seam import Structure
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.run import StudyRun, study_provenance
from headwise.studies.spectral import measure as spectral
from headwise.studies.spectral.spec import SpectralOptions
from headwise.studies.transfer.finalize import finalize
from headwise.studies.transfer.spec import SPEC, TransferOptions

PACKAGED = "packaged"
_IN_SET = ": "  # between the name of a set and that of its question


def prepare(model: Model, inputs: StudyInputs, options: TransferOptions | None = None) -> StudyRun:
    """The transfer study of this model between the sets that the options name."""
    options = options or TransferOptions()
    sets = question_sets(options)
    every = Questions(
        ", ".join(sets),
        tuple(
            replace(item, id=f"{name}{_IN_SET}{item.id}", topic=name)
            for name, some in sets.items()
            for item in some.items
        ),
    )
    asking = answering.prepare(
        model,
        StudyInputs(questions_source=every),
        AnsweringOptions(too_long="drop", shard=options.shard, seed=options.seed),
    )
    structure = Structure(model)
    reading = SpectralOptions(k=options.k, batch_tokens=options.batch_tokens)
    data = {"name": every.name, "size": asking.examples, "digest": every.digest}
    prompts = {name: asking.provenance.parameters[name] for name in ("few_shot", "chat", "prompts")}
    provenance = study_provenance(SPEC, model, data, options, sets=list(sets), **prompts)

    def measure(shard: Shard) -> xr.Dataset:
        answers = asking.measure(shard)
        nonempty = answers.isel({EXAMPLE: np.flatnonzero(answers["answer_tokens"].values > 0)})
        if not nonempty.sizes[EXAMPLE]:
            return answers
        read = spectral.read(structure, nonempty, reading)  # NaN where there is no answer
        return answers.merge(read.reindex({EXAMPLE: answers[EXAMPLE].values}))

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        return {SPEC.name: finalize(asking.finalize(shards)["answers"], options)}

    return StudyRun(provenance, asking.examples, options.shard, measure, finish)


def question_sets(options: TransferOptions) -> dict[str, Questions]:
    """The questions of every set, by its name."""
    if len(options.sets) < 2:
        raise StudyError(
            f"transfer needs at least two question sets, and {len(options.sets)} were given; name them as in "
            "--set transfer.sets=triviaqa.jsonl,nq_open.jsonl"
        )
    found: dict[str, Questions] = {}
    for given in options.sets:
        questions = find_questions(None if given == PACKAGED else given)
        name = PACKAGED if given == PACKAGED else Path(questions.name).stem
        if name in found or name == OTHERS:
            raise DataError(f"two question sets of transfer would be called {name!r}, or one {OTHERS!r}; rename a file")
        found[name] = questions.sample(options.limit, seed=options.seed)
    return found
