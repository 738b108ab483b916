"""The live page's requests, `/api/NAME/live...`. Each is checked first, then put into the model's line (`desk`).

| request                      | body or query                               | answer                        |
|------------------------------|---------------------------------------------|-------------------------------|
| GET  live                    |                                             | the state of the model        |
| POST live/look               | text, mode, answer, max_new_tokens, changes | a stream                      |
| POST live/what_if            | look, changes, draws                        | a stream                      |
| POST live/score              | question, answer                            | a stream                      |
| GET  live/look/ID/head/L12H3 | rows=a:b, columns=c:d, size                 | a map, which may be waited for |

A stream is lines of JSON: {"event": "waiting", "ahead": 1}, {"event": "running", "stage": ..., "share": 0.4}, and last
{"event": "done", "result": ...} or {"event": "failed", "error": ...}. A client that goes away cancels its job. What can be
known beforehand (a prompt that is too long, a head that is not there) is refused with 422 before any line.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from headwise.core.errors import DataError, HeadwiseError
from headwise.server.answers import atlas_of, dumped
from headwise.server.desk import Job
from headwise.server.room import Room
from headwise.server.shelf import Shelf, Shelved

__all__ = ["live_routes"]

BEAT = 0.1  # seconds between two looks at a job
PULSE = 2.0  # a line at least this often, so that nobody thinks the server has gone
HEADS = 4096  # changed at once, at most
SPAN = re.compile(r"(\d{1,7}):(\d{1,7})")


class Asked(BaseModel):
    """A body; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LookAsked(Asked):
    """A prompt."""

    text: str
    mode: str = "question"
    answer: bool = True
    max_new_tokens: int = 32
    changes: dict[str, float] = Field(default_factory=dict, max_length=HEADS)


class WhatIfAsked(Asked):
    """Heads and their factors, on a prompt that was looked at."""

    look: str
    changes: dict[str, float] = Field(max_length=HEADS)
    draws: int = 5


class ScoreAsked(Asked):
    """An answer to be scored."""

    question: str
    answer: str | None = None


def live_routes(shelf: Shelf, room: Room) -> APIRouter:
    """All of the above."""
    routes = APIRouter(prefix="/api/{name}/live")

    @routes.get("")
    def status(name: str) -> Response:
        return JSONResponse(room.status(atlas_of(shelf, name)), headers={"cache-control": "no-store"})

    @routes.post("/look")
    async def look(name: str, asked: LookAsked, request: Request) -> Response:
        atlas, session = atlas_of(shelf, name), room.ready()
        options: dict[str, Any] = asked.model_dump(exclude={"text"}) | {"atlas": atlas.atlas.location.address}
        await run_in_threadpool(session.check, asked.text, **options)
        return _stream(room, atlas, request, lambda halt: session.look(asked.text, halt=halt, **options))

    @routes.post("/what_if")
    async def what_if(name: str, asked: WhatIfAsked, request: Request) -> Response:
        atlas, session = atlas_of(shelf, name), room.ready()
        return _stream(
            room, atlas, request,
            lambda halt: session.what_if(asked.look, asked.changes, draws=asked.draws, halt=halt),
        )  # fmt: skip

    @routes.post("/score")
    async def score(name: str, asked: ScoreAsked, request: Request) -> Response:
        atlas, session = atlas_of(shelf, name), room.ready()
        await run_in_threadpool(session.check, asked.question, mode="question", atlas=atlas.atlas.location.address)
        return _stream(
            room, atlas, request,
            lambda halt: session.score(asked.question, asked.answer, atlas.atlas.location.address, halt=halt),
        )  # fmt: skip

    @routes.get("/look/{look}/head/{head}")
    async def head(
        name: str, look: str, head: str, request: Request, rows: str = "", columns: str = "", size: int = 512
    ) -> Response:
        atlas, session = atlas_of(shelf, name), room.ready()
        options: dict[str, Any] = {"rows": _span(rows, "rows"), "columns": _span(columns, "columns"), "size": size}
        found = await run_in_threadpool(session.head, look, head, runs=False, **options)
        if found is not None:
            return dumped(found)
        job = room.desk.take(lambda halt: session.head(look, head, halt=halt, **options))
        return await _awaited(job, request, atlas)

    return routes


def _span(text: str, what: str) -> tuple[int, int] | None:
    """The text 10:20 as (10, 20); nothing is all tokens."""
    if not text:
        return None
    match = SPAN.fullmatch(text)
    if match is None:
        raise DataError(f"{what} {text[:20]!r} was asked for; write two numbers of tokens as 10:20")
    return int(match[1]), int(match[2])


def _stream(room: Room, atlas: Shelved, request: Request, work: Callable[[Any], Any]) -> Response:
    job = room.desk.take(work)
    lines = _lines(room, atlas, request, job)
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"cache-control": "no-store"})


async def _lines(room: Room, atlas: Shelved, request: Request, job: Job) -> AsyncIterator[bytes]:
    told, since = None, 0.0
    try:
        while not job.over.is_set():
            if await request.is_disconnected():
                return
            line = _progress(room, job)
            since += BEAT
            if line != told or since >= PULSE:
                told, since = line, 0.0
                yield line
            await asyncio.sleep(BEAT)
        yield await run_in_threadpool(_last, job, atlas)
    finally:
        job.halt.cancel()


def _progress(room: Room, job: Job) -> bytes:
    now = job.now
    said: dict[str, Any] = {"event": "waiting", "ahead": room.desk.ahead(job)}
    if now.event != "waiting":
        said = {"event": "running", "stage": now.stage, "share": round(now.share, 3)}
    return json.dumps(said).encode() + b"\n"


def _last(job: Job, atlas: Shelved) -> bytes:
    now = job.now
    said = {"event": "done", "result": now.result}
    if now.event != "done":
        said = {"event": "failed", "error": atlas.unplaced(now.error)}
    return json.dumps(said, allow_nan=False, ensure_ascii=False).encode() + b"\n"


async def _awaited(job: Job, request: Request, atlas: Shelved) -> Response:
    """The answer of a job that is not streamed."""
    try:
        while not job.over.is_set():
            if await request.is_disconnected():
                break
            await asyncio.sleep(BEAT)
    finally:
        job.halt.cancel()
    if job.now.event != "done":
        raise HeadwiseError(atlas.unplaced(job.now.error or "cancelled"))
    return dumped(job.now.result)
