"""How work is run: cut into shards of examples, each committed when done, so that a restart goes on where it was."""

from headwise.engines.local import run
from headwise.engines.shards import Shard, ShardStore, cut

__all__ = ["Shard", "ShardStore", "cut", "run"]
