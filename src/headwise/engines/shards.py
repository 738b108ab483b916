"""What is already done? A measurement is cut into shards of examples; each is one file, there whole or not at all.

The files of a run lie in ``ATLAS/.shards/STUDY-KEY/``, where KEY is the digest of its provenance: another model, other
data or other parameters have another folder and never meet. ``plan.json``, written first, holds what the run is and
how it was cut; a folder whose plan is another is refused. Plain xarray does not see ``.shards``: the atlas does not
list it.

    .shards/profile-5e0c.../plan.json  00000.zarr.zip  00001.zarr.zip  ...

Cost: one flushed file a shard. This module does not know how a shard is measured, nor in which order.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas.disk import explained, replace_file
from headwise.atlas.provenance import Provenance
from headwise.atlas.store import read_file, write_file
from headwise.errors import AtlasError

__all__ = ["Shard", "ShardStore", "cut"]

_log = logging.getLogger(__name__)
_PLAN = "plan.json"


@dataclass(frozen=True)
class Shard:
    """Examples ``start`` to ``stop - 1`` of a run."""

    index: int
    start: int
    stop: int


def cut(examples: int, size: int) -> list[Shard]:
    """Shards of ``size`` examples, the last one with what is left.

    >>> cut(5, 2)
    [Shard(index=0, start=0, stop=2), Shard(index=1, start=2, stop=4), Shard(index=2, start=4, stop=5)]
    """
    if size < 1:
        raise ValueError(f"a shard needs at least one example, not {size}")
    return [Shard(i, start, min(start + size, examples)) for i, start in enumerate(range(0, examples, size))]


class ShardStore:
    """The committed shards of one run, cut into shards of ``size`` out of ``examples``."""

    def __init__(self, atlas: str | os.PathLike[str], provenance: Provenance, *, examples: int, size: int) -> None:
        self.folder = Path(atlas) / ".shards" / f"{provenance.study}-{provenance.key()}"
        self._plan: dict[str, Any] = {"identity": provenance.identity(), "examples": examples, "size": size}
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._settle()

    def _settle(self) -> None:
        """Agree with the plan that is there, or write ours where none (or a broken one, with its shards gone) is."""
        path = self.folder / _PLAN
        try:
            found = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            for left in self.folder.glob("*.zarr.zip"):
                left.unlink()
            replace_file(path, json.dumps(self._plan).encode())
            return
        if found != self._plan:
            named = [f"{name} {found.get(name)} against {self._plan[name]}" for name in ("examples", "size")]
            raise AtlasError(
                f"{self.folder} holds the shards of a run that was cut differently ({', '.join(named)}); run with the "
                "same settings to continue it, or delete that folder to start anew."
            )

    def _file(self, shard: Shard) -> Path:
        return self.folder / f"{shard.index:05d}.zarr.zip"

    def done(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that are committed."""
        return [shard for shard in shards if self._file(shard).exists()]

    def commit(self, shard: Shard, dataset: xr.Dataset) -> None:
        """Keep a shard's result, whole or not at all."""
        write_file(self._file(shard), dataset)

    def load(self, shard: Shard) -> xr.Dataset | None:
        """A committed result; None where there is none. A damaged file is deleted: its shard is not done."""
        path = self._file(shard)
        if not path.exists():
            return None
        try:
            return read_file(path)
        except AtlasError as cause:
            _log.warning("Shard %d is measured again, because its file was damaged. (%s)", shard.index, cause)
            path.unlink(missing_ok=True)
            return None

    def clear(self) -> None:
        """Delete the run's shards: its result is in the atlas."""
        shutil.rmtree(self.folder, ignore_errors=True)
