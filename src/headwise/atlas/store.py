"""The store of an atlas: how Datasets are written and read, the same operations for folders and object stores.

``open_store`` gives a ``LocalStore`` for a local folder and an ``ObjectStore`` for a URL; both keep what plain
``xarray.open_datatree(location, engine="zarr")`` opens. ``copy_studies`` copies between any two.

Cost: a study is held in memory while it is written or read. A plain xarray reader that opened a study lazily must open it
again after the study is replaced.
"""

from __future__ import annotations

from typing import Any, Protocol

import xarray as xr

from headwise.atlas.format import ConsolidatedMetadata, NodeMetadata
from headwise.atlas.local_store import LocalStore
from headwise.atlas.object_store import ObjectStore
from headwise.atlas.storage.location import Location
from headwise.atlas.storage.objects import ObjectStoreLocation
from headwise.core.errors import AtlasError
from headwise.core.provenance import Provenance

ARTIFACTS = ("detector.json", "detector.safetensors")  # files that a study writes next to its numbers


class AtlasStore(Protocol):
    """Holds the studies of one atlas."""

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas at an empty location, unless there is one."""
        ...

    def metadata(self) -> ConsolidatedMetadata | None:
        """The consolidated metadata; None if there is none, ValueError if it is not JSON."""
        ...

    def recover(self) -> None:
        """Finish or undo the commits of dead writers; for writers only."""
        ...

    def studies(self) -> list[str]:
        """The names of the studies."""
        ...

    def nodes(self) -> NodeMetadata:
        """The metadata of every study."""
        ...

    def fingerprint(self) -> str:
        """A short text that changes when a study does."""
        ...

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte verified."""
        ...

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Add or replace a study, atomically."""
        ...


def open_store(location: Location) -> AtlasStore:
    """The store of an atlas at this location."""
    if isinstance(location, ObjectStoreLocation):
        return ObjectStore(location)
    if location.folder is None:
        raise AtlasError(f"{location} is neither a folder nor an object store, so it cannot keep an atlas.")
    return LocalStore(location.folder)


def copy_studies(source: Location, target: Location) -> None:
    """Copy all studies of one atlas to another; AtlasError if that is of another model.

    Study by study, each verified and then committed atomically: an interrupted copy is an atlas with fewer studies, and the
    same command continues it. Artifacts go first, as in a build. Studies with equal metadata (provenance and time) are skipped.
    """
    reader, writer = open_store(source), open_store(target)
    wanted, found = reader.nodes(), writer.nodes()
    models = {
        Provenance.from_attrs(node.get("attributes", {})).model.get("digest")
        for path, node in [*wanted.items(), *found.items()]
        if "/" not in path
    }
    if len(models) > 1:
        raise AtlasError(f"{target} is an atlas of another model than {source}; choose a new location.")
    for name in ARTIFACTS:
        content = source.read(name)
        if content is not None:
            target.write(name, content)
    for study in reader.studies():
        if wanted.get(study) is None or wanted[study] != found.get(study):
            writer.write(study, reader.read(study))
