"""The model behind the live page: loaded in the background by the worker that will run it, so that pages are there at once.

| state   | means                                                               |
|---------|---------------------------------------------------------------------|
| off     | the server was started without a model                              |
| loading | it is being read                                                    |
| ready   | prompts are taken                                                   |
| failed  | it could not be loaded; `message` says why, and pages work as ever  |

How a session is opened is handed in by whoever starts the server: this module needs no torch, and a server without a
model never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headwise.core.cancellation import CancelToken
from headwise.core.errors import HeadwiseError
from headwise.server.desk import Desk, Job
from headwise.server.shelf import Shelved

__all__ = ["Room", "Session"]

OFF = (
    "end the server (Ctrl-C) and start it with a model: headwise serve ATLAS --live takes the atlas's own, "
    "headwise serve ATLAS --model MODEL another; then a prompt can be typed here and every head looked at"
)
LOADING = 3600.0  # seconds a model may take to be read: it may have to be fetched from the hub


class Session(Protocol):
    """What a live session does; see `headwise.live.Session`."""

    @property
    def facts(self) -> Callable[[], dict[str, Any]]: ...
    @property
    def why_not(self) -> Callable[..., str | None]: ...
    @property
    def check(self) -> Callable[..., Any]: ...
    @property
    def look(self) -> Callable[..., Any]: ...
    @property
    def head(self) -> Callable[..., Any]: ...
    @property
    def what_if(self) -> Callable[..., Any]: ...
    @property
    def score(self) -> Callable[..., Any]: ...


class Room:
    """The session, when it is there."""

    def __init__(self, open_session: Callable[[], Session] | None, shelved: list[Shelved], desk: Desk):
        self.desk = desk
        self.session: Session | None = None
        self._shelved = shelved
        self._unscored: dict[str, str | None] = {}
        self._job: Job | None = None
        self._open = open_session
        if open_session is not None:
            self._job = desk.take(self._load, seconds=LOADING)

    def status(self, atlas: Shelved) -> dict[str, Any]:
        """What the live page shows before anything was typed."""
        if self._job is None:
            return {"state": "off", "message": OFF}
        if self.session is not None:
            unscored = self._unscored.get(atlas.name)
            return {"state": "ready", "message": "", **self.session.facts(), "unscored": unscored}
        if self._job.now.event == "failed":
            return {"state": "failed", "message": self._job.now.error}
        return {"state": "loading", "message": "the model is being loaded"}

    def ready(self) -> Session:
        """The session; HeadwiseError where it is not there (yet)."""
        if self.session is None:
            raise NotReady(f"the model is not ready: {self.status(self._shelved[0])['message']}")
        return self.session

    def _load(self, halt: CancelToken) -> None:
        assert self._open is not None
        session = self._open()
        for one in self._shelved:
            why = session.why_not(one.atlas.location.address)
            self._unscored[one.name] = None if why is None else one.unplaced(why)
        self.session = session


class NotReady(HeadwiseError):  # noqa: N818
    """There is no model, or not yet (docs/errors/explorer.md)."""
