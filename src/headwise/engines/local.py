"""Run shards one after another, in this process.

For each shard in order: if it is committed, read it; if not, measure it, commit it, and read it back. Results are always what
the committed files hold, so an interrupted run and an uninterrupted one give the same bits. An interrupt (Ctrl-C, kill) costs
the shard that was being measured. An error stops the build, since there is no other worker to try; what is committed stays.

Cost: one write and one read per shard, and one more read at the end: results stay on disk while measuring, so that memory does
not grow with the number of examples. Finalizing reads each once and holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import overload

import xarray as xr

from headwise.core.errors import AtlasError
from headwise.engines.engine import Listener, StudyJob, StudyResult, StudyWorker, WorkerSpec
from headwise.engines.shards import Shard, ShardStore, split_shards

__all__ = ["CommittedShards", "LocalEngine", "run_shards"]


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

    def prepare(self, study: str, inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Make the study concrete."""
        return self._worker.prepare(study, inputs)

    def run(self, job: StudyJob, store: ShardStore, listener: Listener) -> StudyResult:
        """Measure and commit the missing shards, then finalize."""

        def report(done: int, total: int) -> None:
            listener.progress(job.study, done, total)

        report(0, job.examples)
        parts = run_shards(self._worker.measure, split_shards(job.examples, job.shard_size), store, progress=report)
        return self._worker.finalize(parts)


def run_shards(
    measure: Callable[[Shard], xr.Dataset],
    shards: Sequence[Shard],
    store: ShardStore,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> CommittedShards:
    """The results of all shards, in order; ``progress(done, total)`` counts examples, after each shard."""
    total = sum(shard.stop - shard.start for shard in shards)
    done = 0
    for shard in shards:
        if store.load(shard) is None:
            store.commit(shard, measure(shard))
            CommittedShards([shard], store)[0]  # a shard that cannot be read back is reported now, not at the end
        done += shard.stop - shard.start
        if progress is not None:
            progress(done, total)
    return CommittedShards(shards, store)


class CommittedShards(Sequence[xr.Dataset]):
    """Committed results, read on first access and cached: finalizing reads a shard many times."""

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
