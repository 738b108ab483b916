"""Cancelling a long computation from another thread, and reporting its progress.

A `CancelToken` is passed to everything that takes time. Another thread calls `cancel`; the computation calls `check`, which
raises `Cancelled`, and `report_progress` with the share that is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwise.core.errors import HeadwiseError

TIMEOUT_SECONDS = 600.0  # 4,000 tokens take minutes on a busy CPU


class Cancelled(HeadwiseError):  # noqa: N818  (a state, not a mistake)
    """The computation was cancelled, or exceeded its time limit (docs/errors/explorer.md)."""


class CancelToken:
    """A cancel flag, a time limit and a progress callback ``on_progress(stage, share)``."""

    def __init__(self, seconds: float = TIMEOUT_SECONDS, on_progress: Callable[[str, float], None] | None = None):
        self.seconds, self._on_progress = seconds, on_progress
        self._cancelled = threading.Event()
        self._end: float | None = None
        self._stage = ""

    def start(self) -> None:
        """Start the clock; time spent waiting in a queue does not count."""
        self._end = time.monotonic() + self.seconds

    def cancel(self) -> None:
        """Request cancellation; callable from any thread."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether cancellation was requested."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` if cancellation was requested or the time limit is exceeded."""
        if self.cancelled:
            raise Cancelled("cancelled")
        if self._end is not None and time.monotonic() > self._end:
            raise Cancelled(
                f"this took longer than {self.seconds:g} seconds and was stopped; "
                "shorten the prompt, ask for fewer tokens, or for fewer random draws"
            )

    def begin(self, stage: str) -> None:
        """Start a new stage of the computation."""
        self.check()
        self._stage = stage
        self.report_progress(0.0)

    def report_progress(self, share: float) -> None:
        """Report the share of the current stage that is done, from 0 to 1."""
        if self._on_progress is not None:
            self._on_progress(self._stage, share)
