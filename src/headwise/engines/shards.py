"""What is already done? A measurement is cut into shards of examples; each is one file, there whole or not at all.

The files of a run lie in ``ATLAS/.shards/STUDY-KEY/``, where KEY is the digest of its provenance: another model, other
data or other parameters have another folder and never meet. ``plan.json``, written first, holds what the run is and
how it was cut; a folder whose plan is another is refused. Every shard says itself which examples of which run it holds
(the comment of its zip file), so a plan that was lost or damaged is written anew and costs nothing, and a file in the place
of another is not taken for it. Plain xarray does not see ``.shards``: the atlas does not list it.

    .shards/profile-5e0c.../plan.json  00000.zarr.zip  00001.zarr.zip  ...

Cost: one flushed file a shard. This module does not know how a shard is measured, nor in which order.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas.encoding import CorruptionError, pack, unpack
from headwise.atlas.storage import Location, open_location
from headwise.core.errors import AtlasError
from headwise.core.provenance import Provenance

__all__ = ["Shard", "ShardStore", "cut", "shards_of"]

_log = logging.getLogger(__name__)
_PLAN, _SUFFIX = "plan.json", ".zarr.zip"
_CUT = ("examples", "size")


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


def shards_of(provenance: Provenance) -> str:
    """Where in an atlas the shards of a run lie."""
    return f".shards/{provenance.study}-{provenance.key()}"


class ShardStore:
    """The committed shards of one run, cut into shards of ``size`` out of ``examples``."""

    def __init__(
        self, atlas: str | os.PathLike[str] | Location, provenance: Provenance, *, examples: int, size: int
    ) -> None:
        self.place = open_location(atlas)
        self.prefix = shards_of(provenance)
        self._plan: dict[str, Any] = {"identity": provenance.identity(), "examples": examples, "size": size}
        self._settle()

    @property
    def where(self) -> str:
        """Where the shards lie, as a user would write it."""
        return f"{self.place}/{self.prefix}"

    @property
    def folder(self) -> Path:
        """The folder of the shards; only a local atlas has one."""
        if self.place.folder is None:
            raise AtlasError(f"{self.where} is not a folder; ask the place for its keys")
        return self.place.folder / self.prefix

    def _settle(self) -> None:
        """Agree with the plan that is there; write ours where none is, or a damaged one."""
        found = self._found()
        while found is None:
            self.place.create(f"{self.prefix}/{_PLAN}", json.dumps(self._plan).encode())
            found = self._found()
        named = [f"{name} {found.get(name)} against {self._plan[name]}" for name in _CUT]
        if any(found.get(name) != self._plan[name] for name in _CUT):
            raise AtlasError(
                f"{self.where} holds the shards of a run that was cut differently ({', '.join(named)}); run with the "
                "same settings to continue it, or delete that folder to start anew."
            )
        if found != self._plan:  # the folder's name is a digest of the identity, so it is the file that is wrong
            _log.warning("The plan in %s was damaged and is written anew; its shards are kept.", self.where)
            self.place.write(f"{self.prefix}/{_PLAN}", json.dumps(self._plan).encode())

    def _found(self) -> dict[str, Any] | None:
        """The plan that is there; None where there is none. A broken one goes."""
        content = self.place.read(f"{self.prefix}/{_PLAN}")
        if content is None:
            return None
        try:
            return dict(json.loads(content))
        except (ValueError, TypeError):
            _log.warning("The plan in %s was damaged and is written anew; its shards are kept.", self.where)
            self.place.delete(f"{self.prefix}/{_PLAN}")
            return None

    def _key(self, shard: Shard) -> str:
        return f"{self.prefix}/{shard.index:05d}{_SUFFIX}"

    def done(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that are committed, by one look."""
        there = set(self.place.keys(self.prefix))
        return [shard for shard in shards if self._key(shard) in there]

    def commit(self, shard: Shard, dataset: xr.Dataset) -> None:
        """Keep a shard's result, whole or not at all."""
        self.put(shard, pack(dataset))

    def put(self, shard: Shard, content: bytes) -> None:
        """Keep a result that is packed already (by a worker that has no way to this place)."""
        self.place.write(self._key(shard), _marked(content, self._mark(shard)))

    def content(self, shard: Shard) -> bytes | None:
        """A committed result as it is packed; None where there is none, or another's.

        Whoever unpacks it finds out whether it is damaged.
        """
        content = self.place.read(self._key(shard))
        return None if content is None or not content.endswith(self._mark(shard)) else content

    def load(self, shard: Shard) -> xr.Dataset | None:
        """A committed result; None where there is none. A damaged one is deleted: its shard is not done."""
        try:
            content = self.place.read(self._key(shard))
            if content is not None and not content.endswith(self._mark(shard)):
                raise CorruptionError(f"it does not hold examples {shard.start} to {shard.stop - 1}")
            return None if content is None else unpack(content)
        except (CorruptionError, OSError) as cause:
            _log.warning("Shard %d is measured again, because its file was damaged. (%s)", shard.index, cause)
            self.place.delete(self._key(shard))
            return None

    def _mark(self, shard: Shard) -> bytes:
        """What a shard says of itself: the run, and its examples."""
        run = self.prefix.rpartition("/")[2]
        return f"{run}: examples {shard.start} to {shard.stop - 1} of {self._plan['examples']}".encode()

    def clear(self) -> None:
        """Delete the run's shards: its result is in the atlas."""
        self.place.clear(self.prefix)


def _marked(content: bytes, mark: bytes) -> bytes:
    """A zip file with a comment, which is its end: two bytes of length, then the text."""
    if content[-22:-18] != b"PK\x05\x06":
        raise ValueError("what is put into a store of shards is made by pack")
    return content[:-2] + len(mark).to_bytes(2, "little") + mark
