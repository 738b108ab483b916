"""How the server answers: JSON with a digest of its state, refusals in one sentence, and no path of this machine in either.

| error                          | status |
|--------------------------------|--------|
| nothing at this address        | 404    |
| what was asked cannot be done  | 422    |
| the line is full               | 503, with a time to try again |
| no model, or not yet           | 503    |
| anything unforeseen            | 500, a sentence; the traceback stays in the server's log |

What is not there is a small page for who reads HTML (a browser's address line), and JSON for programs.
"""

from __future__ import annotations

import html
import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from headwise.core.errors import HeadwiseError
from headwise.server.desk import Busy
from headwise.server.plain_page import plain_page
from headwise.server.room import NotReady
from headwise.server.shelf import Shelf, Shelved

__all__ = ["Missing", "atlas_of", "dumped", "register", "same"]

log = logging.getLogger("headwise.server")


class Missing(HeadwiseError):  # noqa: N818
    """There is nothing at this address (docs/errors/explorer.md)."""


def atlas_of(shelf: Shelf, name: str) -> Shelved:
    """The atlas of an address."""
    found = shelf.get(name)
    if found is None:
        raise Missing("there is no atlas of this name here; / lists those there are")
    return found


def not_here(request: Request, text: str) -> Response:
    """404 in the words of who asks: a page for a browser, JSON for a program."""
    reads = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(("/api/", "/assets/"))
    if not reads:
        return JSONResponse({"error": text}, 404)
    told = f"{text[:1].upper()}{text[1:].split(';')[0]}."
    return plain_page("Not here", f'<p>{html.escape(told)} <a href="/">See what is served here.</a></p>', status=404)


def dumped(value: Any, etag: str | None = None) -> Response:
    """A dict as JSON; kept by the browser as long as its state is the same."""
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"cache-control": "no-store"} if etag is None else {"cache-control": "no-cache", "etag": f'"{etag}"'}
    return Response(body, media_type="application/json", headers=headers)


def same(request: Request, etag: str) -> Response | None:
    """An answer without a body, where the browser has this state already."""
    known = [one.strip().removeprefix("W/").strip('"') for one in request.headers.get("if-none-match", "").split(",")]
    if etag not in known:
        return None
    return Response(status_code=304, headers={"cache-control": "no-cache", "etag": f'"{etag}"'})


def register(app: FastAPI, shelf: Shelf) -> None:
    """Every kind of error as one sentence of JSON."""

    @app.exception_handler(HeadwiseError)
    async def told(request: Request, error: HeadwiseError) -> Response:
        text = str(error)
        for one in shelf.all.values():
            text = one.unplaced(text)
        if isinstance(error, Missing):
            return not_here(request, text)
        if isinstance(error, Busy | NotReady):
            return JSONResponse({"error": text}, 503, headers={"retry-after": "5"})
        return JSONResponse({"error": text}, 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"error": 'the body is not JSON; send an object, such as {"text": "..."}'}, 422)
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return JSONResponse({"error": f"{where[:60]}: {first['msg'][:1].lower()}{first['msg'][1:]}"}, 422)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return not_here(request, "there is nothing at this address")
        text = {405: "this address does not take such a request"}
        return JSONResponse({"error": text.get(error.status_code, str(error.detail))}, error.status_code)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "something went wrong; the server's log has it"}, 500)
