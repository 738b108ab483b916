"""Which examples are measured already? A study is split into shards of examples; each is one file, committed atomically.

The files of a run are in ``ATLAS/.shards/STUDY-KEY/``, where KEY is the digest of its provenance: another model, other data
or other parameters have another folder. ``plan.json``, written first, holds the run's identity and how it was split; a folder
with another split is refused. Every shard also states which examples of which run it holds (behind its last array), so
that a lost or corrupt plan is rewritten at no cost, and a misplaced file is recognised. Plain xarray does not see
``.shards``: the atlas's metadata does not list it.

    .shards/profile-5e0c.../plan.json  00000.shard  00001.shard  ...

Cost: one flushed file per shard.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas.decoding import CorruptionError
from headwise.atlas.disk import translate_read_errors
from headwise.atlas.packing import pack_buffers, unpack_first
from headwise.atlas.storage.location import Location, open_location
from headwise.core.errors import AtlasError
from headwise.core.parsing import parse
from headwise.core.provenance import Provenance

_log = logging.getLogger(__name__)
_PLAN, _SUFFIX, _ASIDE = "plan.json", ".shard", ".damaged"
_SPLIT = ("examples", "size")


@dataclass(frozen=True)
class Shard:
    """Examples ``start`` to ``stop - 1`` of a run."""

    index: int
    start: int
    stop: int

    @property
    def label(self) -> str:
        """In messages.

        >>> Shard(2, 20, 30).label
        'examples 20 to 29'
        """
        return f"examples {self.start} to {self.stop - 1}"


def split_shards(examples: int, size: int) -> list[Shard]:
    """Shards of ``size`` examples; the last one has the rest.

    >>> split_shards(5, 2)
    [Shard(index=0, start=0, stop=2), Shard(index=1, start=2, stop=4), Shard(index=2, start=4, stop=5)]
    """
    if size < 1:
        raise ValueError(f"a shard needs at least one example, not {size}")
    return [Shard(i, start, min(start + size, examples)) for i, start in enumerate(range(0, examples, size))]


def shard_prefix(provenance: Provenance) -> str:
    """The prefix, below the atlas, of a run's shards."""
    return f".shards/{provenance.study}-{provenance.key()}"


class ShardStore:
    """The committed shards of one run of ``examples`` examples, split into shards of ``size``."""

    def __init__(
        self, atlas: str | os.PathLike[str] | Location, provenance: Provenance, *, examples: int, size: int
    ) -> None:
        self.location = open_location(atlas)
        self.prefix = shard_prefix(provenance)
        self._plan: dict[str, Any] = {"identity": provenance.identity(), "examples": examples, "size": size}
        self._check_plan()

    @property
    def where(self) -> str:
        """The path or URL of the shards."""
        return f"{self.location}/{self.prefix}"

    @property
    def folder(self) -> Path:
        """The folder of the shards; only a local atlas has one."""
        if self.location.folder is None:
            raise AtlasError(f"{self.where} is not a folder; list the keys of its location instead")
        return self.location.folder / self.prefix

    def _check_plan(self) -> None:
        """Compare with the stored plan; write ours if there is none or it is corrupt."""
        found = self._read_plan()
        while found is None:
            self.location.create(f"{self.prefix}/{_PLAN}", json.dumps(self._plan).encode())
            found = self._read_plan()
        if any(found.get(name) != self._plan[name] for name in _SPLIT):
            named = [f"{name} {found.get(name)} against {self._plan[name]}" for name in _SPLIT]
            raise AtlasError(
                f"{self.where} holds the shards of a run that was split differently ({', '.join(named)}); run with the "
                "same settings to continue it, or delete that folder to start from the beginning."
            )
        if found != self._plan:  # the folder's name is a digest of the identity, so the file is wrong
            _log.warning("The plan in %s was damaged and is rewritten; its shards are kept.", self.where)
            self.location.write(f"{self.prefix}/{_PLAN}", json.dumps(self._plan).encode())

    def _read_plan(self) -> dict[str, Any] | None:
        """The stored plan, or None; a corrupt one is deleted, since it is known what it held."""
        content = self.location.read(f"{self.prefix}/{_PLAN}")
        if content is None:
            return None
        try:
            found: dict[str, Any] = parse(content, dict[str, Any])
            return found
        except ValueError:
            _log.warning("The plan in %s was damaged and is rewritten; its shards are kept.", self.where)
            self.location.delete(f"{self.prefix}/{_PLAN}")
            return None

    def _key(self, shard: Shard) -> str:
        return f"{self.prefix}/{shard.index:05d}{_SUFFIX}"

    def committed(self, shards: Iterable[Shard]) -> list[Shard]:
        """Those that are committed, by one listing."""
        keys = set(self.location.keys(self.prefix))
        return [shard for shard in shards if self._key(shard) in keys]

    def commit(self, shard: Shard, dataset: xr.Dataset) -> None:
        """Store a shard's result, atomically."""
        self.location.write(self._key(shard), [*pack_buffers(dataset), self._mark(shard)])

    def commit_packed(self, shard: Shard, content: bytes) -> None:
        """Store a result that a worker has packed."""
        self.location.write(self._key(shard), [content, self._mark(shard)])

    def load_packed(self, shard: Shard) -> bytes | None:
        """A committed result, packed and not yet verified; None if there is none, or one of another shard."""
        content, mark = self.location.read(self._key(shard)), self._mark(shard)
        return None if content is None or not content.endswith(mark) else content[: -len(mark)]

    def load(self, shard: Shard) -> xr.Dataset | None:
        """A committed result; None if there is none. A corrupt one is moved aside: its shard is not done.

        Only bytes that were read and do not match their checksum are damage: a disk that fails or too little memory raises
        AtlasError, and the file stays. Every byte is verified; large variables of a local shard are read where they are used,
        so that all shards of a run can be open at once.
        """
        content = self.location.read(self._key(shard))
        if content is None:
            return None
        try:
            with translate_read_errors(f"shard {shard.index} in {self.where}"):
                folder = self.location.folder
                result, mark = unpack_first(content, None if folder is None else folder / self._key(shard))
                if mark != self._mark(shard):
                    raise CorruptionError(f"it does not hold {shard.label}")
                return result
        except CorruptionError as cause:
            aside = f"{self._key(shard)}.{time.time_ns()}{_ASIDE}"
            self.location.write(aside, content)
            self.location.delete(self._key(shard))
            _log.warning(
                "Shard %d is measured again, because its file was damaged (%s); it was moved to %s/%s.",
                shard.index, cause, self.location, aside,
            )  # fmt: skip
            return None

    def _mark(self, shard: Shard) -> bytes:
        """The run and the examples, written into the shard's file."""
        run = self.prefix.rpartition("/")[2]
        return f"{run}: {shard.label} of {self._plan['examples']}".encode()

    def clear(self) -> None:
        """Delete the run's shards, once its result is in the atlas."""
        self.location.clear(self.prefix)
