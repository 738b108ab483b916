"""The process that measures on a cluster, and the pool of such processes.

A worker is a Ray actor with its own CPUs and GPUs. Ray neither restarts it nor repeats its calls: the scheduler decides what
is retried. It never raises: every outcome comes back as a `WorkerReply`, because an exception may not survive the way between
processes (its class may be missing there, its arguments may not be serialisable). Only the death of the process is Ray's to
report. What all workers receive (the spec, the maps that a study depends on) is put into Ray's object store once.

Results travel packed (`atlas.packing`); if the atlas is at a URL, the worker commits them itself.
"""

from __future__ import annotations

import functools
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr

from headwise.atlas.decoding import CorruptionError
from headwise.atlas.packing import pack, unpack
from headwise.core import errors
from headwise.core.errors import HeadwiseError
from headwise.engines.engine import StudyJob, StudyWorker, WorkerSpec
from headwise.engines.pool import Answered, Call, Died, Event, Failed, Refused
from headwise.engines.ray.connection import RayConnection, import_ray
from headwise.engines.shards import Shard, ShardStore

__all__ = ["RayPool", "RayWorker", "ShardSources", "WorkerReply"]

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"


class WorkerReply(NamedTuple):
    """What came of a call."""

    kind: str
    value: Any = None  # of an answer
    message: str = ""  # of a refusal, or the last line of a failure
    error: str = ""  # the class of a refusal, or the traceback of a failure


class ShardSources(NamedTuple):
    """Where the shards of a study are: in Ray's object store, or at the atlas's URL."""

    shards: tuple[Shard, ...]
    references: tuple[Any, ...] = ()  # one per shard
    url: str | None = None


def _replies(method: Callable[..., Any]) -> Callable[..., WorkerReply]:
    """The method, with every outcome as a WorkerReply."""

    @functools.wraps(method)
    def replying(*arguments: Any) -> WorkerReply:
        try:
            return WorkerReply(ANSWERED, method(*arguments))
        except HeadwiseError as error:
            return WorkerReply(REFUSED, message=str(error), error=type(error).__name__)
        except Exception as error:
            first_line = next(iter(str(error).strip().splitlines()), "no message")
            return WorkerReply(FAILED, message=f"{type(error).__name__}: {first_line}", error=traceback.format_exc())

    return replying


class RayWorker:
    """One process that holds the model."""

    def __init__(self, environment: Mapping[str, str], spec: Sequence[Any]) -> None:
        """`spec`: a list of one reference, so that Ray does not resolve it before the environment is set."""
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._spec = spec
        self._worker: StudyWorker | None = None
        self._job: StudyJob | None = None
        self._stores: dict[str, ShardStore] = {}

    @_replies
    def start(self) -> str:
        """Load the model; returns host and process."""
        spec: WorkerSpec = import_ray().get(self._spec[0])
        self._worker = spec.open()
        return f"{socket.gethostname()}, process {os.getpid()}"

    @_replies
    def prepare(self, studies: Sequence[str], inputs: Sequence[tuple[str, Any]]) -> StudyJob:
        """Prepare a study, or several that share their forward passes."""
        ray = import_ray()
        self._job, self._stores = None, {}
        self._job = self._study_worker().prepare(studies, {name: unpack(ray.get(ref)) for name, ref in inputs})
        return self._job

    @_replies
    def measure(self, shard: Shard, url: str | None) -> bytes | None:
        """Measure a shard; its packed result, or None if it was committed from here."""
        content = pack(self._study_worker().measure(shard))
        if url is None:
            return content
        self._store(url).commit_packed(shard, content)
        return None

    @_replies
    def finalize(self, sources: ShardSources) -> tuple[list[Shard], dict[str, bytes], Mapping[str, bytes]]:
        """The missing or corrupt shards; if there are none, the study's maps (packed) and artifacts."""
        parts: list[xr.Dataset] = []
        lost = []
        for index, shard in enumerate(sources.shards):
            part = self._load(sources, index, shard)
            lost += [shard] if part is None else []
            parts += [] if part is None else [part]
        if lost:
            return lost, {}, {}
        result = self._study_worker().finalize(parts)
        return [], {name: pack(dataset) for name, dataset in result.datasets.items()}, result.artifacts

    def _load(self, sources: ShardSources, index: int, shard: Shard) -> xr.Dataset | None:
        if sources.url is not None:
            return self._store(sources.url).load(shard)
        try:
            return unpack(import_ray().get(sources.references[index]))
        except CorruptionError:
            return None

    def _store(self, url: str) -> ShardStore:
        if url not in self._stores:
            job = self._job
            assert job is not None  # the scheduler prepares before it measures
            self._stores[url] = ShardStore(url, job.provenance, examples=job.examples, size=job.shard_size)
        return self._stores[url]

    def _study_worker(self) -> StudyWorker:
        assert self._worker is not None  # the scheduler starts a worker before it sends anything else
        return self._worker


class RayPool:
    """A `WorkerPool` of Ray actors, each with so many CPUs and GPUs."""

    def __init__(self, connection: RayConnection, spec: WorkerSpec, *, cpus: float, gpus: float) -> None:
        self._connection, self._ray = connection, connection.ray
        remote = self._ray.remote(RayWorker)
        self._actor = remote.options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)
        self._environment = dict(spec.environment)
        self._spec = self._ray.put(spec)
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}  # reference of a call -> worker
        self._started = 0

    def start(self) -> str:
        """Start a worker and return its name; it answers once it has loaded the model."""
        self._started += 1
        name = f"worker {self._started}"
        self._actors[name] = self._actor.remote(self._environment, [self._spec])
        self._pending[self._actors[name].start.remote()] = name
        return name

    def send(self, worker: str, call: Call) -> None:
        """Send a call to a free worker."""
        self._pending[getattr(self._actors[worker], call.method).remote(*call.arguments)] = worker

    def wait(self, seconds: float) -> list[Event]:
        """The events since the last call; waits at most so long for the first."""
        if not self._pending:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        return [self._event(self._pending.pop(reference), reference) for reference in ready]

    def _event(self, worker: str, reference: Any) -> Event:
        self._connection.check_raylet()
        try:
            reply: WorkerReply = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._actors.pop(worker, None)
            return Died(worker, cause_of_death(error))
        if reply.kind == ANSWERED:
            return Answered(worker, reply.value)
        if reply.kind == REFUSED:
            kind = getattr(errors, reply.error, HeadwiseError)
            return Refused(worker, kind(reply.message))
        return Failed(worker, reply.message)

    def stop(self, worker: str) -> None:
        """Kill a worker; no more events come from it."""
        actor = self._actors.pop(worker, None)
        self._pending = {ref: name for ref, name in self._pending.items() if name != worker}
        if actor is not None:
            self._ray.kill(actor, no_restart=True)

    def put(self, content: bytes) -> Any:
        """Put bytes into Ray's object store; a reference for the workers."""
        self._connection.check_raylet()
        return self._ray.put(content)

    def check(self) -> None:
        """EngineError if Ray itself is gone."""
        self._connection.check()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()


def cause_of_death(error: Exception) -> str:
    """Why a worker is gone, in a few words; Ray's own message has twenty lines.

    >>> cause_of_death(Exception("The actor died.\\nThe actor is dead because its node has died. Node Id: 12"))
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
