"""Run shards on the workers of a Ray cluster, on this machine or on many; extra ``[ray]``.

In reading order: ``connection`` (start Ray here or join one that runs, its nodes, and how its death is noticed), ``worker``
(the process on the cluster, and the pool of them), ``engine`` (`RayEngine`). The package ray is imported when a run begins.
"""

from headwise.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
