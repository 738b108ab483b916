"""A stand-in for a model under observation, whose every answer tells which prompt it belongs to; and a server around it.

The answer to ids (a, b, c) is the words `a+b+c:0 a+b+c:1 ...`: a mixed-up or lost token shows. The score of token i is i / 10.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from jinja2 import TemplateError

from headwise.server import ApiLimits, ApiModel, ApiSettings

NAME = "who/stand-in"
CONTEXT = 500


@dataclass(frozen=True)
class StandInPrompt:
    ids: tuple[int, ...]
    max_new_tokens: int = 32
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class StandInScore:
    row: int
    index: int
    token: int
    text: str
    logprob: float
    score: float
    probability: float
    heads: dict[str, float]
    unusual: list[str]
    alarm: bool
    finished: str | None


def words(prompt: Any, count: int) -> list[str]:
    """The answer of the stand-in."""
    return [f"{sum(prompt.ids)}:{index} " for index in range(count)]


class StandInStream:
    def __init__(self, watch: StandInWatch, prompts: list[StandInPrompt]):
        self.watch = watch
        self.rows: dict[int, list[Any]] = {}  # row -> [prompt, tokens]
        self.next_row, self.cancelled, self.closed = 0, set[int](), False
        self.lock = threading.Lock()
        for prompt in prompts:
            self._join(prompt)

    def _join(self, prompt: StandInPrompt) -> int:
        with self.lock:
            row, self.next_row = self.next_row, self.next_row + 1
            self.rows[row] = [prompt, 0]
            self.watch.prompts.append(prompt)
            return row

    def add(self, prompt: StandInPrompt) -> int | None:
        return self._join(prompt) if self.watch.joins else None

    def cancel(self, row: int) -> None:
        self.cancelled.add(row)

    def close(self) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[StandInScore]:
        while self.rows:
            if not self.watch.go.wait(20):
                raise RuntimeError("nobody let the stand-in go on")
            time.sleep(self.watch.seconds)
            self.watch.batches.append(len(self.rows))
            for row, state in list(self.rows.items()):
                prompt, index = state
                if row in self.cancelled:
                    del self.rows[row]
                    self.watch.ended.append("cancelled")
                    yield self._event(row, index, -1, "", "cancelled")
                    continue
                if self.watch.fails_on in prompt.ids:
                    raise RuntimeError("secret /path/of/mine")
                state[1] += 1
                text = f"{sum(prompt.ids)}:{index} "
                finished = "length" if state[1] == prompt.max_new_tokens else None
                for stop in prompt.stop:
                    if stop in text:
                        text, finished = text.partition(stop)[0], "stop"
                if finished:
                    del self.rows[row]
                    self.watch.ended.append(finished)
                yield self._event(row, index, 7, text, finished)

    def _event(self, row: int, index: int, token: int, text: str, finished: str | None) -> StandInScore:
        heads = {f"L0H{head}": head / 10 for head in range(8)}
        unusual = ["attention"] if index > 5 else []
        return StandInScore(
            row, index, token, text, -0.5, index / 10, min(1.0, index / 10), heads, unusual, index > 3, finished
        )


@dataclass
class StandInWatch:
    """Generates as fast as `seconds` per token says, while `go` is set."""

    seconds: float = 0.001
    joins: bool = True
    fails_on: int = -1
    go: threading.Event = field(default_factory=threading.Event)
    prompts: list[StandInPrompt] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)  # rows at each step
    ended: list[str] = field(default_factory=list)
    streams: list[StandInStream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go.set()

    def stream(self, prompts: list[StandInPrompt]) -> StandInStream:
        self.streams.append(StandInStream(self, prompts))
        return self.streams[-1]


class StandInModel:
    """One token per character."""

    def __init__(self, *, template: bool = True):
        self.tokenizer = SimpleNamespace(chat_template="{{ messages }}" if template else None)
        self.card = SimpleNamespace(max_positions=CONTEXT, vocabulary_size=2000)
        self.chats: list[Any] = []

    def ids(self, item: Any, *, limit: int | None = None, generation_prompt: bool | None = None) -> list[int]:
        if not isinstance(item, str):
            assert generation_prompt is True
            self.chats.append(item)
            if item[-1]["role"] == "assistant":
                raise TemplateError("Conversation roles must alternate")
            item = "".join(turn["content"] for turn in item)
        return [ord(letter) % 2000 for letter in item][:limit]


def settings(watch: Any, model: Any = None, key: Any = None, **limits: Any) -> ApiSettings:
    """An API with the stand-in."""
    found = ApiModel(NAME, model or StandInModel(), watch, StandInPrompt)
    return ApiSettings(NAME, lambda: found, key, ApiLimits(**limits))
