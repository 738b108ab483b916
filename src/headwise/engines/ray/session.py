"""A build on a cluster: studies one after another, the shards of each spread over the workers.

The process that runs this holds no model and measures nothing. It prepares a study on whichever worker is free, has all
others prepare the same (who comes to another provenance, for instance because its torch is another, is refused), leases out
the shards that are not committed, commits what comes back, and has one worker conclude.

One writer: where the atlas lies in a folder, only this process writes to it, so workers need no disk in common. Where it lies
at a URL, workers commit their shards themselves, and no number passes through here before the conclusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from headwise.atlas.encoding import pack, unpack
from headwise.core.errors import AtlasError, EngineError
from headwise.core.provenance import difference
from headwise.engines.crew import PREPARE, Crew, Round
from headwise.engines.engine import Job, Listener, Outcome, SetAsideError
from headwise.engines.pool import Call
from headwise.engines.ray.pool import RayPool
from headwise.engines.ray.worker import Parts
from headwise.engines.shards import Shard, ShardStore, cut

__all__ = ["RaySession"]

MEMORY = "memory:"  # a place inside this process, which no worker can reach
PACKAGES = ("headwise", "torch", "transformers", "numpy")  # whose versions may change a number
READINGS = 3  # times that shards are looked at before a disk is said to be failing


class RaySession:
    """What `build` talks to."""

    def __init__(self, crew: Crew, pool: RayPool) -> None:
        self._crew, self._pool = crew, pool
        self._prepare = Call(PREPARE)

    def prepare(self, study: str, needed: Mapping[str, xr.Dataset]) -> Job:
        """What the study will be, as the first worker that is free finds it."""
        sent = tuple((name, self._pool.put(pack(dataset))) for name, dataset in needed.items())
        self._prepare = Call(PREPARE, (study, sent))
        return self._one(study, "its preparation", self._prepare)

    def run(self, job: Job, store: ShardStore, listener: Listener) -> Outcome:
        """Measure what is not committed, commit it, conclude."""
        shards = cut(job.examples, job.shard_size)
        place = None if store.place.folder is not None or str(store.place).startswith(MEMORY) else str(store.place)
        for _ in range(READINGS):
            there = set(store.done(shards))
            self._measure(job, store, [shard for shard in shards if shard not in there], place, listener)
            lost, maps, files = self._conclude(job, store, shards, place)
            if not lost:
                return Outcome({name: unpack(content) for name, content in maps.items()}, files)
            for shard in lost:
                store.load(shard)  # deletes what is damaged, and says so
        raise AtlasError(
            f"Shards of {job.study} were written to {store.where} and could not be read back; the disk is failing, or "
            "something else changes that folder. Choose another folder with -o."
        )

    def _measure(
        self, job: Job, store: ShardStore, todo: Sequence[Shard], place: str | None, listener: Listener
    ) -> None:
        done = job.examples - sum(shard.stop - shard.start for shard in todo)
        listener.progress(job.study, done, job.examples)

        def finished(shard: Shard, content: bytes | None) -> None:
            nonlocal done
            if content is not None:
                store.put(shard, content)
            done += shard.stop - shard.start
            listener.progress(job.study, done, job.examples)

        book = self._crew.work(
            Round(
                job.study, todo, lambda shard: Call("measure", (shard, place)), examples_of, finished,
                prepare=self._prepare, agree=lambda other: _agree(job, other),
            )
        )  # fmt: skip
        if book.failures:
            failed = {examples_of(shard): causes for shard, causes in book.failures.items()}
            raise SetAsideError(job.study, failed, untried=len(todo) - len(book.done) - len(failed))

    def _conclude(self, job: Job, store: ShardStore, shards: Sequence[Shard], place: str | None) -> Any:
        """Shards that must be measured again; or none, and what came of the study."""
        if place is not None:
            return self._one(job.study, "its conclusion", Call("conclude", (Parts(tuple(shards), place=place),)), job)
        contents = {shard: store.content(shard) for shard in shards}
        lost = [shard for shard, content in contents.items() if content is None]
        if lost:
            return lost, {}, {}
        put = tuple(self._pool.put(content) for content in contents.values() if content is not None)
        return self._one(job.study, "its conclusion", Call("conclude", (Parts(tuple(shards), put),)), job)

    def _one(self, study: str, name: str, call: Call, job: Job | None = None) -> Any:
        """One call, on whichever worker is free; its answer."""
        answers: list[Any] = []
        book = self._crew.work(
            Round(
                study, [name], lambda _: call, lambda _: name, lambda _, answer: answers.append(answer),
                prepare=None if job is None else self._prepare,
                agree=lambda other: None if job is None else _agree(job, other),
            )
        )  # fmt: skip
        if book.failures:
            raise SetAsideError(study, book.failures)
        return answers[0]


def examples_of(shard: Shard) -> str:
    """For a reader.

    >>> examples_of(Shard(2, 20, 30))
    'examples 20 to 29'
    """
    return f"examples {shard.start} to {shard.stop - 1}"


def _agree(job: Job, other: Job) -> None:
    """Refuse a worker that would measure something else, or by other versions of what computes."""
    versions = [
        f"{name} {job.provenance.environment.get(name)} against {other.provenance.environment.get(name)}"
        for name in PACKAGES
        if job.provenance.environment.get(name) != other.provenance.environment.get(name)
    ]
    if job.provenance.key() != other.provenance.key():
        versions += difference(job.provenance, other.provenance)
    if versions or (job.examples, job.shard_size) != (other.examples, other.shard_size):
        raise EngineError(
            f"Two workers do not agree on {job.study} ({'; '.join(versions) or 'other examples'}), so their numbers must not "
            "be mixed; install the same packages on all nodes, and use one kind of device."
        )
