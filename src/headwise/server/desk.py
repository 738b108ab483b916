"""One model, one worker: jobs wait in a short line and are done one after the other, in a thread of their own.

    job = desk.take(lambda halt: session.look(text, halt=halt))       # Busy where the line is full
    job.now                                                           # what to tell: waiting, running, done, failed
    job.halt.cancel()                                                 # from anywhere; the next in line goes on

Pages are served meanwhile, by other threads. A job that was cancelled while it waited is never started; one that is
running stops at the next layer or token. What goes wrong in a job is told in a sentence where it was foreseen, and as
"went wrong" with a number to look for in the server's log where it was not: no traceback leaves the server.

This module does not know what a job computes.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwise.core.cancellation import TIMEOUT_SECONDS, Cancelled, CancelToken
from headwise.core.errors import HeadwiseError

__all__ = ["Busy", "Desk", "Job", "Now"]

WAITING = 4  # jobs in line
MEMORY = "there is not enough memory for this; shorten the prompt"

log = logging.getLogger("headwise.server")


class Busy(HeadwiseError):  # noqa: N818
    """The line is full (docs/errors/explorer.md)."""


@dataclass(frozen=True)
class Now:
    """How a job stands."""

    event: str  # "waiting", "running", "done", "failed"
    stage: str = ""
    share: float = 0.0
    ahead: int = 0  # jobs before this one
    result: Any = None
    error: str = ""


class Job:
    """Something to be computed."""

    def __init__(self, work: Callable[[CancelToken], Any], seconds: float):
        self.work = work
        self.halt = CancelToken(seconds, self._told)
        self.now = Now("waiting")
        self.over = threading.Event()

    def _told(self, stage: str, share: float) -> None:
        self.now = Now("running", stage, share)

    def run(self) -> None:
        """In the worker's thread."""
        self.halt.start()
        self.now = Now("running", "starting")
        try:
            self.now = Now("done", share=1.0, result=self.work(self.halt))
        except (Cancelled, HeadwiseError) as error:
            self.now = Now("failed", error=str(error))
        except Exception as error:
            self.now = Now("failed", error=_unforeseen(error))
        finally:
            self.over.set()


class Desk:
    """The line and its worker."""

    def __init__(self, *, waiting: int = WAITING, seconds: float = TIMEOUT_SECONDS):
        self.most, self.seconds = waiting, seconds
        self._line: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="headwise-model", daemon=True)
        self._worker.start()

    def take(self, work: Callable[[CancelToken], Any], *, seconds: float | None = None) -> Job:
        """Put a job into the line."""
        job = Job(work, self.seconds if seconds is None else seconds)
        with self._changed:
            self._line = deque(one for one in self._line if not one.halt.cancelled)
            if self._closed or len(self._line) >= self.most:
                raise Busy(f"the model is busy, and {self.most} others are waiting; try again in a moment")
            self._line.append(job)
            self._changed.notify_all()
        return job

    def ahead(self, job: Job) -> int:
        """How many jobs are before this one."""
        with self._changed:
            there = [one for one in self._line if not one.halt.cancelled]
            return (self._running is not None) + (there.index(job) if job in there else 0)

    def close(self) -> None:
        """No more jobs; those that are there are cancelled."""
        with self._changed:
            self._closed = True
            for job in (*self._line, *([self._running] if self._running else [])):
                job.halt.cancel()
            self._changed.notify_all()
        self._worker.join(timeout=2)  # a model that is being loaded cannot be stopped; its thread ends with the process

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._line or self._closed)
                if self._closed and not self._line:
                    return
                self._running = job = self._line.popleft()
            if job.halt.cancelled:
                job.now = Now("failed", error="cancelled")
                job.over.set()
            else:
                job.run()


def _unforeseen(error: Exception) -> str:
    """One sentence about an error that nobody expected; the rest goes to the log."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return MEMORY
    number = secrets.token_hex(3)
    log.error("headwise: error %s while the model worked", number, exc_info=error)
    return f"something went wrong while the model worked (error {number} in the server's log)"
