"""The addresses of the API, in OpenAI's form, next to the explorer's pages.

| request                   | response                                                                                   |
|---------------------------|--------------------------------------------------------------------------------------------|
| GET  /v1/models           | the one model; also /v1/models/NAME                                                        |
| POST /v1/chat/completions | an answer to a chat, whole or streamed (server-sent events)                                |
| POST /v1/completions      | the continuation of a text                                                                 |
| GET  /metrics             | counters for Prometheus                                                                    |
| GET  /health              | {"status": "ready"}, or 503 with "loading" or "failed"; the only address that needs no key |

A request is validated and tokenised first, then its answers are queued (`batching`), all or none; only then does a response
begin. So whatever is refused has a status of its own. What fails later ends a stream with an event `{"error": ...}`.

A client that leaves cancels its answers: a task waits for the disconnection from the moment they are queued.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from headwise.server.api_key import ApiKey
from headwise.server.api_metrics import ApiMetrics
from headwise.server.api_model import ApiHost, ApiLimits, ApiModel, TextOrChat
from headwise.server.batching import Batching, Failure
from headwise.server.model_host import JobQueue
from headwise.server.openai_errors import CLIENT_GONE, ApiError
from headwise.server.openai_requests import ChatRequest, CompletionRequest, read_request, sampling_of
from headwise.server.openai_responses import DONE, AnswerSoFar, ApiResponse, ChatDelta, Turn, Usage, sse
from headwise.server.responses import NotFoundError

if TYPE_CHECKING:
    from headwise.watching import Prompt, TokenScore

__all__ = ["API_NAMES", "Api", "ApiSettings"]

API_NAMES = ("v1", "metrics", "health")  # which no atlas may have
HEARTBEAT_SECONDS = 10.0  # a comment in a stream without tokens, so that proxies leave it open


@dataclass(frozen=True)
class ApiSettings:
    """What `headwise serve --api` decides."""

    name: str  # of the model, public
    open_model: Callable[[], ApiModel]
    key: ApiKey | None = None
    limits: ApiLimits = field(default_factory=ApiLimits)


class Api:
    """The API of one server: its model, its queue and its counters."""

    def __init__(self, settings: ApiSettings, jobs: JobQueue):
        self.settings, self.metrics = settings, ApiMetrics()
        limits = settings.limits
        self.host = ApiHost(settings.name, settings.open_model, jobs)
        self.batching = Batching(
            jobs, lambda: self.host.ready().watch, self.metrics, max_batch=limits.batch, max_waiting=limits.waiting
        )
        self.metrics.watch(self.batching)
        self._started = int(time.time())

    def add_to(self, app: FastAPI) -> None:
        """Add the addresses; before those of the pages, which take all names."""
        app.include_router(self._open_routes())
        app.include_router(self._routes())

    def _open_routes(self) -> APIRouter:
        routes = APIRouter()

        @routes.get("/health")
        def health() -> Response:
            state = self.host.state
            return JSONResponse(
                {"status": state}, 200 if state == "ready" else 503, headers={"cache-control": "no-store"}
            )

        return routes

    def _routes(self) -> APIRouter:
        routes = APIRouter(dependencies=[Depends(self._check_key)])

        @routes.get("/metrics")
        def metrics() -> Response:
            headers = {"cache-control": "no-store", "content-type": self.metrics.content_type}
            return Response(self.metrics.text(), headers=headers)

        @routes.get("/v1/models")
        def models() -> Response:
            return _json({"object": "list", "data": [self._card()]})

        @routes.get("/v1/models/{name:path}")
        def model(name: str) -> Response:
            self._check_name(name)
            return _json(self._card())

        @routes.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            asked = read_request(await request.body(), ChatRequest)
            turns = [turn.plain() for turn in asked.messages]
            return await self._answer(request, asked, [turns])

        @routes.post("/v1/completions")
        async def completions(request: Request) -> Response:
            asked = read_request(await request.body(), CompletionRequest)
            return await self._answer(request, asked, asked.prompts())

        @routes.api_route("/v1/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
        def other(rest: str) -> Response:
            raise NotFoundError(
                "there is nothing at this address; the API has models, chat/completions and completions"
            )

        return routes

    def _check_key(self, request: Request) -> None:
        if self.settings.key is not None:
            self.settings.key.check(request.headers.get("authorization"))

    def _check_name(self, name: str) -> None:
        if name != self.settings.name:
            text = f"there is no model {name[:100]!r} here; this server has {self.settings.name!r}"
            raise ApiError(text, 404, param="model", code="model_not_found")

    def _card(self) -> dict[str, object]:
        about = self.host.ready().about if self.host.state == "ready" else {}
        return {
            "id": self.settings.name, "object": "model", "created": self._started, "owned_by": "headwise", "headwise": about,
        }  # fmt: skip

    async def _answer(
        self, request: Request, asked: ChatRequest | CompletionRequest, items: Sequence[TextOrChat]
    ) -> Response:
        self._check_name(asked.model)
        chat, seconds = isinstance(asked, ChatRequest), self.settings.limits.seconds
        prompts, usage = await run_in_threadpool(self._prompts, asked, items)
        answers = [
            AnswerSoFar(index, chat, logprobs=asked.wants_logprobs, top_logprobs=not chat and asked.logprobs == 1)
            for index in range(len(prompts))
        ]
        kind, prefix = ("chat.completion", "chatcmpl") if chat else ("text_completion", "cmpl")
        reply = ApiResponse(f"{prefix}-{secrets.token_hex(12)}", kind, int(time.time()), self.settings.name, [])
        headers = {"cache-control": "no-store", "x-request-id": reply.id}
        exchange = Exchange(self.batching, request, prompts, seconds)
        if not asked.stream:
            return await _whole(exchange, reply, answers, usage, headers)
        if chat:
            reply.object = "chat.completion.chunk"
        with_usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        lines = _stream(exchange, reply, answers, usage, with_usage=with_usage)
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    def _prompts(
        self, asked: ChatRequest | CompletionRequest, items: Sequence[TextOrChat]
    ) -> tuple[list[Prompt], Usage]:
        """The prompts of a request, and how many tokens they have: those of a text count once, however many answers it has."""
        model, sampling, limits = self.host.ready(), sampling_of(asked), self.settings.limits
        chat = isinstance(asked, ChatRequest)
        if len(items) * sampling.n > limits.batch:
            raise ApiError(f"one request may ask for at most {limits.batch} answers", param="n" if chat else "prompt")
        param = "messages" if chat else "prompt"
        found = [prompt for item in items for prompt in model.read(item, sampling, limits, param=param)]
        return found, Usage(sum(len(prompt.ids) for prompt in found[:: sampling.n]), 0, 0)


class Exchange:
    """The answers of one request while they are generated."""

    def __init__(self, batching: Batching, request: Request, prompts: list[Prompt], seconds: float):
        loop = asyncio.get_running_loop()
        self._batching = batching
        self._events: asyncio.Queue[tuple[int, TokenScore | Failure]] = asyncio.Queue()

        def deliver(index: int, event: TokenScore | Failure) -> None:  # in the model's thread
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        self._tickets = batching.submit([(one, partial(deliver, index)) for index, one in enumerate(prompts)])
        late = Failure(f"the answer took longer than {seconds:g} seconds; ask for fewer tokens", 504)
        self._timer = loop.call_later(seconds, self._end, late)
        self._leaving = asyncio.create_task(self._wait_for_disconnection(request))

    async def events(self) -> AsyncGenerator[tuple[int, TokenScore | None], None]:
        """Events with the index of their answer, until all have ended; (0, None) where there is nothing to send for long."""
        left = len(self._tickets)
        try:
            while left:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        index, event = await self._events.get()
                except TimeoutError:
                    yield 0, None
                    continue
                if isinstance(event, Failure):
                    raise ApiError(event.text, event.status)
                left -= event.finished is not None
                yield index, event
        finally:
            self._timer.cancel()
            self._leaving.cancel()
            self._cancel()

    async def _wait_for_disconnection(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._end(Failure("the client left", CLIENT_GONE))

    def _end(self, failure: Failure) -> None:
        self._events.put_nowait((0, failure))
        self._cancel()

    def _cancel(self) -> None:
        for ticket in self._tickets:
            self._batching.cancel(ticket)


async def _whole(
    exchange: Exchange, reply: ApiResponse, answers: list[AnswerSoFar], usage: Usage, headers: dict[str, str]
) -> Response:
    """The answers once all of them have ended."""
    try:
        async for index, event in exchange.events():
            if event is not None:
                answers[index].events.append(event)
    except ApiError as error:
        if error.status == CLIENT_GONE:
            return Response(status_code=CLIENT_GONE)
        raise
    reply.choices, reply.usage = [answer.whole() for answer in answers], _count(usage, answers)
    return _json(reply, headers)


async def _stream(
    exchange: Exchange, reply: ApiResponse, answers: list[AnswerSoFar], usage: Usage, *, with_usage: bool
) -> AsyncIterator[bytes]:
    """Chunks, usage where it is wanted, and [DONE]; an error as the last event."""
    lengths = [0] * len(answers)
    try:
        if answers[0].chat:
            opening = Turn("assistant", "")
            reply.choices = [ChatDelta(answer.index, opening, None, None, None) for answer in answers]
            yield sse(reply)
        async with aclosing(exchange.events()) as events:
            async for index, event in events:
                if event is None:
                    yield b": waiting\n\n"
                    continue
                answer = answers[index]
                answer.events.append(event)
                reply.choices = [answer.chunk(event, offset=lengths[index])]
                lengths[index] += len(event.text)
                yield sse(reply)
        if with_usage:
            reply.choices, reply.usage = [], _count(usage, answers)
            yield sse(reply)
        yield DONE
    except ApiError as error:
        if error.status != CLIENT_GONE:
            yield b"data: " + json.dumps(error.content).encode() + b"\n\n"


def _json(content: object, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=headers)


def _count(usage: Usage, answers: list[AnswerSoFar]) -> Usage:
    generated = sum(answer.generated for answer in answers)
    return Usage(usage.prompt_tokens, generated, usage.prompt_tokens + generated)
