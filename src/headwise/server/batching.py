"""Requests of the API in batches: a bounded queue, and a batch that later requests can join while it runs.

    requests --submit--> waiting (bounded) --a batch starts with all that wait--> running --events--> requests
                                           --later ones join between two tokens-->

A batch is one job of the model's thread (`model_host`), so that nothing else uses the model meanwhile: the live page's jobs
and the API's batches take turns. While other jobs wait, nobody joins, so a batch ends after at most the tokens of its longest
answer. Requests start in the order they came: if the first one cannot join the running batch, those behind it wait, too.

Every accepted request ends with exactly one event whose `finished` is set, or with one `Failure`; a cancelled one leaves the
queue at once, or its batch at the next token.

Here one token is an event of the engine (`headwise.watching`), which this module knows by its methods alone: it needs no torch.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headwise.core.cancellation import CancelToken
from headwise.core.errors import HeadwiseError
from headwise.server.model_host import JobQueue, QueueFullError, unexpected_message
from headwise.server.openai_errors import CLIENT_GONE

if TYPE_CHECKING:
    from headwise.watching import Prompt, TokenScore

__all__ = ["ApiTicket", "Batching", "Failure", "WatchedStream", "Watcher"]

MAX_BATCH = 8
MAX_WAITING_REQUESTS = 32
JOINING_STEPS = 512  # tokens of a batch after which nobody joins it: a cache is as long as its batch is old


class WatchedStream(Protocol):
    """A batch that is being generated, as `Watch.stream` returns it."""

    def __iter__(self) -> Iterator[TokenScore]: ...
    def add(self, prompt: Prompt) -> int | None: ...
    def cancel(self, row: int) -> None: ...
    def close(self) -> None: ...


class Watcher(Protocol):
    """The interface of `headwise.watching.Watch`."""

    def stream(self, prompts: list[Prompt]) -> WatchedStream: ...


@dataclass(frozen=True)
class Failure:
    """The end of a request without an answer."""

    text: str
    status: int = 500


STOPPING = Failure("the server is being stopped", 503)
UNFINISHED = Failure("the model ended before this answer was complete")
Deliver = Callable[["TokenScore | Failure"], None]


@dataclass(eq=False)
class ApiTicket:
    """A prompt in the queue or in a batch; `deliver` is called in the model's thread and must not block."""

    prompt: Prompt
    deliver: Deliver
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None  # when it joined a batch
    row: int | None = None  # in that batch
    cancelled: bool = False
    ended: bool = False


class AnswerCounter(Protocol):
    """What is counted (`api_metrics`)."""

    def accepted(self, ticket: ApiTicket) -> None: ...
    def token(self, ticket: ApiTicket, event: TokenScore) -> None: ...
    def ended(self, ticket: ApiTicket, finished: str, event: TokenScore | None = None) -> None: ...


class Batching:
    """The queue and the running batch."""

    def __init__(
        self, jobs: JobQueue, watcher: Callable[[], Watcher], counter: AnswerCounter, *, max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING_REQUESTS,
    ):  # fmt: skip
        self.max_batch, self.max_waiting = max_batch, max_waiting
        self._jobs, self._watcher, self._counter = jobs, watcher, counter
        self._lock = threading.RLock()
        self._waiting: deque[ApiTicket] = deque()
        self._rows: dict[int, ApiTicket] = {}  # of the running batch
        self._stream: WatchedStream | None = None
        self._steps, self._of_step = 0, set[int]()  # of the running batch; the rows of its last step
        self._scheduled = False  # a batch runs, or waits for the model's thread
        self._typical_seconds = 1.0  # of an answer, once it runs

    @property
    def waiting(self) -> int:
        """Requests that no batch has taken yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._rows)

    def submit(self, prompts: Sequence[tuple[Prompt, Deliver]]) -> list[ApiTicket]:
        """Append the prompts of one request, all or none; QueueFullError where there is no room for them."""
        tickets = [ApiTicket(prompt, deliver) for prompt, deliver in prompts]
        with self._lock:
            room = self.max_waiting + self.max_batch - self.running - self.waiting
            if len(tickets) > room:
                raise QueueFullError(
                    f"{self.running} answers are being generated and {self.waiting} wait; try again in a moment",
                    retry_after=self._seconds_until_room(),
                )
            if not self._scheduled:
                self._schedule()
            self._waiting.extend(tickets)
            for ticket in tickets:
                self._counter.accepted(ticket)
        return tickets

    def cancel(self, ticket: ApiTicket) -> None:
        """Take a request out of the queue, or out of its batch at the next token; one that has ended stays as it is."""
        with self._lock:
            if ticket.cancelled or ticket.ended:
                return
            ticket.cancelled = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._fail(ticket, Failure("cancelled", CLIENT_GONE), "cancelled")
            elif self._stream is not None and ticket.row is not None:
                self._stream.cancel(ticket.row)

    def close(self) -> None:
        """End what waits; the running batch ends with its job."""
        with self._lock:
            while self._waiting:
                self._fail(self._waiting.popleft(), STOPPING, "failed")

    def _seconds_until_room(self) -> int:
        batches_ahead = 1 + self.waiting / self.max_batch
        return min(60, max(1, math.ceil(self._typical_seconds * batches_ahead / 2)))

    def _schedule(self) -> None:
        """Append a batch to the jobs of the model's thread."""
        self._jobs.submit(self._run_batch, seconds=math.inf, always=True)
        self._scheduled = True

    def _run_batch(self, cancel: CancelToken) -> None:
        """One batch, from the requests that wait to the last token; then another one for those that came too late."""
        failure = UNFINISHED
        try:
            self._take()
            if self._rows:
                self._generate(cancel)
        except HeadwiseError as error:
            failure = Failure(str(error))
        except Exception as error:
            failure = Failure(unexpected_message(error))
        with self._lock:
            for ticket in self._rows.values():
                self._fail(ticket, STOPPING if cancel.cancelled else failure, "failed")
            self._rows, self._stream, self._scheduled = {}, None, False
            if self._waiting:
                try:
                    self._schedule()
                except QueueFullError:
                    self.close()

    def _take(self) -> None:
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(self.max_batch, len(self._waiting)))]
            self._rows = dict(enumerate(taken))
            self._steps = 0
            self._of_step.clear()
            for row, ticket in self._rows.items():
                ticket.row, ticket.started = row, time.monotonic()

    def _generate(self, cancel: CancelToken) -> None:
        stream = self._watcher().stream([ticket.prompt for ticket in self._rows.values()])
        with self._lock:
            self._stream = stream
            for row, ticket in self._rows.items():
                if ticket.cancelled:  # between the queue and the batch
                    stream.cancel(row)
        try:
            for event in stream:
                self._pass_on(event)
                if cancel.cancelled:
                    return
                self._let_others_join(stream)
        finally:
            stream.close()

    def _let_others_join(self, stream: WatchedStream) -> None:
        """Fill free places from the queue, as long as nothing but the API wants the model."""
        full = self.running >= self.max_batch or self._steps > JOINING_STEPS
        if not self._waiting or full or self._jobs.waiting:
            return
        with self._lock:
            while self._waiting and self.running < self.max_batch:
                row = stream.add(self._waiting[0].prompt)
                if row is None:
                    return
                ticket = self._waiting.popleft()
                ticket.row, ticket.started = row, time.monotonic()
                self._rows[row] = ticket

    def _pass_on(self, event: TokenScore) -> None:
        if event.row in self._of_step:
            self._steps += 1
            self._of_step.clear()
        self._of_step.add(event.row)
        ticket = self._rows[event.row]
        if event.token >= 0:
            self._counter.token(ticket, event)
        if event.finished is not None:
            with self._lock:
                del self._rows[event.row]
                ticket.ended = True
            seconds = time.monotonic() - (ticket.started or ticket.submitted)
            self._typical_seconds += 0.1 * (seconds - self._typical_seconds)
            self._counter.ended(ticket, event.finished, event)
        ticket.deliver(event)

    def _fail(self, ticket: ApiTicket, failure: Failure, finished: str) -> None:
        ticket.ended = True
        self._counter.ended(ticket, finished)
        ticket.deliver(failure)
