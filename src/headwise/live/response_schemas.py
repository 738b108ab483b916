"""The results of a live session, as JSON: no NaN, no array, no tensor. Also the encoding of arrays and numbers.

Small maps are figures (`figures.to_payload`). One head's map is float32 (row, column), compressed with zlib (what browsers
call "deflate") and base64; NaN marks masked cells.

Rows are queries, columns are keys. Where a map has fewer rows than tokens, `row_starts` has the first token of each row, and a
cell is the maximum weight of its rectangle. Log-probabilities and divergences are in nats. Undefined numbers are null.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any, Literal, TypedDict

import numpy as np

__all__ = [
    "AnswerEnd", "AnswerScore", "Continuation", "ControlEffect", "Effect", "GeneratedToken", "LiveEvent",
    "MapWindow", "NewToken", "NextTokens", "PackedArray", "RunResult", "ScoreChoice", "ScoreSoFar", "StoredEffect", "TokenInfo",
    "WhatIfResult", "json_matrix", "json_number", "pack_array",
]  # fmt: skip

ZLIB_LEVEL = 1  # a large map is sent over loopback, where time matters more than bytes


class PackedArray(TypedDict):
    """An array."""

    dtype: str  # "float32", little-endian
    shape: list[int]
    deflated: str


class TokenInfo(TypedDict):
    """One token of the prompt or the answer; equal tokens are separate items."""

    text: str  # readable; special tokens by their names
    special: bool
    generated: bool


class TokenProbability(TypedDict):
    """A possible next token."""

    text: str
    id: int
    p: float


class NextTokens(TypedDict):
    """A next-token distribution: the most likely tokens, and the probability of all others."""

    top: list[TokenProbability]  # at most 12, descending
    rest: float
    entropy: float  # nats, of the whole distribution


class ScoreChoice(TypedDict):
    """A score of the atlas that can be shown."""

    name: str
    note: str  # how it compares
    alarm: str  # what its threshold guarantees


class ScoreSoFar(TypedDict):
    """One score of an answer up to a token."""

    score: float | None  # larger: more likely wrong
    probability: float | None  # that the answer is wrong; null where the score is not calibrated for this prompt
    heads: dict[str, float | None]  # that drive the score: log-odds that each adds
    unusual: list[str]  # feature sets outside the range of the training answers
    alarm: bool  # the threshold was passed, with this token or before


class GeneratedToken(TypedDict):
    """One generated token and the distribution it was taken from."""

    text: str
    id: int
    logprob: float
    distribution: NextTokens
    scores: dict[str, ScoreSoFar]  # of the answer so far, by name; empty without an atlas that has some


class NewToken(GeneratedToken):
    """A token, sent when it is there."""

    event: Literal["token"]
    part: str  # "answer" of a run; "unchanged" or "changed" of a what-if
    index: int
    limit: int  # tokens of the answer at most


class AnswerEnd(TypedDict):
    """The end of an answer, sent when it is there; the rest of the job follows."""

    event: Literal["answered"]
    part: str
    finished: bool
    scores: dict[str, ScoreSoFar]


LiveEvent = NewToken | AnswerEnd


class RunResult(TypedDict):
    """Result of `LiveSession.run`."""

    id: str  # for `head_map` and `what_if`; the session drops the oldest runs
    mode: str  # "question", "chat" or "text"
    text: str
    changes: dict[str, float]  # heads that were scaled in this run
    layers: int
    heads: int
    layers_without_heads: dict[str, str]  # layer -> reason
    tokens: list[TokenInfo]
    prompt_tokens: int
    answer: str
    finished: bool  # the answer ended by itself; False: at the limit, or no answer was requested
    logprob: float | None  # of the whole answer; null without one
    next: NextTokens  # at the end of the prompt
    steps: list[GeneratedToken]  # one per answer token
    scores: dict[str, ScoreSoFar]  # of the whole answer
    figures: list[dict[str, Any]]  # {key, label, payload}: the grid of small maps ("maps"), then one map per statistic
    numbers: dict[str, list[list[float | None]]]  # profile statistic -> (layer, head)
    uniform: dict[str, float | None]  # the statistic under uniform attention on these tokens
    seconds: float


class MapWindow(TypedDict):
    """Result of `LiveSession.head_map`: one head's map, or a window of it."""

    run: str
    head: str  # "L12H3"
    rows: list[int]  # [first, end) tokens of the window
    columns: list[int]
    row_starts: list[int]
    column_starts: list[int]
    weights: PackedArray  # float32 (row, column)
    exact: bool  # every row and column is one token


class Continuation(TypedDict):
    """What the model generates: unchanged, or with heads scaled."""

    answer: str
    tokens: list[TokenInfo]  # of the answer
    finished: bool
    next: NextTokens
    steps: list[GeneratedToken]
    scores: dict[str, ScoreSoFar]  # of the whole answer


class Effect(TypedDict):
    """Distance of the changed model from the unchanged one."""

    kl: float  # KL(before || after) of the next token at the prompt's end
    answer_kl: float | None  # mean KL over the tokens of the original answer
    logprob_change: float | None  # of the original answer: after minus before
    top_changed: bool  # the most likely token at the prompt's end changed


class ControlEffect(Effect):
    """The same number of other heads, drawn at random, scaled by the same factors."""

    heads: dict[str, float]


class StoredEffect(TypedDict):
    """What the study `causal` of the atlas measured about a head, by mean ablation over its texts."""

    head: str
    effect: float | None  # rise of the loss on all tokens, nats per token
    effect_low: float | None
    effect_high: float | None
    q: float | None
    exact: bool  # the head was ablated; False: a corrected attribution
    rank: int | None  # among the heads of its layer, 1 is needed most
    heads: int  # of its layer
    excess: float | None  # the effect minus that of heads of its layer that write about as much
    excess_low: float | None
    excess_high: float | None
    answer: float | None  # rise of -log P(gold answer), nats per token of the answer
    answer_low: float | None
    answer_high: float | None


class WhatIfResult(TypedDict):
    """Result of `LiveSession.what_if`."""

    run: str
    changes: dict[str, float]
    before: Continuation
    after: Continuation
    effect: Effect
    logprob: float | None  # of the original answer, before
    logprob_after: float | None
    controls: list[ControlEffect]
    controls_at_least: int  # number of controls with at least this KL
    stored: list[
        StoredEffect
    ]  # of the heads that were scaled; empty where the atlas has no study `causal` of this model
    seconds: float


class AnswerScore(TypedDict):
    """Result of `LiveSession.score`: the atlas's detector on one answer."""

    question: str
    answer: str
    probability: float | None  # that the answer is wrong; null for an empty one
    head_contributions: list[list[float | None]]  # (layer, head): log-odds added to "wrong"
    block_contributions: dict[str, float]  # log-odds added by each block of features
    out_of_range: list[str]  # blocks outside the range of the training answers: the probability is an extrapolation
    figure: dict[str, Any] | None  # `head_contributions` as a figure payload
    seconds: float


def pack_array(array: np.ndarray) -> PackedArray:
    """An array as float32, little-endian, compressed."""
    plain = np.ascontiguousarray(array, dtype="<f4")
    deflated = base64.b64encode(zlib.compress(plain.tobytes(), ZLIB_LEVEL)).decode()
    return {"dtype": "float32", "shape": list(plain.shape), "deflated": deflated}


def json_number(value: float) -> float | None:
    """A float with six digits; None where it is not finite.

    >>> json_number(float("nan")), json_number(0.1)
    (None, 0.1)
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None


def json_matrix(values: np.ndarray) -> list[list[float | None]]:
    """A matrix as lists."""
    return [[json_number(float(each)) for each in row] for row in values]
