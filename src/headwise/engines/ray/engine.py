"""`RayEngine`: the same build on the workers of a Ray cluster.

    hw.build("Qwen/Qwen2.5-0.5B", engine="ray")                          # a Ray of our own, on this machine
    hw.build(..., engine=hw.RayEngine(address="auto", workers=8))        # on the cluster this machine belongs to

The driver (this process) holds no model and measures nothing. It prepares a study on one worker, has all others prepare the
same (a worker that arrives at another provenance, for instance with another torch, is refused), schedules the shards that are
not committed, commits the results, and has one worker finalize. If the atlas is in a folder, only the driver writes to it, so
workers need no shared disk. At a URL the workers commit their shards themselves.

Workers: as many as requested, else as many as fit. Each asks for `gpus_per_worker` GPUs, by default one if the cluster has any
(and the model was not requested on the CPU), and as many CPUs as it uses threads. The number of threads changes the order of
summation and so the last digits; a worker uses as many as this process, unless `threads_per_worker` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import xarray as xr

from headwise.atlas.packing import pack, unpack
from headwise.core.errors import AtlasError, EngineError
from headwise.core.provenance import difference
from headwise.engines.cluster import Cluster
from headwise.engines.engine import Listener, ShardsFailedError, StudyJob, StudyResult, WorkerSpec
from headwise.engines.pool import Call
from headwise.engines.ray.connection import connect, connected_cluster
from headwise.engines.ray.worker import RayPool, ShardSources
from headwise.engines.scheduler import DEFAULT_TIMEOUTS, PREPARE, Scheduler, TaskLedger, TaskList, Timeouts
from headwise.engines.shards import Shard, ShardStore, split_shards

__all__ = ["RayEngine", "RaySession", "WorkerResources"]

IN_MEMORY = "memory:"  # a location inside this process, which no worker can reach
PACKAGES = ("headwise", "torch", "transformers", "numpy")  # whose versions may change a number
MAX_READS = 3  # of the shards, before the disk is reported as failing


class WorkerResources(NamedTuple):
    """What each worker asks of its node, and how many workers there are."""

    cpus: float
    gpus: float
    workers: int
    room: int  # how many fit now


@dataclass(frozen=True)
class RayEngine:
    """Workers on a Ray cluster.

    Args:
        address: of a Ray that runs (``auto``, ``HOST:6379``, ``ray://HOST:10001``); None starts one on this machine, or joins
            the one that RAY_ADDRESS names.
        workers: the maximal number; None is as many as fit.
        gpus_per_worker: a model too large for one GPU is spread over several (``device_map``); a fraction such as 0.5 lets two
            workers share one. None is one if there are any.
        threads_per_worker: None is as many as this process has.
        tries: how often a shard is tried before it is quarantined.
        timeouts: how long a worker may take before it is killed.

    Examples:
        >>> from headwise.engines import Node
        >>> RayEngine(workers=2).resources_for(Cluster((Node("a", cpus=8),)), threads=1, on_cpu=False)
        WorkerResources(cpus=1, gpus=0, workers=2, room=8)
        >>> two = Cluster((Node("a", cpus=64, gpus=8), Node("b", cpus=64, gpus=8)))
        >>> RayEngine().resources_for(two, threads=32, on_cpu=False)
        WorkerResources(cpus=1, gpus=1, workers=16, room=16)
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    threads_per_worker: int | None = None
    tries: int = 3
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    def __post_init__(self) -> None:
        for name, minimum in {"workers": 1, "threads_per_worker": 1, "gpus_per_worker": 0, "tries": 1}.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise EngineError(
                    f"{name}={value} makes no sense for an engine; give at least {minimum}, or leave it out."
                )
        gpus = self.gpus_per_worker
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise EngineError(
                f"A worker can have a part of one GPU, or whole ones, and not {gpus:g}; give 0.5, 1, 2, ..."
            )

    @contextmanager
    def open(self, spec: WorkerSpec, listener: Listener) -> Iterator[RaySession]:
        """Start or join Ray, and run workers during the block."""
        spec.for_workers(self.gpus_per_worker, self.threads_per_worker)  # refuse before Ray is started
        listener.event("starting Ray" if self.address is None else f"joining Ray at {self.address}")
        with connect(self.address) as connection:
            each = self.resources_for(connected_cluster(), threads=spec.threads.torch, on_cpu=spec.on_cpu)
            if each.room < each.workers:
                listener.event(
                    f"there is room for {each.room} of {each.workers} workers; the others join when there is more"
                )
            sent = spec.for_workers(each.gpus, self.threads_per_worker)
            pool = RayPool(connection, sent, cpus=each.cpus, gpus=each.gpus)
            scheduler = Scheduler(pool, each.workers, listener, tries=self.tries, timeouts=self.timeouts)
            yield RaySession(scheduler, pool)

    def resources_for(self, cluster: Cluster, *, threads: int, on_cpu: bool) -> WorkerResources:
        """What each worker asks for on this cluster, and how many there are; EngineError if not even one fits.

        `threads`: how many a worker uses by default.
        """
        gpus = self.gpus_per_worker
        if gpus is None:
            gpus = 0 if on_cpu or cluster.gpus < 1 else 1
        cpus = self.threads_per_worker or (1 if gpus else threads)
        room = cluster.workers(cpus=cpus, gpus=gpus)
        if not room:
            wanted = f"{gpus:g} GPUs and {cpus:g} CPUs" if gpus else f"{cpus:g} CPUs"
            raise EngineError(
                f"A worker asks for {wanted}, and no node has them ({'; '.join(cluster.describe().splitlines())}); give fewer "
                "with --gpus-per-worker or --threads-per-worker."
            )
        return WorkerResources(cpus, gpus, self.workers or room, room)


class RaySession:
    """Studies one after another, the shards of each distributed over the workers."""

    def __init__(self, scheduler: Scheduler, pool: RayPool) -> None:
        self._scheduler, self._pool = scheduler, pool
        self._prepare = Call(PREPARE)

    def prepare(self, studies: Sequence[str], inputs: Mapping[str, xr.Dataset]) -> StudyJob:
        """Make a study concrete, or several, on the first worker that is free."""
        references = tuple((name, self._pool.put(pack(dataset))) for name, dataset in inputs.items())
        self._prepare = Call(PREPARE, (tuple(studies), references))
        return self._call_one("+".join(studies), "its preparation", self._prepare)

    def run(self, job: StudyJob, store: ShardStore, listener: Listener) -> StudyResult:
        """Measure and commit the missing shards, then finalize."""
        shards = split_shards(job.examples, job.shard_size)
        at_url = store.location.folder is None and not str(store.location).startswith(IN_MEMORY)
        url = str(store.location) if at_url else None
        for _ in range(MAX_READS):
            committed = set(store.committed(shards))
            self._measure(job, store, [shard for shard in shards if shard not in committed], url, listener)
            lost, maps, artifacts = self._finalize(job, store, shards, url)
            if not lost:
                return StudyResult({name: unpack(content) for name, content in maps.items()}, artifacts)
            for shard in lost:
                store.load(shard)  # deletes a corrupt one, with a warning
        raise AtlasError(
            f"Shards of {job.study} were written to {store.where} and could not be read back; the disk is failing, or "
            "something else changes that folder. Choose another folder with -o."
        )

    def _measure(
        self, job: StudyJob, store: ShardStore, missing: Sequence[Shard], url: str | None, listener: Listener
    ) -> None:
        done = job.examples - sum(shard.stop - shard.start for shard in missing)
        listener.progress(job.study, done, job.examples)

        def finished(shard: Shard, content: bytes | None) -> None:
            nonlocal done
            if content is not None:
                store.commit_packed(shard, content)
            done += shard.stop - shard.start
            listener.progress(job.study, done, job.examples)

        ledger: TaskLedger[Shard] = self._scheduler.work(
            TaskList(
                job.study, missing, lambda shard: Call("measure", (shard, url)), lambda shard: shard.label, finished,
                prepare=self._prepare, verify=lambda other: verify_job(job, other),
            )
        )  # fmt: skip
        if ledger.failures:
            failed = {shard.label: causes for shard, causes in ledger.failures.items()}
            raise ShardsFailedError(job.study, failed, untried=len(missing) - len(ledger.done) - len(failed))

    def _finalize(self, job: StudyJob, store: ShardStore, shards: Sequence[Shard], url: str | None) -> Any:
        """The shards that must be measured again; if there are none, the study's maps and artifacts."""
        sources = ShardSources(tuple(shards), url=url)
        if url is None:
            contents = {shard: store.load_packed(shard) for shard in shards}
            lost = [shard for shard, content in contents.items() if content is None]
            if lost:
                return lost, {}, {}
            sources = ShardSources(
                tuple(shards), tuple(self._pool.put(one) for one in contents.values() if one is not None)
            )
        return self._call_one(job.study, "finalizing", Call("finalize", (sources,)), job)

    def _call_one(self, study: str, label: str, call: Call, job: StudyJob | None = None) -> Any:
        """One call, on the first worker that is free; its answer."""
        answers: list[Any] = []
        ledger = self._scheduler.work(
            TaskList(
                study, [label], lambda _: call, lambda _: label, lambda _, answer: answers.append(answer),
                prepare=None if job is None else self._prepare,
                verify=lambda other: None if job is None else verify_job(job, other),
            )
        )  # fmt: skip
        if ledger.failures:
            raise ShardsFailedError(study, ledger.failures)
        return answers[0]


def verify_job(job: StudyJob, other: StudyJob) -> None:
    """EngineError if a worker would measure something else, or with other versions of the libraries."""
    differ = [
        f"{name} {job.provenance.environment.get(name)} against {other.provenance.environment.get(name)}"
        for name in PACKAGES
        if job.provenance.environment.get(name) != other.provenance.environment.get(name)
    ]
    if job.provenance.key() != other.provenance.key():
        differ += difference(job.provenance, other.provenance)
    if differ or (job.examples, job.shard_size) != (other.examples, other.shard_size):
        raise EngineError(
            f"Two workers do not agree on {job.study} ({'; '.join(differ) or 'other examples'}), so their numbers must not "
            "be mixed; install the same packages on all nodes, and use one kind of device."
        )
