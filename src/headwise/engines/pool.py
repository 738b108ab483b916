"""What a crew asks of those who run processes for it: start a worker, give it something to do, hear what came of it.

A worker does one thing at a time: it is sent a `Call` and something is heard of it once, as one of four events. Starting
is its first call. `engines.ray.pool` has workers on a cluster; tests have some that exist in a list only and die by dice.

This module holds no logic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headwise.core.errors import HeadwiseError

__all__ = ["Answered", "Call", "Died", "Event", "Failed", "Pool", "Refused"]


class Call(NamedTuple):
    """What a worker is to do."""

    verb: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Event:
    """Something was heard of a worker."""

    worker: str


@dataclass(frozen=True)
class Answered(Event):
    """It did what it was sent, and is free."""

    value: Any = None  # of its start: where it is


@dataclass(frozen=True)
class Refused(Event):
    """What was asked for cannot be done, by anyone: the user has to change something."""

    error: HeadwiseError


@dataclass(frozen=True)
class Failed(Event):
    """It failed with an error that nobody meant, and is free."""

    cause: str


@dataclass(frozen=True)
class Died(Event):
    """It is gone."""

    cause: str


class Pool(Protocol):
    """Workers, by name."""

    def start(self) -> str:
        """A new worker's name; it answers when it has loaded the model."""
        ...

    def send(self, worker: str, call: Call) -> None:
        """Something to do for a worker that is free."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """What has been heard; waits at most so long for the first."""
        ...

    def stop(self, worker: str) -> None:
        """End a worker, whatever it does; no more is heard of it."""
        ...

    def check(self) -> None:
        """EngineError where the cluster itself is gone."""
        ...

    def now(self) -> float:
        """Seconds on the pool's clock."""
        ...
