"""Which heads' attention differs when the model answers wrongly, and can wrong answers be detected from it?

Shown: every question with the model's answer (study `answers`), prompt and answer in one teacher-forced pass. Observed:
`AnswerSpectrum`, and the residual stream at the last token. Refusals and empty answers are excluded and counted.

After Binkowski et al. (arXiv 2502.17598). `finalize` tests every head; `detection` fits detectors on the same readings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, SITE, TOKEN
from headwise.core.errors import DataError
from headwise.core.provenance import Provenance
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments import Activations, AnswerSpectrum
from headwise.model import Model
from headwise.probes import KS
from headwise.seam import Structure
from headwise.studies.inputs import StudyInputs, require_both_classes
from headwise.studies.passes import Observed, read_together
from headwise.studies.run import StudyRun
from headwise.studies.spectral import detection
from headwise.studies.spectral.finalize import finalize
from headwise.studies.spectral.spec import SPEC, SpectralOptions

MIN_ANSWERS_PER_CLASS = 20


def prepare(model: Model, inputs: StudyInputs, options: SpectralOptions | None = None) -> StudyRun:
    """The spectral study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or SpectralOptions()
    answers = inputs.maps["answers"]
    judged = judged_answers(answers)
    options = replace(options, k=_eigenvalues(judged, options.k))
    origin = Provenance.from_attrs(answers.attrs)
    data = {"name": origin.data.get("name"), "size": judged.sizes[EXAMPLE], "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)
    reader = SpectralReader(Structure(model), judged, options)

    def measure(shard: Shard) -> xr.Dataset:
        ids = [text.id for text in reader.texts[shard.start : shard.stop]]
        return read_together({SPEC.name: reader}, ids)[SPEC.name]

    def write_artifacts(atlas: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        about = {"model": model.id, "digest": provenance.model["digest"], "k": options.k}
        fitted = detection.fit_best(readings, judged, datasets[detection.NAME], options.seed, about)
        fitted.save(atlas / detection.DETECTOR_FILE)

    return StudyRun(
        provenance,
        judged.sizes[EXAMPLE],
        options.shard,
        measure,
        lambda shards: finalize(shards, answers, judged, options),
        write_artifacts,
        reader,
    )


def judged_answers(answers: xr.Dataset) -> xr.Dataset:
    """The non-empty answers that are correct or wrong; refused if either class has too few."""
    label, nonempty = answers["label"].values, answers["answer_tokens"].values > 0
    wrong, correct = (label == "wrong") & nonempty, (label == "correct") & nonempty
    require_both_classes(int(wrong.sum()), int(correct.sum()), len(label), MIN_ANSWERS_PER_CLASS)
    return answers.isel({EXAMPLE: wrong | correct})


def _eigenvalues(answers: xr.Dataset, k: int | None) -> int:
    """Eigenvalues per head: ``k`` where the shortest text has as many; None: the largest of `KS` that it has."""
    lengths = answers["prompt_tokens"].values + answers["answer_tokens"].values
    shortest = int(lengths.min())
    if k is None:
        return max((known for known in KS if known <= shortest), default=shortest)
    if not 1 <= k <= shortest:
        name = answers[EXAMPLE].values[int(lengths.argmin())]
        raise DataError(
            f"k={k} eigenvalues per head were requested, but the shortest question with its answer ({name!r}) has "
            f"{shortest} tokens and so {shortest} eigenvalues; give k from 1 to {shortest}, or leave k out"
        )
    return k


class SpectralReader:
    """Reads the spectral features of answers, and the residual stream at their last token."""

    def __init__(self, structure: Structure, answers: xr.Dataset, options: SpectralOptions) -> None:
        self.structure, self.batch_tokens = structure, options.batch_tokens
        self._eigenvalues = options.k or max(KS)
        self._prompt_tokens = [int(count) for count in answers["prompt_tokens"].values]
        rows = zip(answers[EXAMPLE].values, answers["prompt_ids"].values, answers["answer_ids"].values, strict=True)
        self.texts: Sequence[Example] = [
            Example(str(name), "answer", tuple(int(token) for token in f"{prompt} {answer}".split()))
            for name, prompt, answer in rows
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """It needs no logits."""
        return None

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """The eigenvalues and other features of every head, and the last token's residual stream."""
        prompts = torch.tensor([1 if row is None else self._prompt_tokens[row] for row in rows])
        spectrum, residual = AnswerSpectrum(prompts, self._eigenvalues), Activations(("residual",), "last")

        def collect() -> xr.Dataset:
            hidden = residual.result()["activation"].isel({SITE: 0, TOKEN: 0}, drop=True)
            return spectrum.result().assign(hidden=hidden)

        return Observed((spectrum, residual), lambda logits: collect)


def read(structure: Structure, answers: xr.Dataset, options: SpectralOptions) -> xr.Dataset:
    """The readings of some answers (rows of the study `answers`), in the order given."""
    reader = SpectralReader(structure, answers, options)
    return read_together({SPEC.name: reader}, [text.id for text in reader.texts])[SPEC.name]
