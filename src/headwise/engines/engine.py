"""The contract of all engines, which `studies.building` is written against.

    engine.open(spec) -> session             a spec says what to build: a model by name or loaded, data, options
    session.prepare(study, inputs) -> job    the study made concrete: provenance, examples, shard size
    session.run(job, store, ...) -> result

A spec is opened in the process that measures (`WorkerSpec.open` loads the model there) and becomes a `StudyWorker`: the model
with one study prepared on it. The local engine opens it in this process; Ray sends it to its workers, each of which opens it.
So every engine measures the same shards by the same code, and the same bits come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import xarray as xr

from headwise.core.errors import EngineError
from headwise.core.provenance import Provenance
from headwise.engines.shards import Shard, ShardStore

__all__ = [
    "Engine", "EngineSession", "Listener", "ShardsFailedError", "StudyJob", "StudyResult", "StudyWorker", "ThreadCounts",
    "WorkerSpec",
]  # fmt: skip

MAX_NAMED = 3  # failed shards that an error names


class StudyJob(NamedTuple):
    """One study made concrete."""

    study: str
    provenance: Provenance
    examples: int
    shard_size: int
    parts: Mapping[str, Provenance] = {}  # of a job that measures several studies in one pass: study -> provenance


class StudyResult(NamedTuple):
    """The output of a study."""

    datasets: Mapping[str, xr.Dataset]  # by name; the study's own comes last
    artifacts: Mapping[str, bytes]  # files stored next to the maps, such as a fitted detector; by key below the atlas


class ThreadCounts(NamedTuple):
    """How many threads compute; the order of summation, and so the last digit, depends on them."""

    torch: int
    blas: int  # numpy's and scipy's


class Listener:
    """Receives the events of a run. This one ignores them; override the methods of interest.

    Examples:
        >>> class Loud(Listener):
        ...     def event(self, sentence):
        ...         print(sentence)
        >>> Loud().event("worker 3 died; its shard goes to another")
        worker 3 died; its shard goes to another
    """

    def progress(self, study: str, done: int, total: int) -> None:
        """The number of examples of a study that are done."""

    def ended(self, study: str) -> None:
        """A study is in the atlas; not called for one that was there before."""

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        """What each worker is doing."""

    def event(self, sentence: str) -> None:
        """Something a user may want to know: a worker died, a shard is tried again."""


class StudyWorker(Protocol):
    """A loaded model with one study prepared on it, in the process that measures."""

    def prepare(self, study: str, inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Prepare a study from the maps that it depends on; the previous one is released."""
        ...

    def measure(self, shard: Shard) -> xr.Dataset:
        """Measure the examples of one shard."""
        ...

    def finalize(self, parts: Sequence[xr.Dataset]) -> StudyResult:
        """Reduce all shards, in order, to the study's result."""
        ...


class WorkerSpec(Protocol):
    """Everything that a process needs to become a `StudyWorker`."""

    def open(self) -> StudyWorker:
        """Load the model; slow."""
        ...

    def for_workers(self, gpus: float | None, threads: int | None) -> WorkerSpec:
        """The same in a form that other processes can open, on that many GPUs (None: unchanged) and threads.

        Refused, with the reason, if it refers to the memory of this process.
        """
        ...

    @property
    def threads(self) -> ThreadCounts:
        """The number of threads of each worker."""
        ...

    @property
    def on_cpu(self) -> bool:
        """Whether the model was requested on the CPU."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables of this process that opening depends on."""
        ...


class EngineSession(Protocol):
    """An engine that has opened a spec."""

    def prepare(self, study: str, inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Make the study concrete."""
        ...

    def run(self, job: StudyJob, store: ShardStore, listener: Listener) -> StudyResult:
        """Measure and commit the missing shards, then finalize; ShardsFailedError if shards could not be measured."""
        ...


class Engine(Protocol):
    """Runs studies: `LocalEngine` or `RayEngine`."""

    def open(self, spec: WorkerSpec, listener: Listener) -> AbstractContextManager[EngineSession]:
        """Start; what was started is stopped with the block."""
        ...


class ShardsFailedError(EngineError):
    """Shards of a study failed repeatedly (docs/errors/engines.md). Its other shards are committed."""

    def __init__(self, study: str, parts: Mapping[str, Sequence[str]], untried: int = 0) -> None:
        """`parts`: what failed -> the cause of each try; `untried`: shards skipped because nothing succeeded."""
        self.study, self.parts, self.untried = study, parts, untried
        super().__init__(str(self))

    def __str__(self) -> str:
        named = [f"{part} ({len(causes)} tries; {causes[-1]})" for part, causes in list(self.parts.items())[:MAX_NAMED]]
        more = f" and {len(self.parts) - MAX_NAMED} more" if len(self.parts) > MAX_NAMED else ""
        rest = f"; {self.untried} others were not tried after that" if self.untried else ""
        return f"{self.study}: {'; '.join(named)}{more}{rest}"
