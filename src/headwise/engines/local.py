"""Run shards one after another, in this process.

Steps, for each shard in order: if it is committed, read it; if not, measure it, commit it, and read it back. Results
are always what the committed files hold, so a run that was interrupted and one that was not give the same bits. An
interrupt (Ctrl-C, kill) costs the shard that was being measured and no other.

What goes wrong here stops the build: there is no other worker to try it. Everything committed stays.

Cost: one write and one read a shard, and one more read at the end: results stay on the disk while there is something to
measure, so that memory does not grow with the examples measured. The conclusion reads them, each once, and holds them. This
module does not know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import overload

import xarray as xr

from headwise.core.errors import AtlasError
from headwise.engines.engine import Desk, Job, Listener, Order, Outcome
from headwise.engines.shards import Shard, ShardStore, cut

__all__ = ["LocalEngine", "Results", "run"]


class LocalEngine:
    """This process; what `build` uses where nothing else is said.

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
    def open(self, order: Order, listener: Listener) -> Iterator[_Here]:
        """The order, opened here."""
        yield _Here(order.open())


class _Here:
    """A session at the one desk of this process."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def prepare(self, study: str, needed: Mapping[str, xr.Dataset]) -> Job:
        return self._desk.prepare(study, needed)

    def run(self, job: Job, store: ShardStore, listener: Listener) -> Outcome:
        def report(done: int, total: int) -> None:
            listener.progress(job.study, done, total)

        report(0, job.examples)
        parts = run(self._desk.measure, cut(job.examples, job.shard_size), store, progress=report)
        return self._desk.conclude(parts)


def run(
    work: Callable[[Shard], xr.Dataset],
    shards: Sequence[Shard],
    store: ShardStore,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """The results of all shards, in order; ``progress(done, total)`` counts examples, after each shard."""
    total = sum(shard.stop - shard.start for shard in shards)
    done = 0
    for shard in shards:
        if store.load(shard) is None:
            store.commit(shard, work(shard))
            Results([shard], store)[0]  # what cannot be read back is found out now, not at the end
        done += shard.stop - shard.start
        if progress is not None:
            progress(done, total)
    return Results(shards, store)


class Results(Sequence[xr.Dataset]):
    """What is committed, read when it is first asked for and held from then on: a conclusion looks at a shard many times."""

    def __init__(self, shards: Sequence[Shard], store: ShardStore) -> None:
        self._shards, self._store = shards, store
        self._held: dict[int, xr.Dataset] = {}

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, place: int) -> xr.Dataset: ...
    @overload
    def __getitem__(self, place: slice) -> list[xr.Dataset]: ...
    def __getitem__(self, place: int | slice) -> xr.Dataset | list[xr.Dataset]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        shard = self._shards[place]
        if shard.index in self._held:
            return self._held[shard.index]
        result = self._store.load(shard)
        if result is None:
            raise AtlasError(
                f"Shard {shard.index} was written to {self._store.where} and could not be read back; the disk is failing, "
                "or something else changes that folder. Choose another folder with -o."
            )
        self._held[shard.index] = result
        return result
