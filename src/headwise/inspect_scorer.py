"""A scorer for Inspect (`inspect_ai`): how likely is each answer wrong, according to an atlas?

    Task(dataset=..., solver=generate(), scorer=[includes(), headwise_detector("atlas")])      in a task
    inspect score logs/LOG.eval --scorer headwise/detector -S atlas=atlas                      of answers in a log

The value is the calibrated probability that the answer is wrong, so that its mean over a task estimates the share of wrong
answers where nobody knows the right ones; the metadata name the heads that contribute most, and say whether an alarm was
raised (with `at` or `risk`). NaN, which Inspect leaves out of its means: the answer is empty, or chooses among options.

The detector needs the heads of the model, not only its text: the model is loaded again, in this process, whatever provider
Inspect has asked. It must be the model that the atlas is of (its weights are compared); that Inspect asked the same one is
yours to see to. The prompt of the task is not used: the question (`state.input_text`) is asked again in the format that the
detector was fitted with, and only the answer is taken.

Concurrency: Inspect scores many samples at once on one event loop. The model runs in a worker thread, one answer at a time,
and the loop goes on meanwhile. A detector is loaded once per process. Cost: one pass over prompt and answer.

Inspect finds this module by its entry point (`pyproject.toml`) whenever it starts; torch is loaded with the first answer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import headwise
from headwise.core.errors import DataError

try:
    from anyio import CapacityLimiter, to_thread
    from anyio.lowlevel import RunVar
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState
except ImportError as error:
    raise DataError('the scorer for Inspect needs the package inspect-ai: pip install "headwise[inspect]"') from error

__all__ = ["headwise_detector"]

_TURN: RunVar[CapacityLimiter] = RunVar("headwise_turn")  # of each event loop: one answer at a time
IN_THE_SCORE = ("id", "question", "answer", "probability")  # what Inspect keeps anyway, or has as the value


@scorer(metrics=[mean(), stderr()], name="detector")
def headwise_detector(
    atlas: str,
    model: str | None = None,
    *,
    score: str | None = None,
    at: float | None = None,
    risk: float | None = None,
) -> Scorer:
    """A score of an atlas as a scorer of Inspect.

    Args:
        atlas: an atlas with the study streaming or spectral: a folder, or its URL.
        model: a hub id or folder of the model, where it is not at the id that the atlas names.
        score: which of the atlas's scores; None: its default.
        at: raise alarms for at most this share of correct answers, such as 0.1.
        risk: raise alarms so that at most this share of the answers without one are wrong.

    Returns:
        A scorer whose value is the probability that the answer is wrong.
    """
    options = {name: value for name, value in (("score", score), ("at", at), ("risk", risk)) if value is not None}

    async def detector(state: TaskState, target: Target) -> Score:
        if state.choices:
            return _unscored("The sample chooses among options, and the detector is for free answers.")
        question, answer = state.input_text, state.output.completion.strip()
        if not answer:
            return _unscored("The answer is empty.")
        found = await to_thread.run_sync(
            lambda: _opened(atlas, model, **options).score(question, answer), limiter=_turn()
        )
        heads = ", ".join(f"{name} {added:+.2f}" for name, added in found.heads.items())
        return Score(
            value=found.probability,
            answer=answer,
            explanation=f"Log-odds that heads add to wrong: {heads}." if heads else None,
            metadata={name: value for name, value in found.to_dict().items() if name not in IN_THE_SCORE},
        )

    return detector


@cache
def _opened(atlas: str, model: str | None, **options: Any) -> Any:
    """One model per process, whatever the number of tasks."""
    return headwise.AnswerScorer.open(atlas, model, **options)


def _turn() -> CapacityLimiter:
    try:
        return _TURN.get()
    except LookupError:
        _TURN.set(CapacityLimiter(1))
        return _TURN.get()


def _unscored(why: str) -> Score:
    return Score(value=float("nan"), explanation=why)
