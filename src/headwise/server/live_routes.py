"""The live page's requests, `/api/NAME/live...`. Each is validated first, then submitted to the job queue (`model_host`).

| request                      | body or query                               | response                      |
|------------------------------|---------------------------------------------|-------------------------------|
| GET  live                    |                                             | the state of the model        |
| POST live/run                | text, mode, answer, max_new_tokens, changes | a stream                      |
| POST live/what_if            | run, changes, draws                         | a stream                      |
| POST live/score              | question, answer, score                     | a stream                      |
| GET  live/run/ID/head/L12H3  | rows=a:b, columns=c:d, size                 | a map; may wait for the model |

A stream is lines of JSON, the last of them "done" or "failed":

    {"event": "waiting", "ahead": 1}
    {"event": "running", "stage": "generating the answer", "share": 0.4}
    {"event": "token", "part": "answer", "index": 0, "limit": 32, "text": " Oslo", "logprob": -0.1, "distribution": ...,
     "scores": {"RAUQ": {"score": ..., "probability": ..., "heads": {"L3H7": 0.2}, "unusual": [], "alarm": false}}}
    {"event": "answered", "part": "answer", "finished": true, "scores": ...}
    {"event": "done", "result": ...}, or {"event": "failed", "error": ...}

A token is sent when it is there, whatever else the job still has to do, each once and in order; the parts of a what-if are
"unchanged" (where the run itself had scaled heads) and "changed". Tokens wait for a client that reads slowly: as many as the
answers have at most, and the model does not wait for it.
A client that disconnects cancels its job. Invalid requests (a prompt over the limit, an unknown head) are refused with 422
before the first line.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from headwise.core.cancellation import CancelToken
from headwise.core.errors import DataError, HeadwiseError
from headwise.core.parsing import parse
from headwise.server.model_host import ModelHost, ModelJob
from headwise.server.registry import AtlasRegistry, ServedAtlas
from headwise.server.responses import find_atlas, json_response

__all__ = ["live_routes"]

POLL_SECONDS = 0.05  # between two checks of a job
HEARTBEAT_SECONDS = 2.0  # at least one line this often, so that the client knows the server is alive
MAX_CHANGED_HEADS = 4096
Send = Callable[[Any], None]  # an event to the client
Changes = Annotated[dict[str, float], msgspec.Meta(max_length=MAX_CHANGED_HEADS)]
T = TypeVar("T")
TOKEN_RANGE = re.compile(r"(\d{1,7}):(\d{1,7})")


class RunRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A prompt."""

    text: str
    mode: str = "question"
    answer: bool = True
    max_new_tokens: int = 32
    changes: Changes = {}


class WhatIfRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Heads and their factors, for the prompt of an earlier run."""

    run: str
    changes: Changes
    draws: int = 5


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An answer to score."""

    question: str
    answer: str | None = None
    score: str | None = None  # which of the atlas's scores; None: its default


async def _body(request: Request, kind: type[T]) -> T:
    """The body as that type; DataError, which is a 422, if it is none."""
    try:
        return parse(await request.body(), kind)
    except json.JSONDecodeError as error:
        raise DataError('the body is not JSON; send an object, such as {"text": "..."}') from error
    except ValueError as error:
        raise DataError(f"the request does not fit: {error}") from error


def live_routes(registry: AtlasRegistry, host: ModelHost) -> APIRouter:
    """The routes above."""
    routes = APIRouter(prefix="/api/{name}/live")

    @routes.get("")
    def status(name: str) -> Response:
        return JSONResponse(host.status(find_atlas(registry, name)), headers={"cache-control": "no-store"})

    @routes.post("/run")
    async def run(name: str, request: Request) -> Response:
        body = await _body(request, RunRequest)
        atlas, session = find_atlas(registry, name), host.ready()
        given = {field: getattr(body, field) for field in body.__struct_fields__ if field != "text"}
        options: dict[str, Any] = {**given, "atlas": atlas.atlas.location.address}
        await run_in_threadpool(session.validate, body.text, **options)
        return _stream(
            host, atlas, request, lambda cancel, send: session.run(body.text, cancel=cancel, on_event=send, **options)
        )

    @routes.post("/what_if")
    async def what_if(name: str, request: Request) -> Response:
        body = await _body(request, WhatIfRequest)
        atlas, session = find_atlas(registry, name), host.ready()
        return _stream(
            host, atlas, request,
            lambda cancel, send: session.what_if(
                body.run, body.changes, draws=body.draws, atlas=atlas.atlas.location.address, cancel=cancel, on_event=send
            ),
        )  # fmt: skip

    @routes.post("/score")
    async def score(name: str, request: Request) -> Response:
        body = await _body(request, ScoreRequest)
        atlas, session = find_atlas(registry, name), host.ready()
        address = atlas.atlas.location.address
        await run_in_threadpool(session.validate, body.question, mode="question", atlas=address)
        return _stream(
            host, atlas, request,
            lambda cancel, _: session.score(body.question, body.answer, address, score=body.score, cancel=cancel),
        )  # fmt: skip

    @routes.get("/run/{run}/head/{head}")
    async def head_map(
        name: str, run: str, head: str, request: Request, rows: str = "", columns: str = "", size: int = 512
    ) -> Response:
        atlas, session = find_atlas(registry, name), host.ready()
        options: dict[str, Any] = {
            "rows": _token_range(rows, "rows"), "columns": _token_range(columns, "columns"), "size": size,
        }  # fmt: skip
        found = await run_in_threadpool(session.head_map, run, head, run_model=False, **options)
        if found is not None:
            return json_response(found)
        job = host.queue.submit(lambda cancel: session.head_map(run, head, cancel=cancel, **options))
        return await _await_job(job, request, atlas)

    return routes


def _token_range(text: str, what: str) -> tuple[int, int] | None:
    """The text 10:20 as (10, 20); empty text is all tokens."""
    if not text:
        return None
    match = TOKEN_RANGE.fullmatch(text)
    if match is None:
        raise DataError(f"{what} {text[:20]!r} is not a range of tokens; write two numbers as 10:20")
    return int(match[1]), int(match[2])


def _stream(
    host: ModelHost, atlas: ServedAtlas, request: Request, work: Callable[[CancelToken, Send], Any]
) -> Response:
    events: deque[Any] = deque()  # from the thread that runs the model
    job = host.queue.submit(lambda cancel: work(cancel, events.append))
    lines = _lines(host, atlas, request, job, events)
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"cache-control": "no-store"})


async def _lines(
    host: ModelHost, atlas: ServedAtlas, request: Request, job: ModelJob, events: deque[Any]
) -> AsyncIterator[bytes]:
    sent, since = None, 0.0
    try:
        while True:
            ended = job.finished.is_set()  # before the events are taken, so that none is missed
            while events:
                yield _line(events.popleft())
            if ended:
                break
            if await request.is_disconnected():
                return
            line = _progress_line(host, job)
            since += POLL_SECONDS
            if line != sent or since >= HEARTBEAT_SECONDS:
                sent, since = line, 0.0
                yield line
            await asyncio.sleep(POLL_SECONDS)
        yield await run_in_threadpool(_last_line, job, atlas)
    finally:
        job.cancel.cancel()


def _progress_line(host: ModelHost, job: ModelJob) -> bytes:
    status = job.status
    event: dict[str, Any] = {"event": "waiting", "ahead": host.queue.jobs_ahead(job)}
    if status.event != "waiting":
        event = {"event": "running", "stage": status.stage, "share": round(status.share, 3)}
    return _line(event)


def _last_line(job: ModelJob, atlas: ServedAtlas) -> bytes:
    event = {"event": "done", "result": job.status.result}
    if job.status.event != "done":
        event = {"event": "failed", "error": atlas.redact(job.status.error)}
    return _line(event)


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, allow_nan=False, ensure_ascii=False).encode() + b"\n"


async def _await_job(job: ModelJob, request: Request, atlas: ServedAtlas) -> Response:
    """The response of a job that is not streamed."""
    try:
        while not job.finished.is_set():
            if await request.is_disconnected():
                break
            await asyncio.sleep(POLL_SECONDS)
    finally:
        job.cancel.cancel()
    if job.status.event != "done":
        raise HeadwiseError(atlas.redact(job.status.error or "cancelled"))
    return json_response(job.status.result)
