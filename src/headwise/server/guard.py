"""Checks on every request before routing: an ASGI middleware around the whole application.

| refused                                                               | status |
|-----------------------------------------------------------------------|------|
| a path with ``..``, ``\\``, an encoded slash or a NUL                | 404  |
| a Host header that is not one of the server's names                   | 403  |
| a Host, Origin, Content-Type, Content-Length or Authorization header sent twice | 400 |
| a POST from another origin                                            | 403  |
| a POST whose content type is not JSON                                 | 415  |
| a body over the limit, by Content-Length or while it is streamed      | 413  |
| a body that does not arrive in time                                   | 408  |

The Host check prevents DNS rebinding: a page whose domain resolves to 127.0.0.1 still sends its own name. The content-type
check works because a form on another site cannot send JSON without a CORS preflight, which is never granted. Every response
carries the headers of `SECURITY_HEADERS`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from headwise.server.openai_errors import API_PREFIX, error_content

MAX_BODY_BYTES = 256 * 1024
BODY_SECONDS = 15.0  # until the whole body must have arrived
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SINGLE_HEADERS = (b"host", b"origin", b"content-length", b"content-type", b"authorization")
MODEL_NAMES = f"{API_PREFIX}models/"
FORBIDDEN_BYTES = re.compile(rb"%2f|%5c|%00|\\", re.IGNORECASE)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """The middleware; ``hosts`` are the names under which the server may be reached."""

    def __init__(
        self, app: Any, hosts: tuple[str, ...] = LOOPBACK, *, max_body: int = MAX_BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
    ):  # fmt: skip
        self.app, self.hosts, self.max_body, self.body_seconds = app, hosts, max_body, body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_headers(send)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        names = [name.lower() for name, _ in scope["headers"]]
        doubled = any(names.count(name) > 1 for name in SINGLE_HEADERS)
        refused = (400, "a header was sent twice") if doubled else self._refused(scope, headers)
        if refused is None and scope["method"] not in ("GET", "HEAD"):
            body = await self._body(headers, receive)
            if isinstance(body, bytes):
                receive = _replay(body, receive)
            else:
                refused = body
        if refused is not None:
            await _refuse(send, scope["path"], *refused)
            return
        await self.app(scope, receive, send)

    def _refused(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        if _is_forbidden_path(scope.get("raw_path") or b"", scope["path"]):
            return 404, "there is nothing at this address"
        host = headers.get(b"host", "")
        if _host_name(host) not in self.hosts:
            return 403, f"this server accepts the hosts {' and '.join(self.hosts[:2])} only"
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get(b"origin")
        if origin is not None and _site(origin) != host:
            return 403, "requests from other sites are not accepted"
        if headers.get(b"content-type", "").split(";")[0].strip().lower() != "application/json":
            return 415, "send JSON, with the content type application/json"
        return None

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes | tuple[int, str]:
        too_long = 413, f"the request is larger than the limit of {self.max_body // 1024} KB; shorten the text"
        length = headers.get(b"content-length", "0")
        if not re.fullmatch("[0-9]{1,15}", length) or int(length) > self.max_body:
            return too_long
        try:
            async with asyncio.timeout(self.body_seconds):
                return await _read(receive, self.max_body) or too_long
        except TimeoutError:
            return 408, "the request did not arrive in time"


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # "http://["
        return None


def _is_forbidden_path(raw: bytes, path: str) -> bool:
    """Whether a path could resolve to another one."""
    if path.startswith(MODEL_NAMES):  # a hub id has a slash; the name is compared, and resolves to nothing
        raw = re.sub(b"%2f", b"/", raw, flags=re.IGNORECASE)
    steps = path.split("/")
    return (
        bool(FORBIDDEN_BYTES.search(raw))
        or ".." in steps
        or "." in steps
        or "//" in path
        or "\\" in path
        or "\0" in path
    )


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None where it is too long. An empty body becomes an empty JSON text, which no route accepts."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b" "
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts) or b" "


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body again, then passes on what follows (a disconnect)."""
    replayed = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            header_names = {name.lower() for name, _ in message.get("headers", [])}
            new = [
                (name.encode(), value.encode())
                for name, value in SECURITY_HEADERS.items()
                if name.encode() not in header_names
            ]
            message = {**message, "headers": [*message.get("headers", []), *new]}
        await send(message)

    return sending


async def _refuse(send: Send, path: str, status: int, text: str) -> None:
    body = json.dumps(error_content(text, status, path=path)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _host_name(host: str) -> str:
    """The Host header without its port.

    >>> _host_name("localhost:8000"), _host_name("[::1]:80"), _host_name("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.lower() if host.count(":") > 1 else host.partition(":")[0].lower()
