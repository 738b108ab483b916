"""The contract of all engines, which `studies.building` is written against, and the engine that runs in this process.

    engine.open(spec) -> session             a spec says what to build: a model by name or loaded, data, options
    session.prepare(studies, inputs) -> job  studies made concrete: provenance, examples, shard size
    session.run(job, store, ...) -> result

A spec is opened in the process that measures (`WorkerSpec.open` loads the model there) and becomes a `StudyWorker`: the model
with one study prepared on it. The local engine opens it in this process; Ray sends it to its workers, each of which opens it.
So every engine measures the same shards by the same code, and the same bits come out.

`LocalEngine`, shard by shard: if it is committed, read it; if not, measure it, commit it, and read it back. Results are always
what the committed files hold, so an interrupted run and an uninterrupted one give the same bits; an interrupt costs the shard
that was being measured. With a model on a GPU, a shard is committed while the next one is measured, so that the GPU does not
wait for the disk; there a kill (not Ctrl-C) costs both. An error stops the build, since there is no other worker to try. Cost:
one write and two reads per shard; results stay on disk while measuring, and large variables until a study asks for a layer of
them (`ShardStore.load`), so that memory does not grow with the number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, overload

import xarray as xr

from headwise.core.errors import AtlasError, EngineError
from headwise.core.progress import reporting
from headwise.core.provenance import Provenance
from headwise.engines.shards import Shard, ShardStore, split_shards

__all__ = [
    "CommittedShards",
    "Engine",
    "EngineSession",
    "Listener",
    "LocalEngine",
    "ShardsFailedError",
    "StudyJob",
    "StudyResult",
    "StudyWorker",
    "ThreadCounts",
    "WorkerSpec",
    "run_shards",
]


MAX_NAMED = 3  # failed shards that an error names


class StudyJob(NamedTuple):
    """One study made concrete, or several that share their forward passes."""

    study: str  # of several: their names, joined
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

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """So many steps of ``what``, inside a long shard or the statistics of a study. Not reported by a cluster."""

    def ended(self, study: str) -> None:
        """A study is in the atlas; not called for one that was there before."""

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        """What each worker is doing."""

    def event(self, sentence: str) -> None:
        """Something a user may want to know: a worker died, a shard is tried again."""


class StudyWorker(Protocol):
    """A loaded model with one study prepared on it, in the process that measures."""

    @property
    def on_gpu(self) -> bool:
        """Whether the model is on a GPU, so that the processor is free while it runs."""
        ...

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Prepare a study, or several that share their forward passes, from the maps that they depend on."""
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

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Make a study concrete, or several that share their forward passes."""
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


class LocalEngine:
    """Runs in this process; the default of `build`.

    Examples:
        >>> from headwise.corpora import Passage, Passages
        >>> from headwise.studies import ProfileOptions
        >>> words = "the old river was the old river and the old house"
        >>> texts = Passages("mine", (Passage("a", words), Passage("b", words.replace("old", "low"))))
        >>> few = {"profile": ProfileOptions(repeats=2, period=16)}
        >>> hw.build(model, ["profile"], data=texts, options=few, output=folder / "mine", engine=LocalEngine()).studies
        ['profile']
    """

    @contextmanager
    def open(self, spec: WorkerSpec, listener: Listener) -> Iterator[LocalSession]:
        """Open the spec in this process."""
        yield LocalSession(spec.open())


class LocalSession:
    """A session with the one worker of this process."""

    def __init__(self, worker: StudyWorker) -> None:
        self._worker = worker

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Make a study concrete, or several that share their forward passes."""
        return self._worker.prepare(studies, inputs)

    def run(self, job: StudyJob, store: ShardStore, listener: Listener) -> StudyResult:
        """Measure and commit the missing shards, then finalize."""

        def report(done: int, total: int) -> None:
            listener.progress(job.study, done, total)

        report(0, job.examples)
        shards = split_shards(job.examples, job.shard_size)
        with reporting(lambda what, done, total: listener.concluding(job.study, what, done, total)):
            parts = run_shards(self._worker.measure, shards, store, progress=report, overlap=self._worker.on_gpu)
            result = self._worker.finalize(parts)
        for dataset in result.datasets.values():
            dataset.load()  # what is still in the shards, which are deleted next
        return result


def run_shards(
    measure: Callable[[Shard], xr.Dataset],
    shards: Sequence[Shard],
    store: ShardStore,
    *,
    progress: Callable[[int, int], None] | None = None,
    overlap: bool = False,
) -> CommittedShards:
    """The results of all shards, in order.

    ``progress(done, total)`` counts examples, after each shard; ``overlap``: commit a shard while the next is measured.
    """
    total = sum(shard.stop - shard.start for shard in shards)
    done = 0
    writing: tuple[Shard, Future[None]] | None = None

    def finished(shard: Shard) -> None:
        nonlocal done
        done += shard.stop - shard.start
        if progress is not None:
            progress(done, total)

    def commit(shard: Shard, result: xr.Dataset) -> None:
        store.commit(shard, result)
        CommittedShards([shard], store)[0]  # a shard that cannot be read back is reported now, not at the end

    def wait() -> None:
        """Until what is being written is committed."""
        nonlocal writing
        if writing is not None:
            (shard, written), writing = writing, None
            written.result()
            finished(shard)

    with ThreadPoolExecutor(1, "commit") as writer:  # at its end it waits for what is being written, whatever happened
        for shard in shards:
            if store.load(shard) is not None:
                wait()
                finished(shard)
                continue
            result = measure(shard)
            wait()  # two shards are held at most
            writing = shard, writer.submit(commit, shard, result)
            if not overlap:
                wait()
        wait()
    return CommittedShards(shards, store)


class CommittedShards(Sequence[xr.Dataset]):
    """Committed results, read on first access and cached but for large variables: finalizing reads a shard many times."""

    def __init__(self, shards: Sequence[Shard], store: ShardStore) -> None:
        self._shards, self._store = shards, store
        self._cache: dict[int, xr.Dataset] = {}

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, index: int) -> xr.Dataset: ...
    @overload
    def __getitem__(self, index: slice) -> list[xr.Dataset]: ...
    def __getitem__(self, index: int | slice) -> xr.Dataset | list[xr.Dataset]:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        shard = self._shards[index]
        if shard.index in self._cache:
            return self._cache[shard.index]
        result = self._store.load(shard)
        if result is None:
            raise AtlasError(
                f"Shard {shard.index} was written to {self._store.where} and could not be read back; the disk is failing, "
                "or something else changes that folder. Choose another folder with -o."
            )
        self._cache[shard.index] = result
        return result
