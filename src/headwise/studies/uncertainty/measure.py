"""Which published score of an answer finds wrong answers best? All of them, on the same answers and folds.

Shown: every question with the model's answer (study `answers`; refusals and empty answers are left out), prompt and answer in
one teacher-forced pass for all that is read of attention, hidden states and probabilities (`reading`, and the reader of the
study `spectral`); the same with the question whether the answer is true and the reply True, and with the reply False; and the
prompt alone, answered K times by sampling (`sampling`). From these readings `headwise.scores` computes every score, and
`finalize` compares them.

What each costs is measured while the study runs: the question is answered once more, greedily, for a plain answer's time.

Cost: K + 1 answers and three passes per question, and one pass over each different sample: 72 questions of the default model
with three samples, answering, report and figures included, but without the reply False, took 100 s of one core (five minutes
on a busy machine). Hence opt-in. A few questions are committed at a time, and a stopped run resumes where it stopped; neither
the batch nor the shard changes a number beyond rounding, times aside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, TOKEN
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.engines import Shard
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.answers.measure import CPU_BATCH, GPU_BATCH, answering_decoder
from headwise.studies.decoding import Ids, common_prefix_length
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import PassReader, choose_sizes, read_together
from headwise.studies.probing.positions import parse_ids
from headwise.studies.probing.reading import SelfJudgement
from headwise.studies.run import StudyRun, study_provenance
from headwise.studies.spectral.measure import SpectralReader, eigenvalues_of, judged_answers
from headwise.studies.uncertainty.entailment import Entailment
from headwise.studies.uncertainty.finalize import finalize
from headwise.studies.uncertainty.reading import JudgementReader, UncertaintyReader
from headwise.studies.uncertainty.sampling import AnswerSampler, Grouping, Meanings, exact_groups, sample_readings
from headwise.studies.uncertainty.spec import SPEC, UncertaintyOptions


def prepare(model: Model, inputs: StudyInputs, options: UncertaintyOptions | None = None) -> StudyRun:
    """The study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or UncertaintyOptions()
    answers = inputs.maps["answers"]
    judged, origin = judged_answers(answers), Provenance.from_attrs(answers.attrs)
    if options.samples:
        _require_own_answers(origin, inputs)
    structure = Structure(model)
    layer = _layer(model, options)
    eigenvalues = eigenvalues_of(judged, None)
    read_bytes = 12.0 * model.card.layers * (model.card.heads * eigenvalues + model.card.hidden_size / 3)
    sizes = choose_sizes(options, structure, tokens=4096, shard=16, example_bytes=read_bytes, logits=True)
    entailment = Entailment(options.entailment, model.device) if options.entailment and options.samples else None
    data = {"name": origin.data.get("name"), "size": judged.sizes[EXAMPLE], "digest": origin.key()}
    parameters: dict[str, Any] = {**sizes.parameters, "layer": layer, "judge": origin.parameters.get("judge")}
    parameters["entailment"] = None if entailment is None else f"{entailment.name} {entailment.digest}"
    provenance = study_provenance(SPEC, model, data, options, **parameters)
    limits = tuple(int(origin.parameters.get(name, 0)) for name in ("max_new_tokens", "reasoning_tokens"))
    asked = _Asked.of(judged, inputs, limits if options.samples else ())
    reading = _Reading(
        model, structure, judged, asked, options, layer, eigenvalues, limits, sizes.tokens_that_fit, entailment
    )

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").assign(chosen_layer=layer)
        return {SPEC.name: finalize(readings, judged, options)}

    return StudyRun(provenance, judged.sizes[EXAMPLE], sizes.shard, reading.measure, finish)


def _require_own_answers(origin: Provenance, inputs: StudyInputs) -> None:
    given = any(item.response is not None for item in inputs.questions.items)
    if given or origin.parameters.get("endpoint"):
        raise StudyError(
            "the answers were given, not made by this model, so it cannot be asked again; give --set uncertainty.samples=0 "
            "for the scores that need no samples, or answer with this model first"
        )


def _layer(model: Model, options: UncertaintyOptions) -> int:
    layers = model.card.layers
    if options.layer is not None and not 0 <= options.layer < layers:
        raise StudyError(
            f"there is no layer {options.layer}; this model has layers 0 to {layers - 1}; write --set uncertainty.layer="
            f"{layers // 2}"
        )
    return layers // 2 if options.layer is None else options.layer


@dataclass(frozen=True)
class _Asked:
    """The judged answers and their prompts."""

    names: Sequence[str]
    prompts: Sequence[Ids]
    answers: Sequence[Ids]
    numeric: Sequence[bool]  # word problems
    width: int  # tokens of the longest answer, sampled ones included

    @classmethod
    def of(cls, judged: xr.Dataset, inputs: StudyInputs, limits: Sequence[int]) -> _Asked:
        names = [str(name) for name in judged[EXAMPLE].values]
        prompts, answers = ([parse_ids(text) for text in judged[name].values] for name in ("prompt_ids", "answer_ids"))
        numeric = {item.id: item.numeric for item in inputs.questions.items} if limits else {}
        kinds = [numeric.get(name, False) for name in names]
        longest = [len(ids) for ids in answers] + [limits[kind] for kind in set(kinds) if limits]
        return cls(names, prompts, answers, kinds, max(longest))


class _Reading:
    """Measures shards."""

    def __init__(
        self, model: Model, structure: Structure, judged: xr.Dataset, asked: _Asked, options: UncertaintyOptions, layer: int,
        eigenvalues: int, limits: Sequence[int], tokens: int, entailment: Entailment | None,
    ):  # fmt: skip
        self._model, self._structure, self._judged, self._asked = model, structure, judged, asked
        self._options, self._layer, self._meanings = options, layer, Meanings(model)
        origin = Provenance.from_attrs(judged.attrs)
        every = (structure, asked.names, asked.prompts, asked.answers)
        self._readers: dict[str, PassReader] = {
            "spectral": SpectralReader(structure, judged, eigenvalues, tokens),
            SPEC.name: UncertaintyReader(*every, layer=layer, k=eigenvalues, width=asked.width, batch_tokens=tokens),
        }
        judgement = SelfJudgement.of(model, chat=bool(origin.parameters.get("chat")))
        self._replies = {
            reply: JudgementReader(*every, judgement, reply, tokens) for reply in (True, False) if judgement
        }
        self._sampler: AnswerSampler | None = None
        self._prefix = asked.prompts[0][: common_prefix_length(asked.prompts)]
        self._grouping: Grouping = exact_groups if entailment is None else entailment.groups
        if options.samples:
            batch = GPU_BATCH if structure.device.type == "cuda" else CPU_BATCH
            decoder = answering_decoder(model, asked.prompts, batch, tokens, options.batch_tokens)
            self._sampler = AnswerSampler(model, decoder, (limits[0], limits[1]))

    def measure(self, shard: Shard) -> xr.Dataset:
        """The readings of some answers, and the seconds that each kind of reading took per answer."""
        rows = slice(shard.start, shard.stop)
        names = list(self._asked.names[rows])
        seconds: dict[str, float] = {}
        with _timed(seconds, "pass", len(names)):
            read = read_together(self._readers, names)
        parts = [read["spectral"], read[SPEC.name], self._texts(rows)]
        for reply, reader in self._replies.items():
            with _timed(seconds, "p(True)" if reply else "contrast pair", len(names)):
                parts.append(read_together({"judgement": reader}, names)["judgement"])
        if self._replies:
            seconds["contrast pair"] += seconds["p(True)"]  # it needs both
        if self._sampler is not None:
            with _timed(seconds, "answer", len(names)):
                self._sampler.answer(self._asked.prompts[rows], self._asked.numeric[rows])
            with _timed(seconds, "samples", len(names)):
                parts.append(self._samples(rows))
        found = xr.merge([part.assign_coords({EXAMPLE: names}) for part in parts])
        return found.assign({f"seconds {name}": (EXAMPLE, np.full(len(names), each)) for name, each in seconds.items()})

    def _texts(self, rows: slice) -> xr.Dataset:
        """The answers, and how much of each one's meaning hangs on its tokens."""
        answers = self._judged["answer"].values[rows].astype(object)
        relevance = [self._meanings.relevance(ids, self._asked.width) for ids in self._asked.answers[rows]]
        return xr.Dataset({"answer": (EXAMPLE, answers), "relevance": ((EXAMPLE, TOKEN), np.stack(relevance))})

    def _samples(self, rows: slice) -> xr.Dataset:
        assert self._sampler is not None
        options, asked = self._options, self._asked
        prompts = asked.prompts[rows]
        drawn = self._sampler.draw(
            asked.names[rows], prompts, asked.numeric[rows], count=options.samples, temperature=options.temperature,
            seed=options.seed,
        )  # fmt: skip
        questions, answers = (
            [str(text) for text in self._judged[name].values[rows]] for name in ("question", "answer")
        )
        return sample_readings(
            self._model, self._structure, drawn, prompts, questions=questions, answers=answers, grouping=self._grouping,
            meanings=self._meanings, layer=self._layer, prefix=self._prefix, width=asked.width,
        )  # fmt: skip


@contextmanager
def _timed(seconds: dict[str, float], name: str, answers: int) -> Iterator[None]:
    """Seconds per answer; what is read has arrived on the CPU when the block ends."""
    start = time.perf_counter()
    yield
    seconds[name] = (time.perf_counter() - start) / answers
