"""Responses of the server: JSON with an ETag, error messages without paths of this machine, and pages without scripts.

| error                                | status |
|--------------------------------------|--------|
| no such address                      | 404    |
| the request is invalid               | 422; of the API 400 |
| the job queue is full                | 503, of the API 429; with Retry-After |
| no model is loaded, or not yet       | 503    |
| an unexpected error                  | 500; the traceback goes to the server's log only |

A 404 is a small HTML page for a browser (Accept: text/html) and JSON for programs. Errors of the API have a form of their own
(`openai_errors`).
"""

from __future__ import annotations

import html
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from headwise.core.errors import HeadwiseError
from headwise.server.model_host import ModelNotReadyError, QueueFullError
from headwise.server.openai_errors import API_PREFIX, ApiError, error_content
from headwise.server.registry import AtlasRegistry, ServedAtlas


class NotFoundError(HeadwiseError):
    """There is nothing at this address (docs/errors/explorer.md)."""


def find_atlas(registry: AtlasRegistry, name: str) -> ServedAtlas:
    """The atlas that a URL names."""
    found = registry.get(name)
    if found is None:
        raise NotFoundError("there is no atlas of this name here; / lists the served atlases")
    return found


def json_response(value: Any, etag: str | None = None) -> Response:
    """A dict as JSON; the browser revalidates it by its ETag, and stores nothing without one."""
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"cache-control": "no-store"} if etag is None else {"cache-control": "no-cache", "etag": f'"{etag}"'}
    return Response(body, media_type="application/json", headers=headers)


def not_modified(request: Request, etag: str) -> Response | None:
    """A 304 where the browser has this version already."""
    known = [tag.strip().removeprefix("W/").strip('"') for tag in request.headers.get("if-none-match", "").split(",")]
    if etag not in known:
        return None
    return Response(status_code=304, headers={"cache-control": "no-cache", "etag": f'"{etag}"'})


def plain_page(title: str, body: str, *, status: int = 200) -> Response:
    """A page without scripts, for what belongs to no atlas: a title (text) over a body (HTML, escaped by the caller)."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Headwise</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/assets/style.css"></head>'
        '<body><main><div class="page page-atlases"><header class="study-header"><p class="label">Headwise</p>'
        f'<h1>{html.escape(title)}</h1></header><div class="column">{body}</div></div></main></body></html>'
    )
    return HTMLResponse(text, status, headers={"cache-control": "no-cache"})


def register_error_handlers(app: FastAPI, registry: AtlasRegistry) -> None:
    """Every kind of error as one sentence."""

    @app.exception_handler(HeadwiseError)
    async def expected(request: Request, error: HeadwiseError) -> Response:
        text, api = str(error), request.url.path.startswith(API_PREFIX)
        for atlas in registry.atlases.values():
            text = atlas.redact(text)
        if isinstance(error, ApiError):
            return _error(request, text, error.status, param=error.param, code=error.code)
        if isinstance(error, NotFoundError):
            return _not_found(request, text)
        if isinstance(error, QueueFullError):
            return _error(request, text, 429 if api else 503, retry_after=error.retry_after)
        if isinstance(error, ModelNotReadyError):
            return _error(request, text, 503, retry_after=5)
        return _error(request, text, 400 if api else 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]  # of a query; bodies are read by `live_routes`
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return _error(request, f"{where[:60]}: {first['msg'][:1].lower()}{first['msg'][1:]}", 422)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return _not_found(request, "there is nothing at this address")
        text = {405: "this address does not accept this method"}
        return _error(request, text.get(error.status_code, str(error.detail)), error.status_code)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return _error(request, "something went wrong; see the server's log", 500)


def _error(
    request: Request, text: str, status: int, *, param: str | None = None, code: str | None = None,
    retry_after: int | None = None,
) -> Response:  # fmt: skip
    content = error_content(text, status, path=request.url.path, param=param, code=code)
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(content, status, headers=headers)


def _not_found(request: Request, text: str) -> Response:
    wants_html = "text/html" in request.headers.get("accept", "")
    if not wants_html or request.url.path.startswith(("/api/", "/assets/", API_PREFIX)):
        return _error(request, text, 404)
    sentence = f"{text[:1].upper()}{text[1:].split(';')[0]}."
    link = '<a href="/">List of served atlases.</a>'
    return plain_page("Not found", f"<p>{html.escape(sentence)} {link}</p>", status=404)
