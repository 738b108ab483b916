"""What does a cluster have, and how many workers does it have room for?

A worker lies on one node: it cannot borrow a GPU or a CPU from another. So workers are counted node by node,

    min(CPUs / CPUs a worker, GPUs / GPUs a worker, memory / memory a worker)        over what is asked for

and added up; the sum of all CPUs over all nodes would count workers that nobody can start.

`here` tells of this machine without starting Ray, `connected` asks the Ray that this process has joined. This module does
not know what a worker does. Ray does not know how much memory a GPU has: `memory_of_gpus` asks a GPU of every node.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.engines.ray.library import the_library

__all__ = ["Cluster", "Node", "connected", "here", "memory_of_gpus"]

GPUS = Path("/proc/driver/nvidia/gpus")  # one folder a GPU, wherever NVIDIA's driver is
MEMORY = Path("/proc/meminfo")  # on Linux
KIND = "accelerator_type:"  # how Ray writes the kind of a node's GPUs among its resources


@dataclass(frozen=True)
class Node:
    """One machine."""

    name: str
    cpus: float
    gpus: float = 0
    memory: int = 0  # bytes that Ray hands out; 0 where it is not known
    gpu_kind: str = ""
    gpu_memory: int | None = None  # bytes of one GPU, where somebody has asked it
    id: str = ""  # Ray's own name for it

    def workers(self, *, cpus: float = 1, gpus: float = 0, memory: int = 0) -> int:
        """How many workers of this size fit.

        >>> Node("a", cpus=8, gpus=4).workers(cpus=1, gpus=2), Node("a", cpus=8).workers(cpus=3)
        (2, 2)
        """
        asked = ((self.cpus, cpus), (self.gpus, gpus), (self.memory or float("inf"), memory))
        rooms = [there / wanted for there, wanted in asked if wanted > 0]
        return int(min(rooms, default=0) + 1e-9)

    def describe(self) -> str:
        """For a reader.

        >>> Node("a", cpus=8, gpus=2, memory=64_000_000_000, gpu_kind="H100").describe()
        'a: 8 CPUs, 2 H100 GPUs, 64 GB'
        """
        gpus = [f"{self.gpus:g} {self.gpu_kind} GPU{'s' * (self.gpus != 1)}".replace("  ", " ")] if self.gpus else []
        memory = [f"{self.memory / 1e9:.0f} GB"] if self.memory else []
        return f"{self.name}: " + ", ".join([f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}", *gpus, *memory])


@dataclass(frozen=True)
class Cluster:
    """Machines that work together."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> float:
        """Of all nodes."""
        return sum(node.cpus for node in self.nodes)

    @property
    def gpus(self) -> float:
        """Of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def memory(self) -> int:
        """Of all nodes, in bytes."""
        return sum(node.memory for node in self.nodes)

    def workers(self, *, cpus: float = 1, gpus: float = 0, memory: int = 0) -> int:
        """How many workers of this size fit, each on one node.

        >>> Cluster((Node("a", cpus=3), Node("b", cpus=3))).workers(cpus=2)
        2
        """
        return sum(node.workers(cpus=cpus, gpus=gpus, memory=memory) for node in self.nodes)

    def describe(self) -> str:
        """For a reader, a node a line."""
        return "\n".join(node.describe() for node in self.nodes) or "no node"


def here() -> Cluster:
    """This machine, as Ray would find it, without starting Ray."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cpus = os.cpu_count() or 1
    return Cluster((Node(socket.gethostname(), cpus, _gpus_here(), _memory_here()),))


def _memory_here() -> int:
    """What programs can still have, the cache of files among it, which gives way; 0 where the system does not say."""
    try:
        told = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        return int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _gpus_here() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
    return there if visible is None else min(there, len([one for one in visible.split(",") if one not in ("", "-1")]))


def connected() -> Cluster:
    """The nodes that are alive in the Ray this process has joined."""
    return Cluster(tuple(_nodes(the_library().nodes())))


def _nodes(rows: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Nodes from what Ray says of them; dead ones left out."""
    found = []
    for row in rows:
        if not row.get("Alive"):
            continue
        has = row.get("Resources", {})
        kind = next((name.removeprefix(KIND) for name in has if name.startswith(KIND)), "")
        name = row.get("NodeManagerHostname") or row.get("NodeName") or row.get("NodeID", "")
        size = (has.get("CPU", 0), has.get("GPU", 0), int(has.get("memory", 0)))
        found.append(Node(str(name), *size, gpu_kind=kind, id=str(row.get("NodeID", ""))))
    return sorted(found, key=lambda node: node.name)


def memory_of_gpus(cluster: Cluster, seconds: float = 60) -> Cluster:
    """The same with the memory of a GPU of every node; a short task on each. None where all GPUs of a node are taken."""
    ray = the_library()
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    ask = ray.remote(num_gpus=1, num_cpus=0, max_calls=1)(_gpu_memory)
    asked = {}
    for node in cluster.nodes:
        if node.gpus >= 1:
            there = strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
            asked[ask.options(scheduling_strategy=there).remote()] = node.id
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=seconds) if asked else ([], [])
    for task in silent:
        ray.cancel(task)
    told = {asked[task]: ray.get(task) for task in answered}
    return replace(cluster, nodes=tuple(replace(node, gpu_memory=told.get(node.id)) for node in cluster.nodes))


def _gpu_memory() -> int:
    """On a node: the bytes of the GPU that was lent."""
    torch = importlib.import_module("torch")
    return int(torch.cuda.get_device_properties(0).total_memory)
