"""Answers in the form of OpenAI's API, each with a field `headwise`: what the heads say about it.

Whole, the field of a choice has the state at the end of the answer and one entry per token:

    "headwise": {"score": 0.8, "probability": 0.63, "alarm": true, "heads": {"L21H3": 0.4, ...}, "unusual": [],
                 "finished": "stop", "tokens": [{"text": "Par", "score": ..., "probability": ..., "alarm": ..., ...}, ...]}

Streamed, each chunk's choice has the state after its token. OpenAI's clients pass the field on: `choice.headwise`.

| field       | what                                                                                                |
|-------------|-----------------------------------------------------------------------------------------------------|
| score       | of the answer so far; higher is more likely wrong                                                   |
| probability | that the answer is wrong, calibrated; null where there is none                                      |
| alarm       | whether the threshold is passed; of a whole answer: whether it ever was                             |
| heads       | the heads that drive the score, the largest contribution first                                      |
| unusual     | what lies outside the range of the training answers: then the probability is an extrapolation       |
| finished    | stop, length, alarm or cancelled: why the answer ended                                              |

Numbers that are not finite are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from headwise.watching import TokenScore

__all__ = ["DONE", "AnswerSoFar", "ApiResponse", "Usage", "sse"]

TOP_HEADS = 5
FINISH_REASONS = {"stop": "stop", "length": "length", "alarm": "content_filter"}  # the nearest word of OpenAI's
DONE = b"data: [DONE]\n\n"


class TokenReport(msgspec.Struct):
    """The state after one token."""

    text: str
    score: float
    probability: float
    alarm: bool
    heads: dict[str, float]
    unusual: list[str]


class AnswerReport(msgspec.Struct):
    """The state at the end of an answer, and after each token."""

    score: float | None
    probability: float | None
    alarm: bool
    heads: dict[str, float]
    unusual: list[str]
    finished: str | None
    tokens: list[TokenReport]


class TokenLogprob(msgspec.Struct):
    """A token of a chat's `logprobs`."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[None] = []


class ChatLogprobs(msgspec.Struct):
    """`logprobs` of a chat's choice."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """`logprobs` of a completion's choice."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class Turn(msgspec.Struct, omit_defaults=True):
    """A message, or what a chunk adds to it."""

    role: str | None = None
    content: str | None = None


class ChatChoice(msgspec.Struct):
    """A choice of a whole chat."""

    index: int
    message: Turn
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    headwise: AnswerReport


class ChatDelta(msgspec.Struct):
    """A choice of a chunk of a chat."""

    index: int
    delta: Turn
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    headwise: TokenReport | None


class TextChoice(msgspec.Struct):
    """A choice of a completion or of a chunk of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    headwise: AnswerReport | TokenReport | None


class Usage(msgspec.Struct):
    """Tokens of the prompts and of the answers."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ApiResponse(msgspec.Struct):
    """A whole answer, or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[ChatChoice | ChatDelta | TextChoice]
    usage: Usage | None = None
    system_fingerprint: None = None


@dataclass
class AnswerSoFar:
    """The events of one answer, and what is sent of them."""

    index: int
    chat: bool
    logprobs: bool
    top_logprobs: bool = False  # of a completion: the chosen token is the most likely one
    events: list[TokenScore] = field(default_factory=list)

    @property
    def generated(self) -> int:
        """The number of tokens."""
        return sum(event.token >= 0 for event in self.events)

    def chunk(self, event: TokenScore, *, offset: int = 0) -> ChatDelta | TextChoice:
        """What one event adds."""
        finish = None if event.finished is None else FINISH_REASONS.get(event.finished, "stop")
        report = _token_report(event)
        if self.chat:
            return ChatDelta(self.index, Turn(content=event.text), self._chat_logprobs([event]), finish, report)
        return TextChoice(self.index, event.text, self._text_logprobs([event], offset), finish, report)

    def whole(self) -> ChatChoice | TextChoice:
        """The complete choice."""
        text = "".join(event.text for event in self.events)
        last = self.events[-1]
        finish = FINISH_REASONS.get(last.finished or "stop", "stop")
        report = AnswerReport(
            last.score, last.probability, any(event.alarm for event in self.events), _top(last.heads), last.unusual,
            last.finished, [_token_report(event) for event in self.events if event.token >= 0],
        )  # fmt: skip
        if self.chat:
            turn = Turn("assistant", text)
            return ChatChoice(self.index, turn, self._chat_logprobs(self.events), finish, report)
        return TextChoice(self.index, text, self._text_logprobs(self.events, 0), finish, report)

    def _chat_logprobs(self, events: list[TokenScore]) -> ChatLogprobs | None:
        if not self.logprobs:
            return None
        return ChatLogprobs(
            [TokenLogprob(one.text, one.logprob, list(one.text.encode())) for one in events if one.token >= 0]
        )

    def _text_logprobs(self, events: list[TokenScore], offset: int) -> CompletionLogprobs | None:
        if not self.logprobs:
            return None
        found = CompletionLogprobs([], [], [] if self.top_logprobs else None, [])
        for event in events:
            if event.token >= 0:
                found.tokens.append(event.text)
                found.token_logprobs.append(event.logprob)
                found.text_offset.append(offset)
                if found.top_logprobs is not None:
                    found.top_logprobs.append({event.text: event.logprob})
            offset += len(event.text)
        return found


def sse(value: object) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _top(heads: dict[str, float]) -> dict[str, float]:
    names = sorted(heads, key=lambda name: -abs(heads[name]))
    return {name: heads[name] for name in names[:TOP_HEADS]}


def _token_report(event: TokenScore) -> TokenReport:
    return TokenReport(event.text, event.score, event.probability, event.alarm, _top(event.heads), event.unusual)
