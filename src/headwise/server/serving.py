"""Starting and stopping the server: binding a port, running until Ctrl-C.

The port is bound before anything is loaded, so that a port in use is reported at once and not after a minute. The server
binds to 127.0.0.1 unless another host is given; then everyone who can reach that address can read the atlases and run the
model: there are no passwords.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwise.core.errors import DataError

__all__ = ["ExplorerServer", "bind_socket", "is_loopback", "run", "url_of"]

SHUTDOWN_SECONDS = 3  # for open requests
MAX_CONNECTIONS = 500
FIRST_REQUEST_SECONDS = 5.0  # until a connection must have sent its first request: silent ones would lock others out


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket; DataError where that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError, TypeError, UnicodeError) as error:  # the last two: no encoding makes it a host name
        bound.close()
        raise DataError(_bind_error(host, port, error)) from error
    return bound


def url_of(bound: socket.socket) -> str:
    """The URL for a browser."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def run(
    app: Any, bound: socket.socket, *, open_browser: bool = False, on_start: Callable[[], None] | None = None
) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=MAX_CONNECTIONS, h11_max_incomplete_event_size=64 * 1024, http=ImpatientProtocol,
    )  # fmt: skip
    server = ExplorerServer(config, on_start)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [url_of(bound)]).start()
    server.run(sockets=[bound])


class ImpatientProtocol(H11Protocol):
    """Closes a connection that sends no request."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(FIRST_REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._patience.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()


class ExplorerServer(uvicorn.Server):
    """Stops without a traceback, and calls `on_start` when it accepts requests."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None] | None):
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `on_start`."""
        await super().startup(sockets=sockets)
        if self.started and self._on_start is not None:
            self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """As uvicorn's, but the signal is not raised again after a clean shutdown."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _bind_error(host: str, port: int, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        another = port + 1 if port < 65535 else 8000
        return f"port {port} is in use on {host}; choose another with --port, such as --port {another}"
    if number == errno.EACCES:
        return f"port {port} needs administrator rights; choose one above 1023 with --port"
    if isinstance(error, OverflowError):
        return f"{port} is not a port; choose one from 1024 to 65535 with --port"
    why = getattr(error, "strerror", None) or error
    return f"the server cannot listen on {host}: {why}; choose an address of this machine"
