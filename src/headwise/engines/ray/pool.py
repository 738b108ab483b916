"""Workers on a Ray cluster, as a crew wants them: started, sent something, heard of, ended.

A worker is a Ray actor that is never restarted by Ray, and whose calls are never repeated by Ray: who does what again is
the crew's to decide, in one place. What is sent to all (the order, maps that a study needs) is put into Ray's store once.

This module does not know what is sent.
"""

from __future__ import annotations

import time
from typing import Any

from headwise.core import errors
from headwise.core.errors import HeadwiseError
from headwise.engines.engine import Order
from headwise.engines.pool import Answered, Call, Died, Event, Failed, Refused
from headwise.engines.ray.connection import Connection
from headwise.engines.ray.worker import ANSWERED, REFUSED, Reply, Worker

__all__ = ["RayPool"]


class RayPool:
    """Workers that each ask for so many CPUs and GPUs."""

    def __init__(self, joined: Connection, order: Order, *, cpus: float, gpus: float) -> None:
        self._joined, self._ray = joined, joined.ray
        remote = self._ray.remote(Worker)
        self._maker = remote.options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)
        self._environment = dict(order.environment)
        self._order = self._ray.put(order)
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}  # reference of a call -> worker
        self._started = 0

    def start(self) -> str:
        """A new worker's name; it answers when it has loaded the model."""
        self._started += 1
        name = f"worker {self._started}"
        self._actors[name] = self._maker.remote(self._environment, [self._order])
        self._pending[self._actors[name].start.remote()] = name
        return name

    def send(self, worker: str, call: Call) -> None:
        """Something to do for a worker that is free."""
        self._pending[getattr(self._actors[worker], call.verb).remote(*call.arguments)] = worker

    def wait(self, seconds: float) -> list[Event]:
        """What has been heard; waits at most so long for the first."""
        if not self._pending:
            time.sleep(seconds)
            return []
        heard, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        if not heard:
            heard, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        return [self._event(self._pending.pop(reference), reference) for reference in heard]

    def _event(self, worker: str, reference: Any) -> Event:
        self._joined.touch()
        try:
            reply: Reply = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._actors.pop(worker, None)
            return Died(worker, cause_of(error))
        if reply.kind == ANSWERED:
            return Answered(worker, reply.value)
        if reply.kind == REFUSED:
            kind = getattr(errors, reply.error, HeadwiseError)
            return Refused(worker, kind(reply.words))
        return Failed(worker, reply.words)

    def stop(self, worker: str) -> None:
        """End a worker, whatever it does; no more is heard of it."""
        actor = self._actors.pop(worker, None)
        self._pending = {ref: name for ref, name in self._pending.items() if name != worker}
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def put(self, content: bytes) -> Any:
        """A reference to what several workers will fetch."""
        self._joined.touch()
        return self._ray.put(content)

    def check(self) -> None:
        """EngineError where Ray itself is gone."""
        self._joined.check()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()


def cause_of(error: Exception) -> str:
    """Why a worker is gone, in a few words; Ray's own take twenty lines.

    >>> cause_of(Exception("The actor died.\\nThe actor is dead because its node has died. Node Id: 12"))
    'its node died'
    """
    text, kind = " ".join(str(error).split()), type(error).__name__
    if kind == "OutOfMemoryError" or "running low on memory" in text:
        return "Ray ended it because its node ran out of memory"
    if "node has died" in text or "node died" in text or kind == "NodeDiedError":
        return "its node died"
    if "SIGKILL" in text or "connection error code 2" in text or "Worker unexpectedly exits" in text:
        return "its process was killed"
    if kind == "ActorUnschedulableError":
        return "no node has room for it"
    return text[:200] or kind
