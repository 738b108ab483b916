"""Is this answer wrong? The scores of an atlas on new questions and answers.

    scorer = AnswerScorer.open("atlas")                       # loads the model the atlas is of
    scorer.score("What is the capital of Norway?", "Bergen")  # .probability, .heads
    scorer.score("What is the capital of Norway?")            # the model answers, and is scored while it does
    AnswerScorer.open("atlas", at=0.1)                        # with an alarm: for at most 10 % of correct answers

An atlas with the study `streaming` gives the score that `watch` would watch: an answer that the model generates here is scored
while it is written, a given one in one pass over prompt and answer. An older atlas gives the detector of its spectral study,
which reads the whole map in a pass of its own and has no thresholds.

A score's `probability` is the calibrated probability that the answer is wrong; `heads` are the heads that contributed most to
it, with the log-odds each added (none where the score reads no heads). The prompt format is the one that the atlas was made
with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.dims import EXAMPLE, PREFIX, head_name
from headwise.core.errors import AtlasError, DataError
from headwise.core.markup import Html, bar, card, facts, paragraph
from headwise.corpora import Question, Questions, prompt_ids
from headwise.engines import Shard
from headwise.model import Model, load
from headwise.probes.detector import Detector
from headwise.probes.features import KS
from headwise.probes.running_scores import RunningDetector
from headwise.seam import Structure
from headwise.studies.answers import measure as answering
from headwise.studies.answers.endings import ending
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.spectral import detection
from headwise.studies.spectral import measure as spectral
from headwise.studies.spectral.spec import SpectralOptions
from headwise.studies.streaming import measure as streaming
from headwise.watching.fitted import STUDY, refuse_other_model, stored_detector
from headwise.watching.generation import HEADS_NAMED, Prompt
from headwise.watching.watcher import Watch, watch

BATCH = 32  # answers that are generated together
END = len(streaming.SHARES) - 1  # which beginning is the whole answer


@dataclass(frozen=True)
class Score:
    """One answer, scored. Made by `AnswerScorer`.

    Examples:
        >>> scorer = hw.AnswerScorer.open(answered.path, model, score="Heads + log-probability")
        >>> score = scorer.score("where was the river ?", "under the old house")
        >>> len(score.heads), score.alarm
        (5, None)
    """

    id: str  # of the question
    question: str  # its text
    answer: str  # what is scored
    probability: float  # that the answer is wrong; NaN for an empty answer
    heads: dict[str, float]  # the heads that contributed most: log-odds that each added to "wrong"
    others: dict[str, float]  # what each block of features added
    unusual: list[str]  # blocks outside the range of the training answers: distrust the probability
    score: str = ""  # which score it is
    value: float = float("nan")  # of the score; larger: more likely wrong
    alarm: bool | None = None  # whether the threshold was passed; None: there is none
    added: np.ndarray | None = field(default=None, compare=False, repr=False)  # (layer, head) log-odds of every head

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the map of all heads; NaN becomes null."""
        row = asdict(self)
        del row["added"]
        numbers = {name: None if np.isnan(row[name]) else row[name] for name in ("probability", "value")}
        return {**row, **numbers}

    def _repr_html_(self) -> str:
        if np.isnan(self.probability):
            verdict = paragraph("The answer is empty, so it has no score.")
        else:
            probability = f"Probability {self.probability:.2f} that it is wrong, according to this detector"
            alarm = " Alarm." if self.alarm else ""
            verdict = Html(f"{bar(self.probability)} {probability}.{alarm}")
        added = {**self.heads, **{f"all of {name}": value for name, value in self.others.items()}}
        rows = {name: f"{value:+.2f} log-odds to wrong" for name, value in added.items()}
        doubt = f"Unlike any answer the detector knows in: {', '.join(self.unusual)}. Distrust the probability."
        note = (paragraph(doubt),) if self.unusual else ()
        return card(self.question, paragraph(self.answer or "(no answer)"), verdict, *note, facts(rows))


def detect(
    atlas: str | os.PathLike[str] | Atlas, questions: str | Question | Iterable[str | Question], model: Any = None, *,
    score: str | None = None, at: float | None = None, risk: float | None = None,
) -> list[Score]:  # fmt: skip
    """Score answers: how likely is each wrong?

    Args:
        atlas: an atlas with the study streaming or spectral, or its location.
        questions: one question or several; a `Question` with a ``response`` has that answer scored, any other is answered.
        model: what `headwise.load` takes or gave, where the model is not at the id the atlas names.
        score: which of the atlas's scores; None: its default.
        at: raise alarms for at most this share of correct answers.
        risk: raise alarms so that at most this share of the answers without one are wrong.

    Returns:
        One score per question: the answer, the probability that it is wrong, and the heads that drive it.

    Examples:
        >>> from headwise.corpora import Question
        >>> asked = Question("a", "where was the river ?", (), response="under the old house")
        >>> round(hw.detect(answered.path, asked, model)[0].probability, 2)
        0.38
    """
    given = [questions] if isinstance(questions, str | Question) else list(questions)
    items = [
        Question(f"question {n}", one, ()) if isinstance(one, str) else one for n, one in enumerate(given, start=1)
    ]
    where = atlas.path if isinstance(atlas, Atlas) else atlas
    return AnswerScorer.open(where, model, score=score, at=at, risk=risk).scores(items)


class AnswerScorer:
    """A model with a score of its answers: how likely is a new answer wrong?

    Args:
        model: the model that the score was fitted on.
        scored_by: a watch, or the detector that the study `spectral` wrote into an atlas.
        options: how questions are asked.

    Examples:
        >>> scorer = hw.AnswerScorer.open(answered.path, model)
        >>> score = scorer.score("where was the river ?", "under the old house")
        >>> round(score.probability, 2)  # that it is wrong, calibrated
        0.38
    """

    def __init__(self, model: Model, scored_by: Watch | Detector, options: AnsweringOptions):
        self.model, self.scored_by, self.options = model, scored_by, options
        self._structure = Structure(model)

    @classmethod
    def open(
        cls, atlas: str | os.PathLike[str], model: Any = None, *, score: str | None = None, at: float | None = None,
        risk: float | None = None,
    ) -> AnswerScorer:  # fmt: skip
        """From an atlas with the study streaming or spectral.

        Args:
            atlas: where the atlas is.
            model: what `headwise.load` takes or gave, where the model is not to be loaded by the id the atlas names.
            score: which of the atlas's scores; None: its default.
            at: raise alarms for at most this share of correct answers.
            risk: raise alarms so that at most this share of the answers without one are wrong.

        Returns:
            A scorer. A model that is not the atlas's own is refused.
        """
        found = Atlas.open(atlas)
        if STUDY in found.studies:
            loaded = load(found.provenance(STUDY).model["id"] if model is None else model)
            return cls(loaded, watch(loaded, found, score=score, at=at, risk=risk), _asked(found))
        if any(one is not None for one in (score, at, risk)):
            raise AtlasError(
                f"{found.location} has no scores with thresholds; build them with headwise build --studies {STUDY} -o "
                f"{found.location}"
            )
        detector = stored_detector(found, "spectral", detection.DETECTOR_FILE)
        origin = found.provenance("spectral")
        loaded = load(origin.model["id"] if model is None else model)
        refuse_other_model(found, "spectral", loaded, digest=detector.about_.get("digest"))
        return cls(loaded, detector, _asked(found))

    @property
    def note(self) -> str:
        """Which score it is, how good it is, and what its threshold guarantees."""
        if isinstance(self.scored_by, Watch):
            return self.scored_by.note
        return f"{self.scored_by.about_.get('row', 'detector')} of the spectral study"

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
        if isinstance(self.scored_by, Watch) and all(one.response is None for one in questions):
            return self._generated(self.scored_by, questions)
        run = answering.prepare(
            self.model, StudyInputs(questions_source=Questions("the questions", tuple(questions))), self.options
        )
        answers = run.finalize([run.measure(Shard(0, 0, run.examples))])["answers"]
        nonempty = np.flatnonzero(answers["answer_tokens"].values > 0)
        scored: dict[int, dict[str, Any]] = {}
        if nonempty.size:
            some = answers.isel({EXAMPLE: nonempty})
            read = self._watched if isinstance(self.scored_by, Watch) else self._detected
            scored = dict(zip(nonempty.tolist(), read(some), strict=True))
        rows = zip(answers[EXAMPLE].values, answers["question"].values, answers["answer"].values, strict=True)
        return [
            Score(str(name), str(question), str(text), **scored.get(index, self._empty))
            for index, (name, question, text) in enumerate(rows)
        ]

    @property
    def _empty(self) -> dict[str, Any]:
        """The score of an answer without a token."""
        name = (
            self.scored_by.watched.name if isinstance(self.scored_by, Watch) else self.scored_by.about_.get("row", "")
        )
        return {"probability": float("nan"), "heads": {}, "others": {}, "unusual": [], "score": name}

    def _generated(self, watching: Watch, questions: Sequence[Question]) -> list[Score]:
        """The model answers under the watch: nothing is read a second time."""
        found: list[Score] = []
        for start in range(0, len(questions), BATCH):
            some = questions[start : start + BATCH]
            answers = watching.collect(watching.stream([self._prompt(one) for one in some]))
            for question, answer in zip(some, answers, strict=True):
                values = self._empty | {"heads": answer.heads, "others": answer.others, "unusual": answer.unusual}
                alarm = None if watching.threshold is None else answer.alarm
                values |= {"value": answer.score, "probability": answer.probability, "alarm": alarm}
                found.append(Score(question.id, question.question, answer.text, **values))
        return found

    def _prompt(self, question: Question) -> Prompt:
        ids = prompt_ids(self.model, question, few_shot=self.options.few_shot, chat=self.options.chat)
        limit = self.options.reasoning_tokens if question.numeric else self.options.max_new_tokens
        return Prompt(ids, limit, ends=ending(self.model, question.numeric))

    def _watched(self, answers: xr.Dataset) -> list[dict[str, Any]]:
        """The score of the watch on given answers, in one pass."""
        assert isinstance(self.scored_by, Watch)
        watched, threshold = self.scored_by.watched, self.scored_by.threshold
        readings, running = streaming.read(self._structure, answers), watched.make()
        explained: list[dict[str, Any]] = [{} for _ in range(answers.sizes[EXAMPLE])]
        if isinstance(running, RunningDetector):
            beginnings = streaming.fitted_scores(running.detector, readings)[streaming.FITTED]
            explained = _explained(running.detector, streaming.feature_sets(readings, [END]))
        elif watched.name in streaming.SCORES:
            beginnings = readings[streaming.SCORES[watched.name]].transpose(EXAMPLE, PREFIX).values
        else:
            raise DataError(
                f"the score {watched.name!r} is computed while the model generates; let it answer, or use watch"
            )
        found = []
        for row, values in enumerate(beginnings[:, END:]):
            probability = float("nan") if watched.calibration is None else float(watched.calibration(values[:1])[0])
            alarm = None if threshold is None else bool(values.max() > threshold)
            found.append(
                self._empty | explained[row] | {"value": float(values[0]), "probability": probability, "alarm": alarm}
            )
        return found

    def _detected(self, answers: xr.Dataset) -> list[dict[str, Any]]:
        """The detector of the spectral study."""
        detector = self.scored_by
        assert isinstance(detector, Detector)
        k = detector.about_.get("k", max(KS))
        readings = spectral.read(self._structure, answers, SpectralOptions(k=k))
        known = {**detection.feature_sets(readings), **detection.baselines(readings, answers)}
        return [self._empty | one for one in _explained(detector, {name: known[name] for name in detector.blocks_})]


def _asked(atlas: Atlas) -> AnsweringOptions:
    """How the questions of the atlas were asked."""
    prompt = atlas.provenance("answers").parameters
    return AnsweringOptions(few_shot=prompt["few_shot"], chat=prompt["chat"])


def _explained(detector: Detector, features: dict[str, Any]) -> list[dict[str, Any]]:
    """What a detector says of each answer, and why."""
    explained = detector.explain(features)
    unusual = detector.unusual(explained)
    found = []
    for row in range(explained.sizes[EXAMPLE]):
        one = explained.isel({EXAMPLE: row})
        added = one["per_head"].values if "per_head" in one else None
        found.append(
            {
                "probability": float(one["probability"]),
                "value": float(one["logit"]),
                "heads": {} if added is None else _strongest(added),
                "others": {str(name): float(one["per_block"].sel(feature=name)) for name in one["feature"].values},
                "unusual": unusual[row],
                "added": added,
            }
        )
    return found


def _strongest(added: np.ndarray) -> dict[str, float]:
    """The heads with the largest contributions; ``added``: (layer, head) log-odds."""
    order = np.argsort(-np.abs(np.nan_to_num(added)), axis=None)[:HEADS_NAMED]
    pairs = [np.unravel_index(index, added.shape) for index in order]
    return {head_name(int(layer), int(head)): float(added[layer, head]) for layer, head in pairs}
