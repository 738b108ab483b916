"""How does a study get into an object store, where nothing can be renamed, so that a kill -9 at any moment loses nothing?

The atlas's list (``zarr.json``) is changed only over the very list that was read (``replace``), so its states follow one
another as if there were one writer, and everything else is arranged around them::

    .swap/profile/lease              who writes the study now (see ``places.lease``)
    .swap/profile/ID.zarr.zip        the new study, packed, whole before anybody hears of it
    zarr.json  profile/...           what a reader sees

Writing: 1. take the lease; 2. put the packed study under a new ID; 3. list: the study is no longer among the nodes but
``pending``, with its ID. From here on the new one stands: 4. delete the objects of the old one that it has not, and put its
own in their place, each only over what lay there when this step began; 5. list: not pending any more but among the nodes,
with its ``version``; 6. delete the packed study, free the lease. A writer that dies before 3 has changed nothing; one that
dies after 3 is followed by whoever opens the atlas next and may write, who does 4 to 6 again from the packed study; steps may
be done twice, also by two at once: they put the same bytes.

Reading: a pending study is read from its packed form. One that is listed is read from its objects, and the SHA-256 of all of
them compared with the list's, so that a reader can never mix two versions: if it does not agree and the list has changed
meanwhile, read again; if the list has not, the study is damaged. Plain xarray sees whole studies too: in steps 3 to 5 it
does not see the study at all. Only who opened a study lazily and reads on while it is replaced must open it again.

Cost, of a study of n objects: writing n + 11 requests, reading n + 1. A study is held in memory while it is written or
read. This module does not know what the numbers mean.
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

from headwise.atlas.encoding import DamageError, decode, memory
from headwise.atlas.packing import digest, open_zip, parts_of, zipped
from headwise.atlas.places import Objects
from headwise.atlas.places.lease import Lease, LeaseLostError, leased
from headwise.atlas.places.objects import Tagged
from headwise.atlas.root import ROOT, Listing, Root, compare, keys_of
from headwise.core.errors import AtlasError

__all__ = ["ObjectStore"]

OURS = (".swap", ".shards")
TRIES = 40  # of a change of the list, each after a longer pause; and of a reading while others write


class ObjectStore:
    """The studies of an atlas in an object store."""

    def __init__(self, place: Objects) -> None:
        self.place = place
        self._known: tuple[Tagged, Root] | None = None  # the list as it was read last: it is not sent twice

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas where there is nothing, unless somebody else just did."""
        if self.place.read(ROOT) is not None:
            return
        others = sorted(set(self.place.names()) - {*OURS, ROOT})
        if others:
            raise AtlasError(
                f"{self.place} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; choose a new or empty "
                "place with -o."
            )
        content = Root(attrs, {}).content()
        if self.place.create(ROOT, content) and self.place.create(ROOT, content):
            raise AtlasError(
                f"The store of {self.place} overwrites what it was asked to only create, so several writers would lose "
                "what they wrote; build into a folder, and copy it there."
            )

    def root(self) -> Root | None:
        """The atlas's list; None where there is none. ValueError where it is broken."""
        before, known = self._known or (None, None)
        found = self.place.read_tagged(ROOT, before)
        if found is None:
            return None
        root = known if found is before and known is not None else Root.parse(found.content)
        self._known = (found, root)
        return root

    def studies(self) -> list[str]:
        """Those that are listed or pending."""
        root = self._root()
        return sorted(root.studies | set(root.pending))

    def listing(self) -> Listing:
        """The metadata of every study."""
        root = self._root()
        return root.nodes | {path: node for entry in root.pending.values() for path, node in entry["nodes"].items()}

    def state(self) -> str:
        """What changes when a study does: the tag of the list."""
        self._root()
        return json.dumps(self._known and self._known[0].tag)

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte of it verified."""
        root = self._root()
        for _ in range(TRIES):
            try:
                return self._read(root, study)
            except DamageError as cause:
                before, root = root, self._root()
                if _said(root, study) == _said(before, study):
                    raise AtlasError(
                        f"The study {study!r} in {self.place} is damaged: {cause}. Run the same headwise build again with "
                        f"--redo {study}, which computes only this study anew."
                    ) from cause
        raise AtlasError(
            f"The study {study!r} in {self.place} is replaced again and again; try again when that is over."
        )

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Put a study in, in the place of the one that is there, if any."""
        parts = parts_of(dataset)
        packed = zipped(parts)
        version = {"id": uuid.uuid4().hex, "sha256": digest(parts)}
        announced = False
        while not announced:  # anew only when this process was asleep for long, and somebody took its lease
            with leased(self.place, f".swap/{study}/lease") as lease, contextlib.suppress(LeaseLostError):
                assert lease is not None
                self.place.write(_stage(study, version), packed)
                self._announce(study, version, _nodes(study, parts), lease)
                announced = True
                self._settle(study, version, parts, lease)

    def recover(self) -> None:
        """Finish what dead writers began; where somebody is at it, or nothing may be changed, only look."""
        for study in self._root().pending:
            with contextlib.suppress(AtlasError, LeaseLostError):
                self._finish(study)

    def _finish(self, study: str) -> None:
        with leased(self.place, f".swap/{study}/lease", wait=False) as lease:
            version = self._root().pending.get(study)
            if lease is None or version is None:
                return
            with contextlib.suppress(DamageError):  # reading the study will say so
                self._settle(study, version, self._packed(study, version), lease)

    def _root(self) -> Root:
        try:
            root = self.root()
        except ValueError as cause:
            raise AtlasError(f"The list {self.place}/{ROOT} is damaged ({cause}); restore it or build anew.") from cause
        if root is None:
            raise AtlasError(f"There is no atlas at {self.place}; make one with headwise build -o {self.place}.")
        return root

    def _read(self, root: Root, study: str) -> xr.Dataset:
        if study in root.pending:
            return decode(memory(self._packed(study, root.pending[study])))
        keys = [f"{study}/{key}" for key in keys_of(root.of(study), study)]
        parts = {key[len(study) + 1 :]: content for key, content in self.place.read_many(keys).items()}
        compare(root.of(study), _nodes(study, parts))
        dataset = decode(memory(parts))
        version = root.versions.get(study)
        if version is not None and version["sha256"] != digest(parts):
            raise DamageError("its objects are not those that were written together")
        return dataset

    def _packed(self, study: str, version: Mapping[str, Any]) -> dict[str, bytes]:
        """The files of a pending study."""
        content = self.place.read(_stage(study, version))
        if content is None:
            raise DamageError(f"its writer did not finish, and {_stage(study, version)} is gone")
        parts = open_zip(content)
        if digest(parts) != version["sha256"]:
            raise DamageError(f"{_stage(study, version)} is not what was written")
        return parts

    def _announce(self, study: str, version: dict[str, str], nodes: Listing, lease: Lease) -> None:
        """Step 3."""

        def change(root: Root) -> Root | None:
            told = (root.pending.get(study, {}).get("id"), root.versions.get(study, {}).get("id"))
            return None if version["id"] in told else root.announcing(study, version, nodes)

        self._change(change, lease)

    def _settle(self, study: str, version: Mapping[str, Any], parts: Mapping[str, bytes], lease: Lease) -> None:
        """Steps 4 to 6."""

        def change(root: Root) -> Root | None:
            return root.settling(study) if root.pending.get(study, {}).get("id") == version["id"] else None

        place = {f"{study}/{key}": content for key, content in parts.items()}
        tags = self.place.tags(study)
        lease.check()
        self.place.delete_many(set(tags) - set(place))
        self.place.write_many(place, tags, lease.check)
        self._change(change, lease)
        packed = [key for key in self.place.keys(f".swap/{study}") if key.endswith(".zarr.zip")]
        lease.check()
        self.place.delete_many(packed)

    def _change(self, change: Callable[[Root], Root | None], lease: Lease) -> None:
        """Replace the list by what ``change`` makes of it, over nothing but the list that it was made from."""
        for attempt in range(TRIES):
            found = self.place.read_tagged(ROOT)
            if found is None:
                raise AtlasError(f"There is no atlas at {self.place} any more: somebody deleted {ROOT}.")
            after = change(Root.parse(found.content))
            if after is None:
                return
            lease.check()  # after the reading: who takes the lease later changes the list later
            if self.place.replace(ROOT, after.content(), found.tag) is not None:
                return
            time.sleep(random.uniform(0, min(2.0, 0.02 * 2**attempt)))
        raise AtlasError(
            f"The list of {self.place} is changed by too many writers at once; run the same command again."
        )


def _stage(study: str, version: Mapping[str, Any]) -> str:
    return f".swap/{study}/{version['id']}.zarr.zip"


def _said(root: Root, study: str) -> object:
    """All that a list says of a study."""
    return root.of(study), root.versions.get(study), root.pending.get(study)


def _nodes(study: str, parts: Mapping[str, bytes]) -> Listing:
    """The metadata among a study's files, as the list has it; DamageError where it is broken."""
    nodes = {}
    for key in sorted(parts):
        if key.rsplit("/", 1)[-1] == ROOT:
            below = key.removesuffix(ROOT).rstrip("/")
            try:
                nodes[f"{study}/{below}" if below else study] = json.loads(parts[key])
            except ValueError as cause:
                raise DamageError(f"its metadata cannot be read ({key}: {cause})") from cause
    return nodes
