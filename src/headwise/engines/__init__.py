"""How work is run: cut into shards of examples, each committed when done, so that a restart goes on where it was.

In reading order: ``shards`` (what is done), ``engine`` (the contract of all engines), ``local`` (in this process);
``leases``, ``pool``, ``crew`` (several workers, whoever dies); ``ray`` (workers on a cluster).
"""

from headwise.engines.engine import Desk, Engine, Job, Listener, Order, Outcome, Session, SetAsideError, Threads
from headwise.engines.local import LocalEngine, run
from headwise.engines.ray import RayEngine
from headwise.engines.shards import Shard, ShardStore, cut, shards_of

__all__ = [
    "Desk",
    "Engine",
    "Job",
    "Listener",
    "LocalEngine",
    "Order",
    "Outcome",
    "RayEngine",
    "Session",
    "SetAsideError",
    "Shard",
    "ShardStore",
    "Threads",
    "cut",
    "run",
    "shards_of",
]
