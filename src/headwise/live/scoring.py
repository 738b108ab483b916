"""How likely is an answer wrong? The detectors of the atlases, applied to the loaded model.

A detector is valid for its own model only; where the loaded model differs, or the atlas has no detector, `unavailable` gives
the reason. The map shows the log-odds of "wrong" that each head contributes, relative to the average training answer. It
explains the detector and makes no causal claim (see `probes.detector`).
"""

from __future__ import annotations

import os
import time

import numpy as np

from headwise.core.errors import HeadwiseError
from headwise.figures import Axis, Figure, Heatmap, to_payload
from headwise.figures.scale import scale_around
from headwise.live.response_schemas import AnswerScore, json_matrix, json_number
from headwise.model import Model
from headwise.studies.spectral.scoring import AnswerScorer, Score


class AtlasScorers:
    """The scorers of several atlases, each opened on first use."""

    def __init__(self, model: Model):
        self.model = model
        self._open: dict[str, AnswerScorer | HeadwiseError] = {}

    def unavailable(self, atlas: str | os.PathLike[str]) -> str | None:
        """The reason why this atlas cannot score answers; None where it can."""
        found = self._scorer(atlas)
        return str(found) if isinstance(found, HeadwiseError) else None

    def prompt_format(self, atlas: str | os.PathLike[str] | None) -> tuple[int | None, bool | None]:
        """The atlas's question format: number of examples, and whether as a chat; None: the model's default."""
        if atlas is None:
            return None, None
        found = self._scorer(atlas)
        if isinstance(found, HeadwiseError):
            return None, None
        return found.options.few_shot, found.options.chat

    def score(self, atlas: str | os.PathLike[str], question: str, answer: str | None) -> AnswerScore:
        """Score an answer; without one the model generates it first."""
        found = self._scorer(atlas)
        if isinstance(found, HeadwiseError):
            raise found
        start = time.monotonic()
        score = found.score(question, answer)
        return _response(score, time.monotonic() - start)

    def _scorer(self, atlas: str | os.PathLike[str]) -> AnswerScorer | HeadwiseError:
        path = os.fspath(atlas)
        if path not in self._open:
            try:
                self._open[path] = AnswerScorer.open(path, self.model)
            except HeadwiseError as error:
                self._open[path] = error
        return self._open[path]


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
