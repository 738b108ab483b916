"""Is this answer wrong? The atlas's fitted detector on new questions and answers.

    scorer = AnswerScorer.open("atlas")                       # loads the model the atlas is of
    scorer.score("What is the capital of Norway?", "Bergen")  # .probability, .heads
    scorer.score("What is the capital of Norway?")            # the model answers first

A score is the detector's calibrated probability that the answer is wrong; `heads` are the heads that contributed most to it,
with the log-odds each added. Cost: one pass over prompt and answer, plus generation where no answer is given. The prompt
format is the one the detector was fitted with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headwise.atlas import Atlas
from headwise.core.dims import EXAMPLE, head_name
from headwise.core.errors import AtlasError, DataError
from headwise.core.markup import Html, bar, card, facts, paragraph
from headwise.corpora import Question, Questions
from headwise.engines import Shard
from headwise.model import Model, load
from headwise.probes.detector import Detector
from headwise.probes.features import KS
from headwise.seam import Structure
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.spectral import detection
from headwise.studies.spectral import measure as spectral
from headwise.studies.spectral.spec import SpectralOptions

HEADS_NAMED = 5  # with a score


@dataclass(frozen=True)
class Score:
    """One answer, scored. Made by `AnswerScorer`.

    Examples:
        >>> scorer = hw.AnswerScorer.open(answered.path, model)
        >>> score = scorer.score("where was the river ?", "under the old house")
        >>> list(score.heads)[:2], score.unusual
        (['L0H5', 'L0H4'], [])
    """

    id: str  # of the question
    question: str  # its text
    answer: str  # what is scored
    probability: float  # that the answer is wrong; NaN for an empty answer
    heads: dict[str, float]  # the heads that contributed most: log-odds that each added to "wrong"
    others: dict[str, float]  # what each block of features added
    unusual: list[str]  # blocks outside the range of the training answers: distrust the probability
    added: np.ndarray | None = field(default=None, compare=False, repr=False)  # (layer, head) log-odds of every head

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the map of all heads; NaN becomes null."""
        row = asdict(self)
        del row["added"]
        return {**row, "probability": None if np.isnan(self.probability) else self.probability}

    def _repr_html_(self) -> str:
        if np.isnan(self.probability):
            verdict = paragraph("The answer is empty, so it has no score.")
        else:
            probability = f"Probability {self.probability:.2f} that it is wrong, according to this detector"
            verdict = Html(f"{bar(self.probability)} {probability}")
        added = {**self.heads, **{f"all of {name}": value for name, value in self.others.items()}}
        rows = {name: f"{value:+.2f} log-odds to wrong" for name, value in added.items()}
        doubt = f"Unlike any answer the detector knows in: {', '.join(self.unusual)}. Distrust the probability."
        note = (paragraph(doubt),) if self.unusual else ()
        return card(self.question, paragraph(self.answer or "(no answer)"), verdict, *note, facts(rows))


def detect(
    atlas: str | os.PathLike[str] | Atlas, questions: str | Question | Iterable[str | Question], model: Any = None
) -> list[Score]:
    """Score answers with the detector that was fitted on the model's answers.

    Args:
        atlas: an atlas with a spectral study, or its location.
        questions: one question or several; a `Question` with a ``response`` has that answer scored, any other is answered.
        model: what `headwise.load` takes or gave, where the model is not at the id the atlas names.

    Returns:
        One score per question: the answer, the probability that it is wrong, and the heads that drive it.

    Examples:
        >>> from headwise.corpora import Question
        >>> asked = Question("a", "where was the river ?", (), response="under the old house")
        >>> round(hw.detect(answered.path, asked, model)[0].probability, 2)
        0.16
    """
    given = [questions] if isinstance(questions, str | Question) else list(questions)
    items = [
        Question(f"question {n}", one, ()) if isinstance(one, str) else one for n, one in enumerate(given, start=1)
    ]
    where = atlas.path if isinstance(atlas, Atlas) else atlas
    return AnswerScorer.open(where, model).scores(items)


class AnswerScorer:
    """A model with the detector that was fitted on its answers: how likely is a new answer wrong?

    Args:
        model: the model that the detector was fitted on.
        detector: as the study `spectral` wrote it into an atlas.
        options: how questions are asked.

    Examples:
        >>> scorer = hw.AnswerScorer.open(answered.path, model)
        >>> score = scorer.score("where was the river ?", "under the old house")
        >>> round(score.probability, 2)  # that it is wrong, calibrated
        0.16
    """

    def __init__(self, model: Model, detector: Detector, options: AnsweringOptions):
        self.model, self.detector, self.options = model, detector, options
        self._structure = Structure(model)

    @classmethod
    def open(cls, atlas: str | os.PathLike[str], model: Any = None) -> AnswerScorer:
        """From an atlas with a spectral study.

        Args:
            atlas: where the atlas is.
            model: what `headwise.load` takes or gave, where the model is not to be loaded by the id the atlas names.

        Returns:
            A scorer. A model that is not the atlas's own is refused.
        """
        found = Atlas.open(atlas)
        detector = _detector(found)
        origin = found.provenance("spectral")
        loaded = load(origin.model["id"] if model is None else model)
        digest = loaded.identity()["digest"]
        if digest != detector.about_.get("digest"):
            raise AtlasError(
                f"the detector in {found.location} was fitted on {origin.model['id']} ({detector.about_.get('digest')}), "
                f"and this model is {loaded.id} ({digest}); a detector is valid for its own model only; give that "
                "model with --model, or build an atlas of this one with headwise build --studies spectral"
            )
        prompt = found.provenance("answers").parameters
        options = AnsweringOptions(few_shot=prompt["few_shot"], chat=prompt["chat"])
        return cls(loaded, detector, options)

    def score(self, question: str, answer: str | None = None, *, context: str = "") -> Score:
        """Score one answer.

        Args:
            question: what is asked.
            answer: to score; None: the model answers first.
            context: a text to answer from.

        Returns:
            The score, with the heads that contributed most.
        """
        return self.scores([Question("asked", question, (), context=context, response=answer)])[0]

    def scores(self, questions: Sequence[Question]) -> list[Score]:
        """Score many answers at once.

        Args:
            questions: all with a `response`, or none; without, the model answers first.

        Returns:
            One score per question.
        """
        if not questions:
            raise DataError("there is no question to score; give at least one")
        run = answering.prepare(
            self.model, StudyInputs(questions_source=Questions("asked", tuple(questions))), self.options
        )
        answers = run.finalize([run.measure(Shard(0, 0, run.examples))])["answers"]
        nonempty = np.flatnonzero(answers["answer_tokens"].values > 0)
        scored: dict[int, dict[str, Any]] = {}
        if nonempty.size:
            some = answers.isel({EXAMPLE: nonempty})
            k = self.detector.about_.get("k", max(KS))
            readings = spectral.read(self._structure, some, SpectralOptions(k=k))
            known = {**detection.feature_sets(readings), **detection.baselines(readings, some)}
            explained = self.detector.explain({name: known[name] for name in self.detector.blocks_})
            unusual = self.detector.unusual(explained)
            for row, index in enumerate(nonempty):
                one = explained.isel({EXAMPLE: row})
                added = one["per_head"].values if "per_head" in one else None
                scored[int(index)] = {
                    "probability": float(one["probability"]),
                    "heads": {} if added is None else _strongest(added),
                    "others": {str(name): float(one["per_block"].sel(feature=name)) for name in one["feature"].values},
                    "unusual": unusual[row],
                    "added": added,
                }
        empty = {"probability": float("nan"), "heads": {}, "others": {}, "unusual": []}
        rows = zip(answers[EXAMPLE].values, answers["question"].values, answers["answer"].values, strict=True)
        return [
            Score(str(name), str(question), str(text), **scored.get(index, empty))
            for index, (name, question, text) in enumerate(rows)
        ]


def _detector(atlas: Atlas) -> Detector:
    """The detector that the spectral study wrote into an atlas, local or remote."""
    found = [atlas.location.read(f"{detection.DETECTOR_FILE}{suffix}") for suffix in (".json", ".safetensors")]
    if found[0] is None or found[1] is None:
        raise AtlasError(
            f"{atlas.location} holds no detector; build one with headwise build --studies spectral -o {atlas.location}"
        )
    return Detector.decode(found[0], found[1], f"{atlas.location}/{detection.DETECTOR_FILE}")


def _strongest(added: np.ndarray) -> dict[str, float]:
    """The heads with the largest contributions; ``added``: (layer, head) log-odds."""
    order = np.argsort(-np.abs(np.nan_to_num(added)), axis=None)[:HEADS_NAMED]
    pairs = [np.unravel_index(index, added.shape) for index in order]
    return {head_name(int(layer), int(head)): float(added[layer, head]) for layer, head in pairs}
