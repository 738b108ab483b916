"""What a cluster makes of a plan: how many workers it has room for, what each needs, and how long they take together.

    GPUs a worker   the fewest whose memory, filled to 90 %, holds the weights and the activations of a batch
    workers         node by node, since a worker lies on one node (`engines.ray.cluster`)
    time            a study is done in rounds of one shard per worker, so (rounds / shards) of the time of one worker; then what
                    is fitted after the passes, once. Loading the model and Ray's own work are left out (docs/scale.md)

The speed of one worker is the plan's own, which is measured on this machine: a share of it, where workers on CPUs have fewer
threads. How fast GPUs are is not known where this machine has none; then time is left out.

This module does not know Ray.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headwise.core.errors import EngineError
from headwise.engines.cluster import Cluster
from headwise.studies.cost import StudyCost
from headwise.studies.memory import PROCESS, SHARE_ON_DEVICE, MemoryNeeds

__all__ = ["ClusterPlan", "cluster_plan_of"]


@dataclass(frozen=True)
class ClusterPlan:
    """The workers of a plan."""

    nodes: tuple[str, ...]  # in words
    workers: int
    gpus: float  # a worker
    threads: int  # a worker
    memory: int  # bytes a worker needs of its node, or of its GPUs together
    seconds: float | None  # all studies, with all workers; None: it is not known how fast they are
    why_not: str = ""  # where no worker fits

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def verdict(self) -> str:
        """In a sentence."""
        if not self.workers:
            return self.why_not
        each = f"{self.gpus:g} GPU{'s' * (self.gpus != 1)} each" if self.gpus else f"{self.threads} threads each"
        return f"{self.workers:,} worker{'s' * (self.workers != 1)} fit{'s' * (self.workers == 1)}, {each}."


def cluster_plan_of(
    cluster: Cluster,
    needs: MemoryNeeds,
    loads: Mapping[str, StudyCost],
    seconds: Mapping[str, float | None],
    *,
    workers: int | None = None,
    gpus: float | None = None,
    threads: int | None = None,
) -> ClusterPlan:
    """The workers that fit, or as many of them as were asked for.

    `seconds`: a study's time on one worker, None where that is not known; `loads`: what it asks for.
    """
    each = gpus if gpus is not None else _gpus_needed(cluster, needs)
    here = torch.get_num_threads()
    own = threads or (1 if each else here)
    held = PROCESS if each else needs.process + needs.weights + needs.working_memory
    fit = cluster.workers(cpus=own, gpus=each, memory=int(held))
    why = "" if fit else _why_not(cluster, each, own, int(held))
    if fit and gpus and (short := _short(cluster, needs, gpus)):
        fit, why = 0, short
    count = fit if workers is None else min(fit, workers)
    slower = 1.0 if each else max(1.0, here / own)
    known = {name: time for name, time in seconds.items() if time is not None}
    together = sum(_shared(loads[name], time * slower, count) for name, time in known.items()) if count else 0.0
    return ClusterPlan(
        nodes=tuple(node.describe() for node in cluster.nodes),
        workers=count,
        gpus=each,
        threads=own,
        memory=needs.weights + needs.working_memory if each else int(held),
        seconds=together if count and len(known) == len(seconds) else None,
        why_not=why,
    )


def _shared(load: StudyCost, seconds: float, workers: int) -> float:
    """The time of a study whose shards are shared among workers; what is fitted is not shared."""
    rounds = math.ceil(load.shards / workers)
    return max(0.0, seconds - load.fitting) * rounds / load.shards + load.fitting


def _gpus_needed(cluster: Cluster, needs: MemoryNeeds) -> float:
    """0 where the cluster has none, or none of known memory that it must be reckoned with."""
    known = [node.gpu_memory for node in cluster.nodes if node.gpus and node.gpu_memory]
    if not known:
        return 1.0 if cluster.gpus else 0.0
    return float(math.ceil((needs.weights + needs.working_memory) / (SHARE_ON_DEVICE * min(known))))


def _short(cluster: Cluster, needs: MemoryNeeds, gpus: float) -> str:
    """Why so many GPUs per worker are too few; empty where they are enough, or their memory is not known."""
    if gpus < 0:
        raise EngineError(f"A worker cannot have {gpus:g} GPUs; give --gpus-per-worker 1, 2, ...")
    needed = _gpus_needed(cluster, needs)
    known = any(node.gpu_memory for node in cluster.nodes)
    if not known or gpus >= needed:
        return ""
    return (
        f"{gpus:g} GPU{'s' * (gpus != 1)} cannot hold the {_gb(needs.weights + needs.working_memory)} that a worker needs; "
        f"give --gpus-per-worker {needed:g}."
    )


def _why_not(cluster: Cluster, gpus: float, cpus: float, memory: int) -> str:
    most = max((node.gpus for node in cluster.nodes), default=0)
    if gpus > most:
        return (
            f"A worker needs {gpus:g} GPUs of one node, and the largest node has {most:g}; use a smaller dtype, or larger "
            "GPUs."
        )
    largest = max((node.memory for node in cluster.nodes), default=0)
    if memory > largest:
        return f"A worker needs {_gb(memory)}, and the largest node has {_gb(largest)}; use a smaller dtype or model."
    return f"A worker needs {cpus:g} CPUs of one node, and no node has so many; give --threads-per-worker."


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
