"""Starting and stopping: a free port, a plain warning where others can reach it, and an end at Ctrl-C.

The port is taken before anything is loaded, so that one in use is told in a sentence and not after a minute. The server is
bound to 127.0.0.1 unless another host is named; then everyone who can reach that address can read the atlases and run the
model, for there are no passwords here.
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

from headwise.core.errors import DataError

__all__ = ["Server", "address", "bound", "is_loopback", "run"]

GRACE = 3  # seconds that open requests get at the end


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


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address; DataError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except (OSError, OverflowError) as error:
        taken.close()
        raise DataError(_why(host, port, error)) from error
    return taken


def address(taken: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = taken.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def run(
    app: Any, taken: socket.socket, *, open_browser: bool = False, started: Callable[[], None] | None = None
) -> None:
    """Serve until Ctrl-C or a signal to end."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE,
        limit_concurrency=200, h11_max_incomplete_event_size=64 * 1024,
    )  # fmt: skip
    server = Server(config, started)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [address(taken)]).start()
    server.run(sockets=[taken])


class Server(uvicorn.Server):
    """Ends without a traceback, and tells when it takes requests."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None):
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, then tell."""
        await super().startup(sockets=sockets)
        if self.started and self._started is not None:
            self._started()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """As uvicorn's, but the signal is not raised again when all has ended well."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _why(host: str, port: int, error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} is in use on {host}; choose another with --port, such as --port {_next(port)}"
    if number == errno.EACCES:
        return f"port {port} may not be used by this user; choose one above 1023 with --port"
    if isinstance(error, OverflowError):
        return f"{port} is no port; choose one from 1024 to 65535 with --port"
    return f"the server cannot be reached at {host}: {error.strerror or error}; choose an address of this machine"


def _next(port: int) -> int:
    return port + 1 if port < 65535 else 8000
