"""Run shards on the workers of a Ray cluster, on this machine or on many; extra ``[ray]``.

In reading order: ``library`` (the package ray, or the sentence that says how to get it), ``cluster`` (what there is, and
how many workers it has room for), ``connection`` (start Ray here or join one that runs; notice when it dies), ``worker``
(what runs on the cluster), ``pool`` (workers as `engines.crew` wants them), ``engine`` (`RayEngine`).

Nothing here is imported before it is asked for, and ray itself only when a run begins.
"""

from headwise.engines.ray.cluster import Cluster, Node
from headwise.engines.ray.engine import RayEngine

__all__ = ["Cluster", "Node", "RayEngine"]
