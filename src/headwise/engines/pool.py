"""The workers of a scheduler: start one, send it a call, receive what came of it.

A worker does one thing at a time: each `Call` results in exactly one of four events. Starting is its first call.
`engines.ray.worker` has workers on a cluster; tests have simulated ones that die at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headwise.core.errors import HeadwiseError


class Call(NamedTuple):
    """A method call on a worker."""

    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Event:
    """What came of a call."""

    worker: str


@dataclass(frozen=True)
class Answered(Event):
    """The call returned; the worker is free."""

    value: Any = None  # of a start: where the worker is


@dataclass(frozen=True)
class Refused(Event):
    """No worker can do this: the user has to change something."""

    error: HeadwiseError


@dataclass(frozen=True)
class Failed(Event):
    """The call raised an unexpected error; the worker is free."""

    cause: str


@dataclass(frozen=True)
class Died(Event):
    """The worker is gone."""

    cause: str


class WorkerPool(Protocol):
    """Workers, by name."""

    def start(self) -> str:
        """Start a worker and return its name; it answers once it has loaded the model."""
        ...

    def send(self, worker: str, call: Call) -> None:
        """Send a call to a free worker."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """The events since the last call; waits at most so long for the first."""
        ...

    def stop(self, worker: str) -> None:
        """Kill a worker; no more events come from it."""
        ...

    def check(self) -> None:
        """EngineError if the cluster itself is gone."""
        ...

    def now(self) -> float:
        """Seconds on the pool's clock."""
        ...
