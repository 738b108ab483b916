"""What the live session hands back, as it goes over the wire. Every result is JSON-able: no NaN, no array, no tensor.

Small maps come as figures (`figures.to_payload`). One head's map is float32 (row, column), packed by zlib (what browsers
call "deflate") and written in base64; NaN is hidden by the mask.

Rows are queries (tokens that look), columns keys (tokens that are looked at). Where a map has fewer rows than tokens,
`row_starts` tells at which token each row begins; a cell is the largest weight of its rectangle. Log-probabilities and
divergences are in nats. Numbers that do not exist are null.
"""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = [
    "Control", "Effect", "HeadMap", "LookResult", "Packed", "Scored", "Side", "Spread", "Step", "Token",
    "WhatIf",
]  # fmt: skip


class Packed(TypedDict):
    """An array."""

    dtype: str  # "float32", little-endian
    shape: list[int]
    deflated: str


class Token(TypedDict):
    """One token of prompt and answer; equal tokens are separate items."""

    text: str  # readable; special tokens by their names
    special: bool
    generated: bool


class Candidate(TypedDict):
    """A token that could come next."""

    text: str
    id: int
    p: float


class Spread(TypedDict):
    """A next-token distribution: the likeliest, and what is left for the others."""

    top: list[Candidate]  # at most 12, falling
    rest: float
    entropy: float  # nats, of the whole distribution


class Step(TypedDict):
    """One token that was said, and what could have been said instead."""

    text: str
    id: int
    logprob: float
    spread: Spread


class LookResult(TypedDict):
    """What `Session.look` gives."""

    id: str  # for `head` and `what_if`; the session forgets the oldest looks
    mode: str  # "question", "chat" or "text"
    text: str
    changes: dict[str, float]  # heads that were scaled in this look
    layers: int
    heads: int
    headless: dict[str, str]  # layer -> why it has no heads
    tokens: list[Token]
    prompt_tokens: int
    answer: str
    finished: bool  # the answer ended by itself; False: by the limit, or none was asked for
    logprob: float | None  # of the whole answer; null without one
    next: Spread  # at the end of the prompt
    steps: list[Step]  # one a token of the answer
    figures: list[dict[str, Any]]  # {key, label, payload}: the grid of all small maps ("maps"), then maps of numbers
    numbers: dict[str, list[list[float | None]]]  # statistic of the profile -> (layer, head)
    uniform: dict[str, float | None]  # what an even head gets on these tokens
    seconds: float


class HeadMap(TypedDict):
    """What `Session.head` gives: one head's map, or a window of it."""

    look: str
    head: str  # "L12H3"
    rows: list[int]  # [first, after the last] token of the window
    columns: list[int]
    row_starts: list[int]
    column_starts: list[int]
    weights: Packed  # float32 (row, column)
    exact: bool  # every row and column is one token


class Side(TypedDict):
    """The model in one state: as it is, or with heads changed."""

    answer: str
    tokens: list[Token]  # of the answer
    finished: bool
    next: Spread
    steps: list[Step]


class Effect(TypedDict):
    """How far a change moved the model, against the model as it is."""

    kl: float  # KL(before || after) of the next token at the prompt's end
    answer_kl: float | None  # mean KL over the tokens of the original answer
    logprob_change: float | None  # of the original answer: after less before
    top_changed: bool  # another token is likeliest at the prompt's end


class Control(Effect):
    """The same number of other heads, drawn at random, changed by the same factors."""

    heads: dict[str, float]


class WhatIf(TypedDict):
    """What `Session.what_if` gives."""

    look: str
    changes: dict[str, float]
    before: Side
    after: Side
    effect: Effect
    logprob: float | None  # of the original answer, before
    logprob_after: float | None
    controls: list[Control]
    as_large: int  # how many controls have at least this KL
    seconds: float


class Scored(TypedDict):
    """What `Session.score` gives: the atlas's detector on one answer."""

    question: str
    answer: str
    probability: float | None  # that the answer is wrong; null for an empty one
    heads: list[list[float | None]]  # (layer, head): log-odds each added to "wrong"
    others: dict[str, float]  # what each block of features added
    unusual: list[str]  # blocks outside of all that the detector was fitted on: distrust the probability
    figure: dict[str, Any] | None  # the same map as a figure payload
    seconds: float
