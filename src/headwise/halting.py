"""Stopping a computation in the middle, and telling how far it is.

A `Halt` is handed to everything that takes time. Somebody else (a person who cancels, a request that went away) calls
`cancel`; the computation calls `check`, which raises `Halted`, and `told`, which tells how far it is.

This module does not know what is computed, nor who asked for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwise.errors import HeadwiseError

__all__ = ["Halt", "Halted"]

LIMIT = 600.0  # seconds: a CPU that others use too needs minutes for 4,000 tokens


class Halted(HeadwiseError):  # noqa: N818  (it says what happened, not what is wrong)
    """The computation was cancelled, or took too long (docs/errors/explorer.md)."""


class Halt:
    """A cancel flag, a time limit and a way to tell progress: ``tell(stage, share)``."""

    def __init__(self, seconds: float = LIMIT, tell: Callable[[str, float], None] | None = None):
        self.seconds, self._tell = seconds, tell
        self._cancelled = threading.Event()
        self._end: float | None = None
        self._stage = ""

    def start(self) -> None:
        """The clock starts when the work does, not while it waits."""
        self._end = time.monotonic() + self.seconds

    def cancel(self) -> None:
        """From any thread."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise where it was cancelled or is over its time."""
        if self.cancelled:
            raise Halted("cancelled")
        if self._end is not None and time.monotonic() > self._end:
            raise Halted(
                f"this took longer than {self.seconds:g} seconds and was stopped; "
                "shorten the prompt, ask for fewer tokens, or for fewer random draws"
            )

    def begin(self, stage: str) -> None:
        """A new part of the work begins."""
        self.check()
        self._stage = stage
        self.told(0.0)

    def told(self, share: float) -> None:
        """This part is so far, from 0 to 1."""
        if self._tell is not None:
            self._tell(self._stage, share)
