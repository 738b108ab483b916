"""How likely is the answer wrong, after every token that is generated? All scores of an atlas at once.

    known = watches.scores(atlas)                           # name -> LiveScore, the default first; or why there are none
    scores = AnswerScores(model, known, prompt)
    with observe(model, *scores.instruments):
        for step in decoding:
            scores.step(step)                               # name -> score, probability, heads that drive it, alarm

The scores are those of `headwise.watch`, and equal to them: `watching.generation.Answers` with the scores of the study
`streaming`. All of them share one reading of the rows that emit the tokens, so that the page can change from one to another
without a second run.

A probability and a threshold hold for questions that are asked as the atlas asked its own. A chat or a text to be continued has
neither: its score is shown as a number (`LiveScore.uncalibrated`).

Cost: one row of QK^T per layer and token, as for `watch`; a few operations on (layer, head) numbers per score.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headwise.atlas import Atlas
from headwise.core.errors import HeadwiseError
from headwise.instruments.answer_rows import RunningAnswerRows
from headwise.live.response_schemas import ScoreChoice, ScoreSoFar, json_number
from headwise.model import Model
from headwise.stats.conformal import Threshold
from headwise.studies.decoding import DecodedTokens
from headwise.watching.fitted import WatchedScore, known_scores
from headwise.watching.generation import Answers, Prompt, TokenScore
from headwise.watching.watcher import watch

ALARM_RATE = 0.1  # the share of correct answers that may raise an alarm


@dataclass(frozen=True)
class LiveScore:
    """A score of an atlas, and above which value it raises an alarm."""

    watched: WatchedScore
    guarantee: Threshold | None = None  # None: it raises none

    def uncalibrated(self) -> LiveScore:
        """The score alone, for a prompt that is no question of the atlas's kind."""
        return LiveScore(replace(self.watched, calibration=None))


class AtlasWatches:
    """The scores of several atlases, each opened on first use."""

    def __init__(self, model: Model):
        self.model = model
        self._open: dict[str, dict[str, LiveScore] | HeadwiseError] = {}

    def scores(self, atlas: str | os.PathLike[str] | None) -> dict[str, LiveScore]:
        """Name -> score, the default first; empty where the atlas has none that hold for this model."""
        found = {} if atlas is None else self._scores(os.fspath(atlas))
        return {} if isinstance(found, HeadwiseError) else found

    def choices(self, atlas: str | os.PathLike[str]) -> tuple[list[ScoreChoice], str | None]:
        """What a reader can choose from, and the reason why there is nothing."""
        found = self._scores(os.fspath(atlas))
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

    def _scores(self, atlas: str) -> dict[str, LiveScore] | HeadwiseError:
        if atlas not in self._open:
            try:
                opened = Atlas.open(atlas)
                watch(self.model, opened)  # refuses the atlas of another model
                self._open[atlas] = {
                    name: LiveScore(one, one.threshold(at=ALARM_RATE)) for name, one in known_scores(opened).items()
                }
            except HeadwiseError as error:
                self._open[atlas] = error
        return self._open[atlas]


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
