"""What the API counts, for Prometheus (`GET /metrics`).

| metric                             | what                                                                          |
|------------------------------------|-------------------------------------------------------------------------------|
| headwise_requests_total            | requests by address and status, refused ones included; 499: the client left   |
| headwise_request_seconds           | histogram: from the request to the end of its response, by address            |
| headwise_answers_accepted_total    | answers that entered the queue; one request may ask for several               |
| headwise_answers_total             | answers that ended, by how: stop, length, alarm, cancelled, failed            |
| headwise_answers_waiting, _running | now in the queue; now in the batch                                            |
| headwise_queue_seconds             | histogram: from the queue to a batch                                          |
| headwise_first_token_seconds       | histogram: from the queue to the first token                                  |
| headwise_prompt_tokens_total       | tokens of accepted prompts                                                    |
| headwise_generated_tokens_total    | generated tokens, those of cancelled answers included                         |
| headwise_alarms_total              | answers with an alarm                                                         |
| headwise_unusual_total             | answers outside the range of the training answers at their end                |
| headwise_probability               | histogram: the probability that an answer is wrong, at its end                |
| process_...                        | memory, processor time and open files of this process                         |

At any moment: accepted = ended + waiting + running. A drift of `headwise_probability` or a rising share of unusual answers says
that the model is asked for other things than the detector was fitted on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headwise.server.batching import ApiTicket, Batching
from headwise.server.openai_errors import API_PREFIX, CLIENT_GONE

if TYPE_CHECKING:
    from headwise.watching import TokenScore

__all__ = ["ApiMetrics", "CountedRequests"]

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TENTHS = tuple(tenth / 10 for tenth in range(1, 11))
ADDRESSES = ("/v1/chat/completions", "/v1/completions", "/v1/models")


class ApiMetrics:
    """The counters of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("headwise_requests", "Requests.", ["address", "status"], registry=registry)
        self.seconds = Histogram(
            "headwise_request_seconds", "Seconds.", ["address"], buckets=SECONDS, registry=registry
        )
        self._accepted = Counter("headwise_answers_accepted", "Answers that entered the queue.", registry=registry)
        self._ended = Counter("headwise_answers", "Answers that ended.", ["finished"], registry=registry)
        self._queue = Histogram("headwise_queue_seconds", "Queue to batch.", buckets=SECONDS, registry=registry)
        self._first = Histogram("headwise_first_token_seconds", "Queue to token.", buckets=SECONDS, registry=registry)
        self._prompt_tokens = Counter("headwise_prompt_tokens", "Tokens of accepted prompts.", registry=registry)
        self._generated = Counter("headwise_generated_tokens", "Generated tokens.", registry=registry)
        self._alarms = Counter("headwise_alarms", "Answers with an alarm.", registry=registry)
        self._unusual = Counter("headwise_unusual", "Answers out of the training range.", registry=registry)
        self._probability = Histogram("headwise_probability", "P(wrong) at the end.", buckets=TENTHS, registry=registry)

    def watch(self, batching: Batching) -> None:
        """Show the length of the queue and the size of the batch."""
        for name in ("waiting", "running"):
            gauge = Gauge(f"headwise_answers_{name}", f"Answers that are {name}.", registry=self._registry)
            gauge.set_function(partial(getattr, batching, name))

    def accepted(self, ticket: ApiTicket) -> None:
        """An answer entered the queue."""
        self._accepted.inc()
        self._prompt_tokens.inc(len(ticket.prompt.ids))

    def token(self, ticket: ApiTicket, event: TokenScore) -> None:
        """A token was generated."""
        self._generated.inc()
        if event.index == 0:
            self._first.observe(time.monotonic() - ticket.submitted)
            self._queue.observe((ticket.started or ticket.submitted) - ticket.submitted)

    def ended(self, ticket: ApiTicket, finished: str, event: TokenScore | None = None) -> None:
        """An answer ended, with this event if the model wrote it."""
        self._ended.labels(finished).inc()
        if event is not None and finished != "cancelled":
            self._alarms.inc(event.alarm)
            self._unusual.inc(bool(event.unusual))
            if math.isfinite(event.probability):
                self._probability.observe(event.probability)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._registry)


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]


class CountedRequests:
    """An ASGI middleware around everything: the status and the duration of each request to the API."""

    def __init__(self, app: Any, metrics: ApiMetrics):
        self.app, self._metrics = app, metrics

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """One request."""
        if scope["type"] != "http" or not scope["path"].startswith(API_PREFIX):
            await self.app(scope, receive, send)
            return
        status, start = CLIENT_GONE, time.monotonic()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        address = next((known for known in ADDRESSES if scope["path"].startswith(known)), "other")
        try:
            await self.app(scope, receive, noting)
        finally:
            self._metrics.requests.labels(address, status).inc()
            self._metrics.seconds.labels(address).observe(time.monotonic() - start)
