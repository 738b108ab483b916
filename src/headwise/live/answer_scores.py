"""How likely is the answer wrong, after every token that is generated? All scores of an atlas at once.

    known = AtlasScores(model).scores(atlas)                # name -> LiveScore, the default first
    scores = AnswerScores(model, known, prompt)
    with observe(model, *scores.instruments):
        for step in decoding:
            scores.step(step)                               # name -> score, probability, heads that drive it, alarm

The scores are those of `headwise.watch`, and equal to them: `watching.generation.Answers` with the scores of the study
`streaming`. All of them share one reading of the rows that emit the tokens, so that the page can change from one to another
without a second run.

A probability and a threshold hold for questions that are asked as the atlas asked its own. A chat or a text to be continued has
neither: its score is shown as a number (`LiveScore.uncalibrated`).

A given answer is scored whole, by the same scores or by the detector of `spectral` (`AtlasScores.score`): the map shows the
log-odds of "wrong" that each head contributes, relative to the average training answer. It explains the detector and makes no
causal claim (see `probes.detector`).

Cost: one row of QK^T per layer and token, as for `watch`; a few operations on (layer, head) numbers per score.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from headwise.atlas import Atlas
from headwise.core.errors import HeadwiseError
from headwise.figures import Axis, Figure, Heatmap, to_payload
from headwise.figures.scale import scale_around
from headwise.instruments.answer_rows import RunningAnswerRows
from headwise.live.response_schemas import AnswerScore, ScoreChoice, ScoreSoFar, json_matrix, json_number
from headwise.model import Model
from headwise.stats.conformal import Threshold
from headwise.studies.decoding import DecodedTokens
from headwise.watching.fitted import WatchedScore, known_scores
from headwise.watching.generation import Answers, Prompt, TokenScore
from headwise.watching.scoring import AnswerScorer, Score
from headwise.watching.watcher import watch

AtlasPath = str | os.PathLike[str]
Found = TypeVar("Found")
ALARM_RATE = 0.1  # the share of correct answers that may raise an alarm


@dataclass(frozen=True)
class LiveScore:
    """A score of an atlas, and above which value it raises an alarm."""

    watched: WatchedScore
    guarantee: Threshold | None = None  # None: it raises none

    def uncalibrated(self) -> LiveScore:
        """The score alone, for a prompt that is no question of the atlas's kind."""
        return LiveScore(replace(self.watched, calibration=None))


class AtlasScores:
    """What several atlases know of answers, each opened on first use. Scores hold for their own model only."""

    def __init__(self, model: Model):
        self.model = model
        self._opened: dict[tuple[str, ...], Any] = {}  # or the reason why there is nothing

    def scores(self, atlas: AtlasPath | None) -> dict[str, LiveScore]:
        """Of an answer that is being written: name -> score, the default first; empty where the atlas has none."""
        found = {} if atlas is None else self._scores(atlas)
        return {} if isinstance(found, HeadwiseError) else found

    def choices(self, atlas: AtlasPath) -> tuple[list[ScoreChoice], str | None]:
        """What a reader can choose from, and the reason why there is nothing."""
        found = self._scores(atlas)
        if isinstance(found, HeadwiseError):
            return [], str(found)
        return [
            {
                "name": name,
                "note": one.watched.note,
                "alarm": "" if one.guarantee is None else one.guarantee.statement,
            }
            for name, one in found.items()
        ], None

    def unavailable(self, atlas: AtlasPath) -> str | None:
        """The reason why this atlas cannot score given answers; None where it can."""
        found = self._scorer(atlas)
        return str(found) if isinstance(found, HeadwiseError) else None

    def prompt_format(self, atlas: AtlasPath | None) -> tuple[int | None, bool | None]:
        """The atlas's question format: number of examples, and whether as a chat; None: the model's default."""
        found = None if atlas is None else self._scorer(atlas)
        if found is None or isinstance(found, HeadwiseError):
            return None, None
        return found.options.few_shot, found.options.chat

    def score(self, atlas: AtlasPath, question: str, answer: str | None, name: str | None = None) -> AnswerScore:
        """Score an answer by one of the atlas's scores, its default where no ``name`` is given; without an answer the model
        generates it first.
        """
        found = self._scorer(atlas, name)
        if isinstance(found, HeadwiseError):
            raise found
        start = time.monotonic()
        score = found.score(question, answer)
        return _response(score, time.monotonic() - start)

    def _scores(self, atlas: AtlasPath) -> dict[str, LiveScore] | HeadwiseError:
        def read() -> dict[str, LiveScore]:
            opened = Atlas.open(atlas)
            watch(self.model, opened)  # refuses the atlas of another model
            return {name: LiveScore(one, one.threshold(at=ALARM_RATE)) for name, one in known_scores(opened).items()}

        return self._once(read, "scores", os.fspath(atlas))

    def _scorer(self, atlas: AtlasPath, name: str | None = None) -> AnswerScorer | HeadwiseError:
        path = os.fspath(atlas)
        return self._once(lambda: AnswerScorer.open(path, self.model, score=name), "scorer", path, name or "")

    def _once(self, read: Callable[[], Found], *key: str) -> Found | HeadwiseError:
        if key not in self._opened:
            try:
                self._opened[key] = read()
            except HeadwiseError as error:
                self._opened[key] = error
        found: Found | HeadwiseError = self._opened[key]
        return found


class AnswerScores:
    """The scores of one answer, token by token.

    Args:
        model: that writes it.
        scores: by name.
        prompt: of the answer.
    """

    def __init__(self, model: Model, scores: Mapping[str, LiveScore], prompt: Prompt):
        self._answers = {
            name: Answers(model, one.watched, threshold=None if one.guarantee is None else one.guarantee.value)
            for name, one in scores.items()
        }
        reading = [answers for answers in self._answers.values() if answers.rows is not None]
        rows = RunningAnswerRows()
        self.instruments = (rows,) if reading else ()
        for answers in reading:
            answers.rows = rows
        for answers in self._answers.values():
            answers.begin(0, prompt)

    def step(self, step: DecodedTokens) -> dict[str, ScoreSoFar]:
        """The scores with one more token, or at the end of the answer."""
        return {name: _row(answers.step([0], step)[0]) for name, answers in self._answers.items()}


def _row(event: TokenScore) -> ScoreSoFar:
    return {
        "score": json_number(event.score),
        "probability": json_number(event.probability),
        "heads": {name: json_number(added) for name, added in event.heads.items()},
        "unusual": event.unusual,
        "alarm": event.alarm,
    }


def _response(score: Score, seconds: float) -> AnswerScore:
    added = score.added
    return {
        "question": score.question,
        "answer": score.answer,
        "probability": json_number(score.probability),
        "head_contributions": [] if added is None else json_matrix(added),
        "block_contributions": score.others,
        "out_of_range": score.unusual,
        "figure": None if added is None else to_payload(_figure(added)),
        "seconds": seconds,
    }


def _figure(added: np.ndarray) -> Figure:
    """Layer x head map of contributions."""
    layers, heads = added.shape
    return Figure(
        title="Contribution of every head to the score",
        panels=(
            Heatmap(
                key="added", title="", values=added.T.astype(np.float32), scale="added",
                x=Axis("Layer", tuple(map(str, range(layers)))), y=Axis("Head", tuple(map(str, range(heads)))),
            ),
        ),
        columns=1,
        scales={"added": scale_around(added, "Log-odds added to “wrong”")},
    )  # fmt: skip
