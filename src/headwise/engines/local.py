"""Run shards one after another, in this process.

Steps, for each shard in order: if it is committed, read it; if not, measure it, commit it, and read it back. Results
are always what the committed files hold, so a run that was interrupted and one that was not give the same bits. An
interrupt (Ctrl-C, kill) costs the shard that was being measured and no other.

Cost: all results are held in memory at the end; one write and one read a shard. This module does not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import xarray as xr

from headwise.engines.shards import Shard, ShardStore
from headwise.errors import AtlasError

__all__ = ["run"]


def run(
    work: Callable[[Shard], xr.Dataset],
    shards: Sequence[Shard],
    store: ShardStore,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[xr.Dataset]:
    """The results of all shards, in order; ``progress(done, total)`` counts examples, after each shard."""
    total = sum(shard.stop - shard.start for shard in shards)
    done = 0
    results = []
    for shard in shards:
        result = store.load(shard)
        if result is None:
            store.commit(shard, work(shard))
            result = store.load(shard)
        if result is None:
            raise AtlasError(
                f"Shard {shard.index} was written to {store.folder} and could not be read back; the disk is failing, "
                "or something else changes that folder. Choose another folder with -o."
            )
        results.append(result)
        done += shard.stop - shard.start
        if progress is not None:
            progress(done, total)
    return results
