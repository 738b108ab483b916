"""Progress where no terminal is: plain lines, such as a log file keeps.

A study gets a line when it starts and one when it ends, and one a minute in between, so that who reads the log of a long
build sees that it lives. Each is written at once; nothing is drawn over.

    profile: 0 of 100 examples
    profile: 60 of 100 examples, 0:01:02 gone
    profile: 100 of 100 examples, done in 0:01:43

This module does not know what is counted, nor where the lines go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

__all__ = ["Lines"]

EVERY = 60.0  # seconds between two lines of one study


class _Count:
    """How far one study is."""

    def __init__(self, done: int, total: int, now: float) -> None:
        self.done, self.total, self.began, self.told, self.ended = done, total, now, now, False


class Lines:
    """What a verb tells about its progress, a line at a time.

    >>> lines = Lines(print, of="steps", clock=iter([0.0, 61.0, 75.0]).__next__)
    >>> for done in (0, 5):
    ...     lines.update("training", done, 8)
    training: 0 of 8 steps
    training: 5 of 8 steps, 0:01:01 gone
    >>> lines.ended("training")
    training: 8 of 8 steps, done in 0:01:15
    """

    def __init__(
        self, write: Callable[[str], object], of: str = "examples", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._of, self._clock = write, of, clock
        self._counts: dict[str, _Count] = {}

    def say(self, what: str) -> None:
        """A step without a count."""
        self._write(what)

    def below(self, lines: Sequence[str]) -> None:
        """What each worker does changes too often for a log."""

    def update(self, study: str, done: int, total: int, note: str = "") -> None:
        """Examples done of a study; all of them at the first call: it was measured before."""
        now, about = self._clock(), note and f"; {note}"
        if study not in self._counts:
            self._counts[study] = _Count(done, total, now)
            if done >= total:
                self._counts[study].ended = True
                self._write(f"{study}: all {total} {self._of} are there{about}")
            else:
                self._write(f"{study}: {done} of {total} {self._of}{about}")
            return
        count = self._counts[study]
        count.done, count.total = done, total
        if now - count.told >= EVERY:
            count.told = now
            self._write(f"{study}: {done} of {total} {self._of}, {_clock_text(now - count.began)} gone{about}")

    def ended(self, study: str) -> None:
        """A study is measured and kept."""
        count = self._counts.get(study)
        if count is not None and not count.ended:
            count.ended = True
            took = _clock_text(self._clock() - count.began)
            self._write(f"{study}: {count.total} of {count.total} {self._of}, done in {took}")

    def close(self) -> None:
        """Nothing more is to come: what was counted to its end has ended."""
        for study, count in self._counts.items():
            if count.done >= count.total:
                self.ended(study)


def _clock_text(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
