"""Does a build fit into memory, what makes it fit where it does not, and how many workers fit on a cluster?

    in memory    the process + all weights + the activations of the largest batch + the blocks of the reductions
    offloaded    the process + the resident weights + the largest module + activations + blocks
    from disk    (studies that read weights alone) the process + embeddings + the heads of one layer

Offloaded weights are loaded in every pass, which takes (bytes on disk) x (passes) / (disk bandwidth). The bandwidths of disk
and bus are assumed, not measured. Only a share of each memory is used, since other programs need some and allocators
do not return all of it.

On a cluster (`cluster_plan_of`):

    GPUs per worker   the fewest whose memory, filled to 90 %, holds the weights and the activations of a batch
    workers           node by node, since a worker runs on one node (`engines.cluster`)
    time              a study takes rounds of one shard per worker, so (rounds / shards) of one worker's time; then, once, the
                      fits after the passes. Loading the model and Ray's own work are left out (docs/scale.md)

The speed of one worker is the plan's, measured on this machine, scaled down where CPU workers have fewer threads. Without a
GPU here the speed of GPUs is unknown, and no time is given.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch

from headwise.core.errors import EngineError
from headwise.engines.cluster import Cluster
from headwise.kernels.blocked import BLOCK, BLOCK_ON_DEVICE
from headwise.model import ModelCard, choose_dtype
from headwise.studies.cost import StudyCost

PROCESS = 600e6  # bytes of Python with torch, transformers and xarray loaded
SHARE, SHARE_ON_DEVICE = 0.8, 0.9  # of a memory that may be filled
DISK, BUS = 1e9, 20e9  # bytes per second, assumed: a solid-state disk; CPU memory to GPU
GIB = 2**30


class MemoryNeeds(NamedTuple):
    """Bytes."""

    process: int
    weights: int
    largest: int  # weights of the largest module, which is loaded whole
    activations: int
    reductions: int

    @property
    def working_memory(self) -> int:
        """What is needed on the device in addition to the weights."""
        return self.activations + self.reductions


@dataclass(frozen=True)
class Offload:
    """Where the weights are, if they do not fit into one memory."""

    limits: dict[int | str, int]  # of the weights, by device
    on_disk: int  # bytes of the weights, as stored in the files
    passes: int
    seconds: float  # to load what is not on the device, for all passes

    @property
    def flags(self) -> str:
        """What `headwise build` is given."""
        return "--memory " + ",".join(f"{name}={_size(limit)}" for name, limit in self.limits.items())


def memory_needs(card: ModelCard, tokens: int, dtype: torch.dtype, device: torch.device, stats: int) -> MemoryNeeds:
    """Of a batch of so many tokens, with so many statistics per head."""
    text = card.config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * card.hidden_size
    inner = max(inner) if isinstance(inner, list | tuple) else inner
    width = 6 * card.hidden_size + 3 * inner + (card.heads + 2 * card.kv_heads) * card.head_dim
    rows = card.heads * (card.head_dim + card.kv_heads * card.head_dim // max(1, card.heads) + stats + 4)
    on_cpu = device.type == "cpu"
    own = [sum(p.numel() for p in module.parameters(recurse=False)) for module in card.skeleton.modules()]
    return MemoryNeeds(
        process=int(PROCESS) if on_cpu else 0,
        weights=card.bytes(dtype),
        largest=max(own) * dtype.itemsize,
        activations=int(tokens * width * dtype.itemsize),
        reductions=int(tokens * rows * 4 + 2 * (BLOCK if on_cpu else BLOCK_ON_DEVICE) * 4),
    )


def from_disk(card: ModelCard) -> dict[str, int]:
    """Parts of what a study of weights alone holds at a time; the ends are held as they are stored."""
    ends = card.vocabulary_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    embedded = sum(p.numel() for p in card.skeleton.parameters()) - ends
    block = embedded // card.layers
    heads = 2 * card.heads * card.value_dim * card.hidden_size
    stored = choose_dtype("auto", card.config, torch.device("cuda")).itemsize
    return {
        "Python and libraries": int(PROCESS),
        "ends and first block": ends * stored + block * (stored + 4),
        "heads of a layer": 2 * heads * 4,
        "scores of a layer's heads": 3 * 4 * 2048 * card.vocabulary_size,
    }


def offloaded(needs: MemoryNeeds, there: dict[int | str, int], passes: int, stored: float) -> Offload | None:
    """The limits that make it fit; None where even the rest does not. `stored`: bytes in files over bytes in memory."""
    gpus = [name for name in there if isinstance(name, int)]
    room: dict[int | str, int] = {
        gpu: int(SHARE_ON_DEVICE * there[gpu]) - (needs.working_memory + needs.largest if gpu == gpus[0] else 0)
        for gpu in gpus
    }
    if "cpu" in there:
        fixed = int(PROCESS) if gpus else needs.process + needs.working_memory
        room["cpu"] = int(SHARE * there["cpu"]) - fixed - (0 if gpus else needs.largest)
    if not room or min(room.values()) < 0:  # none where the system does not say what there is (Windows)
        return None
    limits: dict[int | str, int] = {}
    left = needs.weights
    for name, size in room.items():
        limits[name] = _rounded(size)
        left -= min(left, limits[name])
    on_cpu = min(needs.weights, limits.get("cpu", 0)) if gpus else 0
    on_disk = int(left * stored)
    return Offload(limits, on_disk, passes, passes * (on_disk / DISK + on_cpu / BUS))


def memory_there(device: torch.device) -> dict[int | str, int]:
    """Bytes of each memory that a build here can use: of the GPUs, if it runs there, and of this machine."""
    found: dict[int | str, int] = {}
    if device.type == "cuda":
        one = [device.index] if device.index is not None else range(torch.cuda.device_count())
        found |= {index: int(torch.cuda.get_device_properties(index).total_memory) for index in one}
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found["cpu"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return found


def _rounded(size: int) -> int:
    unit = GIB if size >= 4 * GIB else 2**20
    return size // unit * unit


def _size(size: int) -> str:
    """As `--memory` reads it.

    >>> _size(13 * 2**30), _size(500 * 2**20)
    ('13GiB', '500MiB')
    """
    return f"{size // GIB}GiB" if size % GIB == 0 else f"{math.floor(size / 2**20)}MiB"


@dataclass(frozen=True)
class ClusterPlan:
    """The workers of a plan."""

    nodes: tuple[str, ...]  # in words
    workers: int
    gpus: float  # per worker
    threads: int  # per worker
    memory: int  # bytes that a worker needs of its node, or of its GPUs together
    seconds: float | None  # all studies, with all workers; None: their speed is unknown
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
    """The workers that fit, or as many of them as requested.

    `seconds`: a study's time on one worker, None where unknown; `loads`: its cost.
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
    """GPUs per worker: 0 where the cluster has none, 1 where their memory is unknown."""
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
    max_gpus = max((node.gpus for node in cluster.nodes), default=0)
    if gpus > max_gpus:
        return (
            f"A worker needs {gpus:g} GPUs of one node, and the largest node has {max_gpus:g}; use a smaller dtype, or larger "
            "GPUs."
        )
    largest = max((node.memory for node in cluster.nodes), default=0)
    if memory > largest:
        return f"A worker needs {_gb(memory)}, and the largest node has {_gb(largest)}; use a smaller dtype or model."
    return f"A worker needs {cpus:g} CPUs of one node, and no node has so many; give --threads-per-worker."


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
