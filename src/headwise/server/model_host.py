"""The model behind the live page: one worker thread with a short job queue, and the model it loads in the background.

    job = queue.submit(lambda cancel: session.run(text, cancel=cancel))   # QueueFullError where the queue is full
    job.status                                                            # waiting, running, done or failed
    job.cancel.cancel()                                                   # from any thread; the next job starts

A job cancelled while it waits never starts; a running one stops at the next layer or token. An expected error becomes the job's
message; an unexpected one becomes "went wrong" with an error number, and its traceback goes to the server's log only.

| state of the model | means                                                                  |
|--------------------|------------------------------------------------------------------------|
| off                | the server was started without a model                                 |
| loading            | it is being loaded                                                     |
| ready              | prompts are accepted                                                   |
| failed             | it could not be loaded; `message` says why, and the other pages work   |

The caller passes a function that opens the session: this module needs no torch, and a server without a model never loads it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headwise.core.cancellation import TIMEOUT_SECONDS, Cancelled, CancelToken
from headwise.core.errors import HeadwiseError
from headwise.server.registry import ServedAtlas

MAX_WAITING_JOBS = 4
LOADING_SECONDS = 3600.0  # a model may have to be downloaded first
OUT_OF_MEMORY = "there is not enough memory for this; shorten the prompt"
OFF_MESSAGE = (
    "stop the server (Ctrl-C) and start it with a model: headwise serve ATLAS --live loads the atlas's own, "
    "headwise serve ATLAS --model MODEL another; then prompts can be run here"
)

log = logging.getLogger("headwise.server")


class QueueFullError(HeadwiseError):
    """The job queue is full (docs/errors/explorer.md)."""

    def __init__(self, text: str, retry_after: int = 5):
        super().__init__(text)
        self.retry_after = retry_after  # seconds


class ModelNotReadyError(HeadwiseError):
    """No model is loaded, or not yet (docs/errors/explorer.md)."""


class LiveModel(Protocol):
    """The interface of `headwise.live.LiveSession`."""

    @property
    def info(self) -> Callable[[], dict[str, Any]]: ...
    @property
    def scoring_unavailable(self) -> Callable[..., str | None]: ...
    @property
    def score_choices(self) -> Callable[..., tuple[Sequence[Mapping[str, object]], str | None]]: ...
    @property
    def validate(self) -> Callable[..., Any]: ...
    @property
    def run(self) -> Callable[..., Any]: ...
    @property
    def head_map(self) -> Callable[..., Any]: ...
    @property
    def what_if(self) -> Callable[..., Any]: ...
    @property
    def score(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class JobStatus:
    """The current state of a job."""

    event: str  # "waiting", "running", "done", "failed"
    stage: str = ""
    share: float = 0.0
    result: Any = None
    error: str = ""


class ModelJob:
    """A computation on the model."""

    def __init__(self, work: Callable[[CancelToken], Any], seconds: float):
        self.work = work
        self.cancel = CancelToken(seconds, self._on_progress)
        self.status = JobStatus("waiting")
        self.finished = threading.Event()

    def _on_progress(self, stage: str, share: float) -> None:
        self.status = JobStatus("running", stage, share)

    def run(self) -> None:
        """Called by the worker thread."""
        self.cancel.start()
        self.status = JobStatus("running", "starting")
        try:
            self.status = JobStatus("done", share=1.0, result=self.work(self.cancel))
        except (Cancelled, HeadwiseError) as error:
            self.status = JobStatus("failed", error=str(error))
        except Exception as error:
            self.status = JobStatus("failed", error=unexpected_message(error))
        finally:
            self.finished.set()


class JobQueue:
    """A bounded queue and its worker thread."""

    def __init__(self, *, max_waiting: int = MAX_WAITING_JOBS, seconds: float = TIMEOUT_SECONDS):
        self.max_waiting, self.seconds = max_waiting, seconds
        self._waiting: deque[ModelJob] = deque()
        self._running: ModelJob | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="headwise-model", daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        with self._changed:
            return sum(not job.cancel.cancelled for job in self._waiting)

    def submit(
        self, work: Callable[[CancelToken], Any], *, seconds: float | None = None, always: bool = False
    ) -> ModelJob:
        """Append a job; `always`: also to a full queue (loading a model, or a batch of requests with a queue of its own)."""
        job = ModelJob(work, self.seconds if seconds is None else seconds)
        with self._changed:
            self._waiting = deque(other for other in self._waiting if not other.cancel.cancelled)
            if self._closed or (len(self._waiting) >= self.max_waiting and not always):
                raise QueueFullError(
                    f"the model is busy, and {self.max_waiting} others are waiting; try again in a moment"
                )
            self._waiting.append(job)
            self._changed.notify_all()
        return job

    def jobs_ahead(self, job: ModelJob) -> int:
        """The number of jobs before this one."""
        with self._changed:
            waiting = [other for other in self._waiting if not other.cancel.cancelled]
            return (self._running is not None) + (waiting.index(job) if job in waiting else 0)

    def close(self) -> None:
        """Refuse new jobs and cancel all others."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *([self._running] if self._running else [])):
                job.cancel.cancel()
            self._changed.notify_all()
        self._worker.join(timeout=2)  # loading a model cannot be cancelled; its thread ends with the process

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed and not self._waiting:
                    return
                self._running = job = self._waiting.popleft()
            if job.cancel.cancelled:
                job.status = JobStatus("failed", error="cancelled")
                job.finished.set()
            else:
                job.run()


class ModelHost:
    """The live model, once it is loaded."""

    def __init__(self, open_session: Callable[[], LiveModel] | None, atlases: list[ServedAtlas], queue: JobQueue):
        self.queue = queue
        self.session: LiveModel | None = None
        self._atlases = atlases
        self._scoring: dict[str, dict[str, Any]] = {}  # by atlas: what is known of scores before a prompt is typed
        self._open = open_session
        self._job = None if open_session is None else queue.submit(self._load, seconds=LOADING_SECONDS)

    def status(self, atlas: ServedAtlas) -> dict[str, Any]:
        """What the live page shows before a prompt is typed."""
        if self._job is None:
            return {"state": "off", "message": OFF_MESSAGE}
        if self.session is not None:
            return {"state": "ready", "message": "", **self.session.info(), **self._scoring[atlas.name]}
        if self._job.status.event == "failed":
            return {"state": "failed", "message": self._job.status.error}
        return {"state": "loading", "message": "the model is being loaded"}

    def ready(self) -> LiveModel:
        """The session; ModelNotReadyError where there is none (yet)."""
        if self.session is None:
            raise ModelNotReadyError(f"the model is not ready: {self.status(self._atlases[0])['message']}")
        return self.session

    def _load(self, cancel: CancelToken) -> None:
        assert self._open is not None
        session = self._open()
        for atlas in self._atlases:
            address = atlas.atlas.location.address
            unavailable = session.scoring_unavailable(address)
            choices, no_choices = session.score_choices(address)
            self._scoring[atlas.name] = {
                "scoring_unavailable": None if unavailable is None else atlas.redact(unavailable),
                "scores": choices,
                "scores_unavailable": None if no_choices is None else atlas.redact(no_choices),
            }
        self.session = session


def unexpected_message(error: Exception) -> str:
    """A message for an unexpected error; the traceback goes to the log."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return OUT_OF_MEMORY
    number = secrets.token_hex(3)
    log.error("headwise: error %s while the model worked", number, exc_info=error)
    return f"something went wrong while the model worked (error {number} in the server's log)"
