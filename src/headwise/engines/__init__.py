"""How studies are run: split into shards of examples, each committed when measured, so that a restart continues.

In reading order: ``shards`` (what is committed), ``engine`` (the contract of all engines, and the local one);
``cluster`` (machines and how many workers fit), ``pool`` and ``scheduler`` (several workers, any of which may die); ``ray``
(workers on a Ray cluster). Names are loaded when first used; the package ray is imported when a run begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.lazy import lazy_exports

if TYPE_CHECKING:  # for editors, type checkers and the reference; at run time `__getattr__` loads them
    from headwise.engines.cluster import Cluster, Node
    from headwise.engines.engine import (
        Engine,
        EngineSession,
        Listener,
        LocalEngine,
        ShardsFailedError,
        StudyJob,
        StudyResult,
        StudyWorker,
        ThreadCounts,
        WorkerSpec,
        run_shards,
    )
    from headwise.engines.ray import RayEngine
    from headwise.engines.shards import Shard, ShardStore, shard_prefix, split_shards

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".cluster": "Cluster Node",
        ".engine": "Engine EngineSession Listener LocalEngine ShardsFailedError StudyJob StudyResult StudyWorker ThreadCounts "
        "WorkerSpec run_shards",
        ".ray": "RayEngine",
        ".shards": "Shard ShardStore shard_prefix split_shards",
    },
)

__all__ = [
    "Cluster", "Engine", "EngineSession", "Listener", "LocalEngine", "Node", "RayEngine", "Shard", "ShardStore",
    "ShardsFailedError", "StudyJob", "StudyResult", "StudyWorker", "ThreadCounts", "WorkerSpec", "run_shards",
    "shard_prefix", "split_shards",
]  # fmt: skip
