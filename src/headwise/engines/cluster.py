"""Which machines are there, and how many workers fit on them?

A worker runs on one node: it cannot borrow a GPU or a CPU from another. So workers are counted per node,

    min(CPUs / CPUs per worker, GPUs / GPUs per worker, memory / memory per worker)        over what a worker asks for

and added up. `local_cluster` describes this machine without Ray; `engines.ray.connection` asks a Ray that runs.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from headwise.core.memory import available_memory

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")  # one folder per GPU


@dataclass(frozen=True)
class Node:
    """One machine."""

    name: str
    cpus: float
    gpus: float = 0
    memory: int = 0  # bytes that Ray hands out; 0 if unknown
    gpu_kind: str = ""
    gpu_memory: int | None = None  # bytes per GPU, if known
    id: str = ""  # Ray's identifier

    def workers(self, *, cpus: float = 1, gpus: float = 0, memory: int = 0) -> int:
        """How many workers of this size fit.

        >>> Node("a", cpus=8, gpus=4).workers(cpus=1, gpus=2), Node("a", cpus=8).workers(cpus=3)
        (2, 2)
        """
        resources = ((self.cpus, cpus), (self.gpus, gpus), (self.memory or float("inf"), memory))
        fits = [available / needed for available, needed in resources if needed > 0]
        return int(min(fits, default=0) + 1e-9)

    def describe(self) -> str:
        """In words.

        >>> Node("a", cpus=8, gpus=2, memory=64_000_000_000, gpu_kind="H100").describe()
        'a: 8 CPUs, 2 H100 GPUs, 64 GB'
        """
        gpus = [f"{self.gpus:g} {self.gpu_kind} GPU{'s' * (self.gpus != 1)}".replace("  ", " ")] if self.gpus else []
        memory = [f"{self.memory / 1e9:.0f} GB"] if self.memory else []
        return f"{self.name}: " + ", ".join([f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}", *gpus, *memory])


@dataclass(frozen=True)
class Cluster:
    """The machines of a build."""

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
        """In words, one line per node."""
        return "\n".join(node.describe() for node in self.nodes) or "no node"


def local_cluster() -> Cluster:
    """This machine, as Ray would find it, without starting Ray."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cpus = os.cpu_count() or 1
    gpus = len(list(NVIDIA_GPUS.iterdir())) if NVIDIA_GPUS.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = min(gpus, len([one for one in visible.split(",") if one not in ("", "-1")]))
    return Cluster((Node(socket.gethostname(), cpus, gpus, available_memory()),))
