"""How studies are run: split into shards of examples, each committed when measured, so that a restart continues.

In reading order: ``shards`` (what is committed), ``engine`` (the contract of all engines), ``local`` (in this process);
``cluster`` (machines and how many workers fit), ``pool`` and ``scheduler`` (several workers, any of which may die); ``ray``
(workers on a Ray cluster). Names are loaded when first used; the package ray is imported when a run begins.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` loads them
    from headwise.engines.cluster import Cluster, Node
    from headwise.engines.engine import (
        Engine,
        EngineSession,
        Listener,
        ShardsFailedError,
        StudyJob,
        StudyResult,
        StudyWorker,
        ThreadCounts,
        WorkerSpec,
    )
    from headwise.engines.local import LocalEngine, run_shards
    from headwise.engines.ray import RayEngine
    from headwise.engines.shards import Shard, ShardStore, shard_prefix, split_shards

_MODULES = {
    "headwise.engines.cluster": ("Cluster", "Node"),
    "headwise.engines.engine": (
        "Engine", "EngineSession", "Listener", "ShardsFailedError", "StudyJob", "StudyResult", "StudyWorker",
        "ThreadCounts", "WorkerSpec",
    ),
    "headwise.engines.local": ("LocalEngine", "run_shards"),
    "headwise.engines.ray": ("RayEngine",),
    "headwise.engines.shards": ("Shard", "ShardStore", "shard_prefix", "split_shards"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Cluster", "Engine", "EngineSession", "Listener", "LocalEngine", "Node", "RayEngine", "Shard", "ShardStore",
    "ShardsFailedError", "StudyJob", "StudyResult", "StudyWorker", "ThreadCounts", "WorkerSpec", "run_shards",
    "shard_prefix", "split_shards",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"headwise.engines has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
