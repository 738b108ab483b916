"""How does a Dataset get to where an atlas lies, and back? Few verbs, and nothing else touches the files of an atlas.

``store_of`` gives the store of an atlas: ``folder_store`` where it lies in a local folder, ``object_store`` where it lies at a
URL; both have the same verbs, and both keep what plain ``xarray.open_datatree(place, engine="zarr")`` opens. ``write_study``
and ``read_study`` are those verbs for one study; ``pack`` and ``unpack`` make one Dataset one piece of bytes, as shards are;
``write_file`` and ``read_file`` keep that in a file.

Cost: a study is held in memory while it is written or read. This module does not know what the numbers mean: ``schema``
does. A plain xarray reader who opened a study lazily, while it is replaced, must open it again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import xarray as xr

from headwise.atlas.disk import explained, replace_file
from headwise.atlas.encoding import DamageError
from headwise.atlas.folder_store import FolderStore
from headwise.atlas.object_store import ObjectStore
from headwise.atlas.packing import pack, unpack
from headwise.atlas.places import Objects, Place, place_of
from headwise.atlas.root import Listing, Root
from headwise.core.errors import AtlasError

__all__ = ["Store", "pack", "read_file", "read_study", "store_of", "unpack", "write_file", "write_study"]


class Store(Protocol):
    """What keeps the studies of one atlas."""

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas where nothing is, unless there is one."""
        ...

    def root(self) -> Root | None:
        """The atlas's list as it is; None where nothing is. ValueError where it is no list."""
        ...

    def recover(self) -> None:
        """Finish or undo what dead writers left half done."""
        ...

    def studies(self) -> list[str]:
        """The names of those that are there."""
        ...

    def listing(self) -> Listing:
        """The metadata of every study."""
        ...

    def state(self) -> str:
        """Something short that changes when a study does."""
        ...

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte of it verified."""
        ...

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Put a study in, in the place of the one that is there, if any. Whole or not at all."""
        ...


def store_of(place: Place) -> Store:
    """The store for an atlas at this place."""
    if isinstance(place, Objects):
        return ObjectStore(place)
    if place.folder is None:
        raise AtlasError(f"{place} is neither a folder nor an object store, so it cannot keep an atlas.")
    return FolderStore(place.folder)


def write_study(atlas: str | os.PathLike[str] | Place, study: str, dataset: xr.Dataset) -> None:
    """Put a study into an atlas, in the place of the one that is there, if any."""
    store_of(place_of(atlas)).write(study, dataset)


def read_study(atlas: str | os.PathLike[str] | Place, study: str) -> xr.Dataset:
    """A study in memory, every byte of it verified."""
    return store_of(place_of(atlas)).read(study)


def write_file(path: Path, dataset: xr.Dataset) -> None:
    """One packed Dataset in one file, which is there whole or not at all."""
    content = pack(dataset)
    with explained(path.parent):
        replace_file(path, content)


def read_file(path: Path) -> xr.Dataset:
    """Read it back, verified; AtlasError where the file is missing or damaged."""
    if not path.is_file():
        raise AtlasError(f"There is no file {path}.")
    try:
        return unpack(path.read_bytes())
    except (DamageError, OSError) as cause:
        raise AtlasError(f"The file {path} is damaged: {cause}. Delete it and run the same command again.") from cause
