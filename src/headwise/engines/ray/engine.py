"""`RayEngine`: the same build on the workers of a Ray cluster.

    hw.build("Qwen/Qwen2.5-0.5B", engine="ray")                          # a Ray of our own, on this machine
    hw.build(..., engine=hw.RayEngine(address="auto", workers=8))        # on the cluster this machine belongs to

How many workers: as many as were asked for; else as many as there is room for. What one asks for: `gpus_per_worker` GPUs, by
default one where the cluster has any (and the model was not asked for on the CPU), and as many CPUs as it computes with.

Threads: sums come out in another order with another number of threads, and so may their last digits. A worker computes with
as many as this process would, so that its bits are the same; `threads_per_worker` says otherwise.

This module does not know what is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from headwise.core.errors import EngineError
from headwise.engines.crew import Crew
from headwise.engines.engine import Listener, Order
from headwise.engines.leases import USUAL, Terms
from headwise.engines.ray.cluster import Cluster, connected
from headwise.engines.ray.connection import connection
from headwise.engines.ray.pool import RayPool
from headwise.engines.ray.session import RaySession

__all__ = ["RayEngine", "Size"]


class Size(NamedTuple):
    """What a worker asks of its node, and how many there are to be."""

    cpus: float
    gpus: float
    workers: int
    room: int  # for how many there is room now


@dataclass(frozen=True)
class RayEngine:
    """Workers on a Ray cluster.

    Args:
        address: of a Ray that runs (``auto``, ``HOST:6379``, ``ray://HOST:10001``); None starts one on this machine, or joins
            the one that RAY_ADDRESS names.
        workers: at most so many; None is as many as there is room for.
        gpus_per_worker: GPUs that a worker asks for. A model too large for one is spread over several (``device_map``); a
            fraction such as 0.5 lets two share one. None is one where there are any.
        threads_per_worker: how many threads a worker computes with; None is as many as this process has.
        tries: how often a shard is tried before it is set aside.
        terms: how long a worker may take before it is taken for stuck.

    Examples:
        >>> from headwise.engines.ray import Node
        >>> RayEngine(workers=2).size_for(Cluster((Node("a", cpus=8),)), threads=1, on_cpu=False)
        Size(cpus=1, gpus=0, workers=2, room=8)
        >>> RayEngine().size_for(Cluster((Node("a", cpus=64, gpus=8), Node("b", cpus=64, gpus=8))), threads=32, on_cpu=False)
        Size(cpus=1, gpus=1, workers=16, room=16)
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    threads_per_worker: int | None = None
    tries: int = 3
    terms: Terms = USUAL

    def __post_init__(self) -> None:
        for name, least in {"workers": 1, "threads_per_worker": 1, "gpus_per_worker": 0, "tries": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise EngineError(
                    f"{name}={value} makes no sense for an engine; give at least {least}, or leave it out."
                )
        gpus = self.gpus_per_worker
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise EngineError(
                f"A worker can have a part of one GPU, or whole ones, and not {gpus:g}; give 0.5, 1, 2, ..."
            )

    @contextmanager
    def open(self, order: Order, listener: Listener) -> Iterator[RaySession]:
        """Start or join Ray, and have workers there for the length of the block."""
        order.for_workers(
            self.gpus_per_worker, self.threads_per_worker
        )  # what is refused is refused before Ray is started
        listener.event("starting Ray" if self.address is None else f"joining Ray at {self.address}")
        with connection(self.address) as joined:
            size = self.size_for(connected(), threads=order.threads.torch, on_cpu=order.on_cpu)
            if size.room < size.workers:
                listener.event(
                    f"there is room for {size.room} of {size.workers} workers; the others join when there is more"
                )
            sent = order.for_workers(size.gpus, self.threads_per_worker)
            pool = RayPool(joined, sent, cpus=size.cpus, gpus=size.gpus)
            yield RaySession(Crew(pool, size.workers, listener, tries=self.tries, terms=self.terms), pool)

    def size_for(self, cluster: Cluster, *, threads: int, on_cpu: bool) -> Size:
        """What a worker asks for on this cluster, and how many there are; refused where there is no room for one.

        `threads`: how many a worker computes with where nothing else was said.
        """
        gpus = self.gpus_per_worker
        if gpus is None:
            gpus = 0 if on_cpu or cluster.gpus < 1 else 1
        cpus = self.threads_per_worker or (1 if gpus else threads)
        room = cluster.workers(cpus=cpus, gpus=gpus)
        if not room:
            asked = f"{gpus:g} GPUs and {cpus:g} CPUs" if gpus else f"{cpus:g} CPUs"
            raise EngineError(
                f"A worker asks for {asked}, and no node has them ({'; '.join(cluster.describe().splitlines())}); give fewer "
                "with --gpus-per-worker or --threads-per-worker."
            )
        return Size(cpus, gpus, self.workers or room, room)
