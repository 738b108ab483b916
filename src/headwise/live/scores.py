"""How likely is this answer wrong? The detectors of the atlases, on the model that is loaded already.

A detector speaks for its own model only; where the loaded model is another one, or the atlas holds no detector, `why_not`
says so in a sentence. The map is what every head added to the log-odds of "wrong", against the average answer the
detector was fitted on; it is an account of the detector, not a claim about causes (see `probes.detector`).
"""

from __future__ import annotations

import os
import time

import numpy as np

from headwise.core.errors import HeadwiseError
from headwise.figures import Axis, Figure, Heatmap, to_payload
from headwise.figures.scale import scale_around
from headwise.live.packing import nested, number
from headwise.live.shapes import Scored
from headwise.model import Model
from headwise.studies.spectral.scoring import AnswerScorer, Score

__all__ = ["Scores"]


class Scores:
    """The scorers of several atlases, each opened when it is first needed."""

    def __init__(self, model: Model):
        self.model = model
        self._open: dict[str, AnswerScorer | HeadwiseError] = {}

    def why_not(self, atlas: str | os.PathLike[str]) -> str | None:
        """Why answers cannot be scored by this atlas; None where they can."""
        found = self._scorer(atlas)
        return str(found) if isinstance(found, HeadwiseError) else None

    def asked(self, atlas: str | os.PathLike[str] | None) -> tuple[int | None, bool | None]:
        """How the atlas put its questions: examples before each, and whether as a chat; None: what suits the model."""
        if atlas is None:
            return None, None
        found = self._scorer(atlas)
        if isinstance(found, HeadwiseError):
            return None, None
        return found.options.few_shot, found.options.chat

    def score(self, atlas: str | os.PathLike[str], question: str, answer: str | None) -> Scored:
        """Score an answer; without one the model answers first."""
        found = self._scorer(atlas)
        if isinstance(found, HeadwiseError):
            raise found
        start = time.monotonic()
        score = found.score(question, answer)
        return _told(score, time.monotonic() - start)

    def _scorer(self, atlas: str | os.PathLike[str]) -> AnswerScorer | HeadwiseError:
        path = os.fspath(atlas)
        if path not in self._open:
            try:
                self._open[path] = AnswerScorer.open(path, self.model)
            except HeadwiseError as error:
                self._open[path] = error
        return self._open[path]


def _told(score: Score, seconds: float) -> Scored:
    added = score.added
    return {
        "question": score.question,
        "answer": score.answer,
        "probability": number(score.probability),
        "heads": [] if added is None else nested(added),
        "others": score.others,
        "unusual": score.unusual,
        "figure": None if added is None else to_payload(_figure(added)),
        "seconds": seconds,
    }


def _figure(added: np.ndarray) -> Figure:
    """Layer x head: what each head added."""
    layers, heads = added.shape
    return Figure(
        title="What every head added to the score",
        panels=(
            Heatmap(
                key="added", title="", values=added.T.astype(np.float32), scale="added",
                x=Axis("Layer", tuple(map(str, range(layers)))), y=Axis("Head", tuple(map(str, range(heads)))),
            ),
        ),
        columns=1,
        scales={"added": scale_around(added, "Log-odds added to “wrong”")},
    )  # fmt: skip
