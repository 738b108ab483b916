"""What no request gets past: a layer around the whole application (plain ASGI), before any route is looked at.

| refused                                                              | with |
|----------------------------------------------------------------------|------|
| an address with ``..``, ``\\``, an encoded slash or a NUL             | 404  |
| a Host that is not this machine, while serving this machine only      | 403  |
| a POST from a page of another origin                                  | 403  |
| a POST whose body is not JSON by its content type                     | 415  |
| a body over the limit, whether its length is told or it comes in bits | 413  |
| a body that does not arrive in time                                   | 408  |

Host is checked against DNS rebinding: a page of another site whose name is made to mean 127.0.0.1 sends that name. The
content type is checked because a form on another site cannot send JSON without asking first, and asking is never
answered (no CORS). Every answer carries the headers of `HEADERS`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["HEADERS", "Guard"]

BODY = 256 * 1024  # bytes
ARRIVES = 15.0  # seconds
LOOPBACK = ("127.0.0.1", "localhost", "::1")
TRICKS = re.compile(rb"%2f|%5c|%00|\\", re.IGNORECASE)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
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
    """The layer. `hosts` None: any Host is taken, since the server was asked to be reachable from elsewhere."""

    def __init__(
        self, app: Any, hosts: tuple[str, ...] | None = LOOPBACK, *, body: int = BODY, arrives: float = ARRIVES
    ):
        self.app, self.hosts, self.body, self.arrives = app, hosts, body, arrives

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_headers(send)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is None and scope["method"] not in ("GET", "HEAD"):
            body = await self._body(headers, receive)
            if isinstance(body, bytes):
                receive = _again(body, receive)
            else:
                refused = body
        if refused is not None:
            await _answer(send, *refused)
            return
        await self.app(scope, receive, send)

    def _refused(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        raw, path = scope.get("raw_path") or b"", scope["path"]
        if (
            TRICKS.search(raw)
            or ".." in path.split("/")
            or "." in path.split("/")
            or "//" in path
            or "\\" in path
            or "\0" in path
        ):
            return 404, "there is nothing at this address"
        host = headers.get(b"host", "")
        if self.hosts is not None and _name(host) not in self.hosts:
            return 403, f"this server answers to {' and '.join(self.hosts[:2])} only, and was asked as another host"
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "a page of another site may not ask this server"
        if headers.get(b"content-type", "").split(";")[0].strip().lower() != "application/json":
            return 415, "send JSON, with the content type application/json"
        return None

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes | tuple[int, str]:
        too_long = 413, f"the request is larger than the {self.body // 1024} KB that are taken; shorten the text"
        told = headers.get(b"content-length", "0")
        if not told.isdigit() or int(told) > self.body:
            return too_long
        try:
            async with asyncio.timeout(self.arrives):
                return await _read(receive, self.body) or too_long
        except TimeoutError:
            return 408, "the request did not arrive in time"


def _is_trick(raw: bytes, path: str) -> bool:
    """Whether an address tries to be another one."""
    steps = path.split("/")
    return bool(TRICKS.search(raw)) or ".." in steps or "." in steps or "//" in path or "\\" in path or "\0" in path


async def _read(receive: Receive, most: int) -> bytes | None:
    """The whole body; None where it is too long. An empty one is an empty JSON text, which no route takes."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b" "
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts) or b" "


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever else comes (that the client went away)."""
    given = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message.get("headers", [])}
            new = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
            message = {**message, "headers": [*message.get("headers", []), *new]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _name(host: str) -> str:
    """The Host header without its port.

    >>> _name("localhost:8000"), _name("[::1]:80"), _name("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.lower() if host.count(":") > 1 else host.partition(":")[0].lower()
