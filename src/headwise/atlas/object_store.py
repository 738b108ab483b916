"""How does a study replace another in an object store, which has no rename, so that a kill -9 at any moment loses nothing?

The consolidated metadata (``zarr.json``) is only ever replaced if it still has the entity tag that was read, so its states
form one sequence, as if there were a single writer. Everything else is arranged around that::

    .swap/profile/lease              held by the writer of the study (see ``storage.lease``)
    .swap/profile/ID.zarr.zip        the new study, packed, complete before it is announced
    zarr.json  profile/...           what a reader sees

Writing: 1. acquire the lease; 2. upload the packed study under a new ID; 3. metadata: the study moves from the nodes to
``pending``, with its ID. From here on the new version stands: 4. delete the objects that the new version does not have and
upload its own, each only over the object that was there when this step began; 5. metadata: the study moves from pending to
the nodes, with its ``version``; 6. delete the packed study, release the lease. A writer that dies before 3 has changed
nothing. After 3, the next build repeats 4 to 6 from the packed study; the steps are idempotent, even if two processes run
them at once. Readers write nothing.

Reading: a pending study is read from its packed form. A listed one is read from its objects and their SHA-256 is compared
with the metadata's, so that a reader never mixes two versions: on a mismatch it reads again if the metadata has changed
meanwhile, and reports corruption if not. Plain xarray also sees only whole studies: during 3 to 5 it does not see the study.
Only a lazily opened study must be opened again after it is replaced.

Cost, for a study of n objects: n + 11 requests to write, n + 1 to read. It is held in memory meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr

from headwise.atlas.decoding import CorruptionError, RefusedError, decode, digest
from headwise.atlas.disk import translate_read_errors
from headwise.atlas.encoding import encode_files, unzip_files, zip_files
from headwise.atlas.format import (
    ROOT,
    UNLISTED,
    ConsolidatedMetadata,
    NodeMetadata,
    compare_metadata,
    node_metadata,
    study_keys,
)
from headwise.atlas.local_store import refused
from headwise.atlas.storage.lease import Lease, LeaseLostError, hold_lease
from headwise.atlas.storage.objects import ObjectStoreLocation, TaggedObject
from headwise.core.errors import AtlasError

MAX_TRIES = 40  # of replacing the metadata, each after a longer pause; and of reading while others write


class ObjectStore:
    """The studies of an atlas in an object store."""

    def __init__(self, location: ObjectStoreLocation) -> None:
        self.location = location
        self._cache: tuple[TaggedObject, ConsolidatedMetadata] | None = None  # saves downloading unchanged metadata

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas at an empty location, unless another process just did; finish the commits of dead writers."""
        if self.location.read(ROOT) is not None:
            with contextlib.suppress(AtlasError):  # opening it says what is wrong
                self.recover()
            return
        others = sorted(set(self.location.top_level_names()) - {*UNLISTED, ROOT})
        if others:
            raise AtlasError(
                f"{self.location} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; choose a new or empty "
                "location with -o."
            )
        content = ConsolidatedMetadata(attrs, {}).to_bytes()
        if self.location.create(ROOT, content) and self.location.create(ROOT, content):
            raise AtlasError(
                f"The store of {self.location} ignores the condition of a conditional write, so several writers would lose "
                "what they wrote; build into a folder, and copy it there."
            )

    def metadata(self) -> ConsolidatedMetadata | None:
        """The consolidated metadata; None if there is none, ValueError if it is not JSON."""
        before, known = self._cache or (None, None)
        found = self.location.read_tagged(ROOT, before)
        if found is None:
            return None
        metadata = known if found is before and known is not None else ConsolidatedMetadata.parse(found.content)
        self._cache = (found, metadata)
        return metadata

    def studies(self) -> list[str]:
        """The names of the listed and pending studies."""
        metadata = self._metadata()
        return sorted(metadata.studies | set(metadata.pending))

    def nodes(self) -> NodeMetadata:
        """The metadata of every study."""
        metadata = self._metadata()
        pending = {path: node for entry in metadata.pending.values() for path, node in entry["nodes"].items()}
        return metadata.nodes | pending

    def fingerprint(self) -> str:
        """Changes when a study does: the entity tag of the metadata."""
        self._metadata()
        return json.dumps(self._cache and self._cache[0].tag)

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte verified."""

        def entry(metadata: ConsolidatedMetadata) -> object:
            return metadata.of(study), metadata.versions.get(study), metadata.pending.get(study)

        metadata = self._metadata()
        for _ in range(MAX_TRIES):
            try:
                with translate_read_errors(f"the study {study!r} in {self.location}"):
                    return self._read(metadata, study)
            except CorruptionError as cause:
                before, metadata = metadata, self._metadata()
                if entry(metadata) == entry(before):
                    if isinstance(cause, RefusedError):
                        raise AtlasError(refused(study, self.location, cause)) from cause
                    raise AtlasError(
                        f"The study {study!r} in {self.location} is damaged: {cause}. Run the same headwise build again with "
                        f"--redo {study}, which recomputes only this study."
                    ) from cause
        raise AtlasError(
            f"The study {study!r} in {self.location} is replaced again and again; try again when that is over."
        )

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Add or replace a study, atomically."""
        files = encode_files(dataset)
        packed = zip_files(files)
        version = {"id": uuid.uuid4().hex, "sha256": digest(files)}
        announced = False
        while not announced:  # repeated only if this process was suspended for long and lost its lease
            lease_key = f".swap/{study}/lease"
            with hold_lease(self.location, lease_key) as lease, contextlib.suppress(LeaseLostError):
                assert lease is not None
                self.location.write(_packed_key(study, version), packed)
                self._announce(study, version, node_metadata(study, files), lease)
                announced = True
                self._commit(study, version, files, lease)

    def recover(self) -> None:
        """Finish the commits of dead writers; a no-op where another process does, or nothing may be written."""
        for study in self._metadata().pending:
            with (
                contextlib.suppress(
                    AtlasError, LeaseLostError, CorruptionError
                ),  # reading the study reports corruption
                hold_lease(self.location, f".swap/{study}/lease", wait=False) as lease,
            ):
                version = self._metadata().pending.get(study)
                if lease is not None and version is not None:
                    self._commit(study, version, self._pending_files(study, version), lease)

    def _metadata(self) -> ConsolidatedMetadata:
        try:
            metadata = self.metadata()
        except ValueError as cause:
            raise AtlasError(
                f"The metadata {self.location}/{ROOT} is damaged ({cause}); restore it or build again from the start."
            ) from cause
        if metadata is None:
            raise AtlasError(f"There is no atlas at {self.location}; make one with headwise build -o {self.location}.")
        return metadata

    def _read(self, metadata: ConsolidatedMetadata, study: str) -> xr.Dataset:
        if study in metadata.pending:
            return decode(self._pending_files(study, metadata.pending[study]))
        keys = [f"{study}/{key}" for key in study_keys(metadata.of(study), study)]
        files = {key[len(study) + 1 :]: content for key, content in self.location.read_many(keys).items()}
        compare_metadata(metadata.of(study), node_metadata(study, files))
        return decode(files, metadata.versions.get(study, {}).get("sha256"))

    def _pending_files(self, study: str, version: Mapping[str, Any]) -> dict[str, bytes]:
        key = _packed_key(study, version)
        content = self.location.read(key)
        if content is None:
            raise CorruptionError(f"its writer did not finish, and {key} is gone")
        files = unzip_files(content)
        if digest(files) != version["sha256"]:
            raise CorruptionError(f"{key} is not what was written")
        return files

    def _announce(self, study: str, version: dict[str, str], nodes: NodeMetadata, lease: Lease) -> None:
        """Step 3."""

        def change(metadata: ConsolidatedMetadata) -> ConsolidatedMetadata | None:
            known = (metadata.pending.get(study, {}).get("id"), metadata.versions.get(study, {}).get("id"))
            return None if version["id"] in known else metadata.with_pending(study, version, nodes)

        self._replace_metadata(change, lease)

    def _commit(self, study: str, version: Mapping[str, Any], files: Mapping[str, bytes], lease: Lease) -> None:
        """Steps 4 to 6."""

        def change(metadata: ConsolidatedMetadata) -> ConsolidatedMetadata | None:
            pending = metadata.pending.get(study, {}).get("id") == version["id"]
            return metadata.with_committed(study) if pending else None

        objects = {f"{study}/{key}": content for key, content in files.items()}
        tags = self.location.tags(study)
        lease.check()
        self.location.delete_many(set(tags) - set(objects))
        self.location.write_many(objects, tags, lease.check)
        self._replace_metadata(change, lease)
        packed = [key for key in self.location.keys(f".swap/{study}") if key.endswith(".zarr.zip")]
        lease.check()
        self.location.delete_many(packed)

    def _replace_metadata(
        self, change: Callable[[ConsolidatedMetadata], ConsolidatedMetadata | None], lease: Lease
    ) -> None:
        """Compare-and-swap: retried until the metadata is the one that ``change`` was computed from."""
        for attempt in range(MAX_TRIES):
            found = self.location.read_tagged(ROOT)
            if found is None:
                raise AtlasError(f"There is no atlas at {self.location} any more: {ROOT} was deleted meanwhile.")
            after = change(ConsolidatedMetadata.parse(found.content))
            if after is None:
                return
            lease.check()  # after the read: a process that takes the lease over later changes the metadata later
            if self.location.replace(ROOT, after.to_bytes(), found.tag) is not None:
                return
            time.sleep(random.uniform(0, min(2.0, 0.02 * 2**attempt)))
        raise AtlasError(
            f"The metadata of {self.location} is changed by too many writers at once; run the same command again."
        )


def _packed_key(study: str, version: Mapping[str, Any]) -> str:
    return f".swap/{study}/{version['id']}.zarr.zip"
