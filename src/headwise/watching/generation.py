"""Answers that are scored while they are written: a batch of prompts, a token per step, an event per token.

    stream = watch.stream([Prompt(ids), Prompt(other)])
    for event in stream:                    # TokenScore, of all rows in turn
        event.text, event.score, event.heads, event.alarm
    stream.cancel(1)                        # from any thread: row 1 ends at the next step
    stream.add(Prompt(third))               # from any thread: joins the batch; None where it cannot

The score after a token uses the row of every head's attention map that emitted this token. So it is there when the token is,
and nothing is read a second time; the row that emits the end of an answer is no part of its score. An alarm is checked after
1, 2, 4, 8, ... tokens and at the end of the answer, as in the calibration of thresholds (`studies.streaming`).

Tokens are chosen from the model's own logits: greedy at temperature 0, else by temperature and nucleus (`top_p`), with random
numbers from the row's own seed, so that the batch does not change an answer beyond rounding.

Cost: a decode step of the model, a QK^T row per layer where the score reads heads, and a few operations on (layer, head)
numbers. A stream that is closed, fails or ends leaves no hook on the model.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import TopPLogitsWarper

from headwise.core.dims import head_name
from headwise.core.errors import DataError
from headwise.instruments.answer_rows import ROW_STATISTICS, RunningAnswerRows
from headwise.model import Model
from headwise.probes.running_scores import AnswerStep, RunningDetector, RunningScore
from headwise.seam import Observation, observe
from headwise.studies.answers.endings import ending_ids
from headwise.studies.decoding import DecodedTokens, Ids, PrefixCachedDecoder

if TYPE_CHECKING:
    from headwise.watching.fitted import WatchedScore

HEADS_NAMED = 5  # with each token, and with the score of an answer
Finished = Literal["stop", "length", "cancelled", "alarm"]
INCOMPLETE = "�"  # what a tokenizer writes for a character of which bytes are missing
COLDEST = 1e-20  # temperature: what is smaller may be 0 in float32, and 0 divided by 0 is no number


@dataclass(frozen=True)
class Prompt:
    """What is continued, and how. `Watch.prompt` makes one from a text.

    Examples:
        >>> Prompt((1, 5, 7), temperature=0.7, seed=3).max_new_tokens
        32
    """

    ids: Ids  # token ids
    max_new_tokens: int = 32  # of the answer
    temperature: float = 0.0  # 0: the most likely token
    top_p: float = 1.0  # the smallest set of tokens with this probability is sampled from
    seed: int = 0  # of the random numbers of this row
    stop: tuple[str, ...] = ()  # texts that end the answer, and are no part of it
    ends: Callable[[Ids, int], bool] | None = None  # whether a token ends the answer; None: the model's end tokens

    def __post_init__(self) -> None:
        if not self.ids:
            raise DataError("the prompt is empty; give a text")
        if self.max_new_tokens < 1:
            raise DataError(f"an answer cannot have {self.max_new_tokens} tokens; give at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0 and 0 < self.top_p <= 1):
            raise DataError(
                f"temperature {self.temperature} or top_p {self.top_p} is no way to sample; temperature is 0 or more, top_p "
                "above 0 and at most 1"
            )


@dataclass(frozen=True)
class TokenScore:
    """One generated token, and what is known of the answer with it.

    Examples:
        >>> event = next(hw.watch(model, "RAUQ").stream("where was the river ?", mode="text"))
        >>> event.index, event.text, event.finished
        (0, '?', None)
    """

    row: int  # of the prompts
    index: int  # 0: the first token of the answer
    token: int  # -1: none, the answer has ended
    text: str  # what this token adds to the text; empty while a character is incomplete
    logprob: float  # of the token; NaN for none
    score: float  # of the answer so far; larger: more likely wrong
    probability: float  # that the answer is wrong; NaN where the score has no calibration
    heads: dict[str, float] = field(default_factory=dict)  # the heads that drive the score: log-odds that each adds
    others: dict[str, float] = field(default_factory=dict)  # what each feature set adds, all heads together being one
    unusual: list[str] = field(default_factory=list)  # feature sets outside the range of the training answers
    alarm: bool = False  # the threshold was passed, with this token or before
    finished: Finished | None = None  # on the last event of a row


class Stream:
    """Events of several answers that are generated together. Made by `Watch.stream`; an iterator, and a context manager.

    Args:
        decoder: that reads the prompts and continues them.
        answers: makes what scores the answers of a batch.
        prompts: a batch.

    Examples:
        >>> with hw.watch(model, "RAUQ").stream(["the old river", "a low door"], mode="text", max_new_tokens=2) as stream:
        ...     [(event.row, event.index) for event in stream]
        [(0, 0), (1, 0), (0, 1), (1, 1)]
    """

    def __init__(self, decoder: PrefixCachedDecoder, answers: Callable[[], Answers], prompts: Sequence[Prompt]):
        self._decoder, self._make_answers = decoder, answers
        self._lock = threading.Lock()
        self._waiting = deque(enumerate(prompts))
        self._rows = len(self._waiting)  # so far, ended ones included
        self._cancelled: set[int] = set()
        self._ended = False
        self._observation = ExitStack()
        self._observing: Observation | None = None
        self._events = self._generate()

    def __iter__(self) -> Iterator[TokenScore]:
        return self

    def __next__(self) -> TokenScore:
        return next(self._events)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def cancel(self, row: int) -> None:
        """End a row at the next step; from any thread."""
        with self._lock:
            self._cancelled.add(row)

    def add(self, prompt: Prompt) -> int | None:
        """The row of a prompt that joins the batch at the next step; None: it cannot. From any thread."""
        with self._lock:
            if self._ended or not self._decoder.joins:
                return None
            self._waiting.append((self._rows, prompt))
            self._rows += 1
            return self._rows - 1

    def close(self) -> None:
        """End all rows and the observation; from the thread that iterates."""
        with self._lock:
            self._ended = True
        self._events.close()

    def _generate(self) -> Generator[TokenScore, None, None]:
        """One batch after the other: usually one, but a model without padding reads prompts of one length at a time."""
        while prompts := self._next_batch():
            self._answers = self._make_answers()
            with self._observation:
                self._observe()
                yield from self._batch(prompts)

    def _batch(self, prompts: Mapping[int, Prompt]) -> Iterator[TokenScore]:
        numbers = list(prompts)  # of each row of the decoder
        answers = self._answers
        for row, prompt in prompts.items():
            answers.begin(row, prompt)

        def choose(logits: Tensor, rows: Sequence[int]) -> Tensor:
            return choose_tokens(logits, [answers[numbers[row]] for row in rows])

        longest = max(len(prompt.ids) + prompt.max_new_tokens for prompt in prompts.values())
        ids = [prompt.ids for prompt in prompts.values()]
        decoding = self._decoder.begin(ids, longest, choose, lambda lines: self._answers.select(lines))
        for step in decoding:
            lines = [numbers[row] for row in decoding.rows]
            for row, event in zip(step.rows, answers.step(lines, step, self._cancelled), strict=True):
                if event.finished is not None:
                    decoding.end(row)
                with nullcontext() if self._observing is None else self._observing.suspended():
                    yield event  # the caller may run the model, or leave the stream unfinished
            while decoding.running and (joining := self._next_joining()) is not None:
                numbers.append(joining[0])
                answers.begin(*joining)
                decoding.join(joining[1].ids, self._joining)

    def _observe(self) -> None:
        if self._answers.rows is not None:
            self._observing = self._observation.enter_context(observe(self._answers.model, self._answers.rows))

    @contextmanager
    def _joining(self, lines: int) -> Iterator[None]:
        """While a prompt is read that joins the answers of ``lines``: it is observed alone."""
        whole = self._answers.rows
        if whole is not None:
            self._observation.close()
            self._answers.rows = RunningAnswerRows()
            self._observe()
        yield
        if whole is not None and self._answers.rows is not None:
            self._observation.close()
            whole.join(self._answers.rows)
            self._answers.rows = whole
            self._observe()
        self._answers.running.select(torch.tensor([*range(lines), 0]))  # a new answer begins from nothing

    def _next_batch(self) -> dict[int, Prompt]:
        with self._lock:
            taken: dict[int, Prompt] = {}
            for _ in range(len(self._waiting)):
                row, prompt = self._waiting.popleft()
                if taken and not self._decoder.pads and len(prompt.ids) != len(next(iter(taken.values())).ids):
                    self._waiting.append((row, prompt))
                else:
                    taken[row] = prompt
            self._ended = self._ended or not taken
            return {} if self._ended else taken

    def _next_joining(self) -> tuple[int, Prompt] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting and self._decoder.joins else None


class Answers:
    """The answers of a batch: their scores, texts and alarms, a token at a time.

    Args:
        model: that writes them.
        watched: the score.
        threshold: above which an alarm is raised; None: never.
        stop_at_alarm: whether an alarm ends the answer.
        on_alarm: called with the event that raises one.
    """

    def __init__(
        self, model: Model, watched: WatchedScore, *, threshold: float | None = None, stop_at_alarm: bool = False,
        on_alarm: Callable[[TokenScore], object] | None = None,
    ):  # fmt: skip
        self.model, self.watched, self.running = model, watched, watched.make()
        self.rows = RunningAnswerRows() if self.running.reads_rows else None  # observes the model
        self._threshold, self._stop_at_alarm, self._on_alarm = threshold, stop_at_alarm, on_alarm
        self._answers: dict[int, Answer] = {}

    def restart(self) -> None:
        """Forget all answers: the model reads other prompts."""
        self.running, self._answers = self.watched.make(), {}

    def begin(self, row: int, prompt: Prompt) -> None:
        """One more answer; its prompt has been read, or will be, before its first token."""
        self._answers[row] = Answer(row, prompt, self.model)

    def __getitem__(self, row: int) -> Answer:
        return self._answers[row]

    def select(self, lines: Tensor) -> None:
        """Retain these lines of the batch."""
        self.running.select(lines)
        if self.rows is not None:
            self.rows.select(lines)

    def step(self, lines: Sequence[int], step: DecodedTokens, cancelled: Collection[int] = ()) -> list[TokenScore]:
        """The events of a step, one per token.

        Args:
            lines: the answer of each line of the batch, ended ones included.
            step: the tokens of the lines that go on; ``rows`` are their numbers among the rows of the decoder.
            cancelled: answers that are to end.
        """
        going = [line for line, row in enumerate(lines) if self._answers[row].finished is None]
        values = self._update(lines, going, step)
        events = []
        for line, token, logprob, found in zip(going, step.tokens, step.logprobs, values, strict=True):
            answer = self._answers[lines[line]]
            if answer.row in cancelled:
                event = answer.end("cancelled")
            elif answer.ends(token):
                event = answer.end("stop")
            else:
                event = answer.add(token, logprob, found)
            events.append(self._checked(answer, event))
        return events

    def end(self, row: int, *, only_look: bool = False) -> TokenScore:
        """The end of an answer that something else ended, such as its length; ``only_look``: it may go on."""
        answer = self._answers[row]
        event = answer.end("length")
        if not only_look:
            return self._checked(answer, event)
        over = self._threshold is not None and event.score > self._threshold
        return replace(event, alarm=answer.alarm or over)

    def _checked(self, answer: Answer, event: TokenScore) -> TokenScore:
        """With its alarm, which is checked after 1, 2, 4, 8, ... tokens and at the end."""
        count = len(answer.ids)
        if event.finished is None and count == answer.prompt.max_new_tokens:
            event = replace(event, finished="length")
        checked = event.finished is not None or count & (count - 1) == 0
        if self._threshold is not None and checked and event.score > self._threshold and not answer.alarm:
            answer.alarm = True
            event = replace(event, alarm=True)
            if self._stop_at_alarm and event.finished is None:
                event = replace(event, finished="alarm")
            if self._on_alarm is not None:
                self._on_alarm(event)
        answer.finished = event.finished
        if event.finished is not None:
            event = replace(event, text=event.text + answer.rest())
        return replace(event, alarm=answer.alarm)

    def _update(self, lines: Sequence[int], going: Sequence[int], step: DecodedTokens) -> list[dict[str, Any]]:
        """What an event says of each answer that goes on."""
        logprob = torch.zeros(len(lines))
        logprob[list(going)] = torch.tensor(step.logprobs)
        count = torch.tensor([len(self._answers[row].ids) + 1 for row in lines])
        device = self.model.device
        row: dict[str, Tensor] = {}
        means: dict[str, Tensor] = {}
        if self.rows is not None and self.rows.last is not None:
            row = dict(zip(ROW_STATISTICS, self.rows.last, strict=True))
            means = dict(zip(ROW_STATISTICS, self.rows.means, strict=True))
            device = self.rows.last.device
        score = self.running.update(AnswerStep(logprob.to(device), count.to(device), row, means))
        values = _Values(self.watched, self.running, score)
        return [values.of(line) for line in going]


class _Values:
    """Scores and what drives them, on the host."""

    def __init__(self, watched: WatchedScore, running: RunningScore, score: Tensor):
        self._watched = watched
        self._score = score.tolist()
        self._blocks: dict[str, list[float]] = {}
        self._heads: tuple[list[list[float]], list[list[int]]] | None = None
        if isinstance(running, RunningDetector):
            self._blocks = {name: one.tolist() for name, one in running.blocks.items()}
            if running.contributions is not None:
                self._width = running.contributions.shape[2]
                flat = running.contributions.transpose(0, 1).flatten(1)  # (batch, layer x head)
                index = flat.abs().topk(min(HEADS_NAMED, flat.shape[1]), dim=1).indices
                self._heads = flat.gather(1, index).tolist(), index.tolist()

    def of(self, line: int) -> dict[str, Any]:
        """What an event says of one line of the batch."""
        score = self._score[line]
        heads: dict[str, float] = {}
        if self._heads is not None:
            added, index = self._heads[0][line], self._heads[1][line]
            heads = {
                head_name(*divmod(one, self._width)): value for one, value in zip(index, added, strict=True)
            }  # fmt: skip
        seen = self._watched.seen or {}
        unusual = [
            name for name, values in self._blocks.items()
            if name in seen and not seen[name][0] <= values[line] <= seen[name][1]
        ]  # fmt: skip
        calibration = self._watched.calibration
        probability = math.nan if calibration is None else float(calibration(np.array(score)))
        others = {name: values[line] for name, values in self._blocks.items()}
        return {"score": score, "probability": probability, "heads": heads, "others": others, "unusual": unusual}


class Answer:
    """One answer so far."""

    def __init__(self, row: int, prompt: Prompt, model: Model):
        self.row, self.prompt = row, prompt
        self.ids: list[int] = []
        self.alarm = False
        self.finished: Finished | None = None
        self.random = torch.Generator().manual_seed(prompt.seed)
        self._tokenizer: Any = model.tokenizer
        self._end_ids = ending_ids(model)
        self._sent, self._stopped = "", False
        self._last: dict[str, Any] = {
            "score": math.nan, "probability": math.nan, "heads": {}, "others": {}, "unusual": [],
        }  # fmt: skip

    def ends(self, token: int) -> bool:
        """Whether this token ends the answer, and is no part of it."""
        if self.prompt.ends is not None:
            return self.prompt.ends(tuple(self.ids), token)
        return token in self._end_ids

    def add(self, token: int, logprob: float, values: Mapping[str, Any]) -> TokenScore:
        """One more token."""
        self.ids.append(token)
        self._last = dict(values)
        text = self._new_text()
        finished: Finished | None = "stop" if self._stopped else None
        return TokenScore(self.row, len(self.ids) - 1, token, text, logprob, **self._last, finished=finished)

    def end(self, finished: Finished) -> TokenScore:
        """The end of the answer: no token, the last score."""
        return TokenScore(self.row, len(self.ids), -1, "", math.nan, **self._last, alarm=self.alarm, finished=finished)

    def rest(self) -> str:
        """Text that was held back."""
        if self._stopped:
            return ""
        whole = self._decoded()
        rest, self._sent = whole[len(self._sent) :], whole
        return rest

    def _decoded(self) -> str:
        if self._tokenizer is None:
            return ""
        text: str = self._tokenizer.decode(self.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _new_text(self) -> str:
        """What may be sent: no part of a character, and no part of what may become a stop text."""
        whole = self._decoded()
        cut = min((place for stop in self.prompt.stop if (place := whole.find(stop)) >= 0), default=-1)
        if cut >= 0:
            self._stopped, whole = True, whole[:cut]
        else:
            whole = whole.rstrip(INCOMPLETE)
            held = max((_overlap(whole, stop) for stop in self.prompt.stop), default=0)
            whole = whole[: len(whole) - held]
        new, self._sent = whole[len(self._sent) :], max(self._sent, whole, key=len)
        return new


def _overlap(text: str, stop: str) -> int:
    """The length of the longest beginning of ``stop`` that ``text`` ends with.

    >>> _overlap("one two EN", "END"), _overlap("one", "END")
    (2, 0)
    """
    return next((size for size in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:size])), 0)


def choose_tokens(logits: Tensor, answers: Sequence[Answer]) -> Tensor:
    """(line,) the next token of each answer: the most likely one, or a random one from its own generator."""
    chosen = logits.argmax(-1)
    for line, answer in enumerate(answers):
        prompt = answer.prompt
        if prompt.temperature == 0:
            continue
        scaled = (logits[line : line + 1] - logits[line].max()) / max(prompt.temperature, COLDEST)
        if prompt.top_p < 1:
            scaled = TopPLogitsWarper(prompt.top_p)(None, scaled)
        passed = scaled.softmax(-1).cumsum(-1)
        number = torch.rand(1, 1, generator=answer.random).to(passed.device)
        chosen[line] = torch.searchsorted(passed, number * passed[:, -1:], right=True)[0, 0].clamp(
            max=passed.shape[1] - 1
        )
    return chosen
