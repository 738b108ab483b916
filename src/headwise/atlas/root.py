"""An atlas's list: the one file (``zarr.json`` at the top) that says which studies there are, and what each looks like.

It is the metadata of a Zarr group with "consolidated" metadata: a copy of the ``zarr.json`` of every study and variable
below, so that plain xarray opens the atlas by one look and sees nothing that is not listed. Where an atlas lies in an
object store, two attributes tell more::

    versions   study -> {"id": of its write, "sha256": of all its objects}
    pending    study -> the same and its "nodes", while it is being put in its place (see ``object_store``)

This module does not know where the list lies, nor how it is replaced.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from headwise.atlas.encoding import DamageError

__all__ = ["ROOT", "Listing", "Root", "compare", "keys_of"]

ROOT = "zarr.json"
VERSIONS, PENDING = "versions", "pending"

Listing = dict[str, dict[str, Any]]
"""Path of a node below the atlas ("profile", "profile/value") -> its zarr.json"""


@dataclass(frozen=True)
class Root:
    """What a ``zarr.json`` of an atlas says."""

    attrs: dict[str, Any]
    nodes: Listing

    @classmethod
    def parse(cls, content: bytes) -> Root:
        """From the file's content; ValueError where it is not the list of an atlas."""
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        return cls(
            dict(found.get("attributes", {})), dict((found.get("consolidated_metadata") or {}).get("metadata", {}))
        )

    def content(self) -> bytes:
        """The file's content."""
        consolidated = {"kind": "inline", "must_understand": False, "metadata": self.nodes}
        group = {"zarr_format": 3, "node_type": "group", "attributes": self.attrs}
        return json.dumps(group | {"consolidated_metadata": consolidated}, indent=1).encode()

    @property
    def studies(self) -> set[str]:
        """The names of those that are listed."""
        return {path.split("/")[0] for path in self.nodes}

    @property
    def pending(self) -> dict[str, dict[str, Any]]:
        """The studies that are being put in their place."""
        return dict(self.attrs.get(PENDING, {}))

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """What was written of each listed study."""
        return dict(self.attrs.get(VERSIONS, {}))

    def of(self, study: str) -> Listing:
        """The part of the list that belongs to a study."""
        return {path: node for path, node in self.nodes.items() if path.split("/")[0] == study}

    def without(self, study: str) -> Root:
        """The list with nothing of that study."""
        nodes = {path: node for path, node in self.nodes.items() if path.split("/")[0] != study}
        return Root(_less(self.attrs, study), nodes)

    def listing(self, study: str, nodes: Listing) -> Root:
        """The list with that study, in the place of what was said of it."""
        without = self.without(study)
        return Root(without.attrs, without.nodes | nodes)

    def announcing(self, study: str, version: dict[str, str], nodes: Listing) -> Root:
        """The list while a study is put in its place: not among the nodes, but pending."""
        without = self.without(study)
        pending = without.pending | {study: {**version, "nodes": nodes}}
        return Root({**without.attrs, PENDING: pending}, without.nodes)

    def settling(self, study: str) -> Root:
        """The list once the pending study is in its place."""
        entry = self.pending[study]
        listed = self.listing(study, entry["nodes"])
        version = {name: value for name, value in entry.items() if name != "nodes"}
        return Root({**listed.attrs, VERSIONS: listed.versions | {study: version}}, listed.nodes)


def keys_of(nodes: Listing, study: str) -> list[str]:
    """The files of a study, below it, as its metadata promises them: every ``zarr.json`` and every chunk.

    >>> grid = {"configuration": {"chunk_shape": [2]}}
    >>> keys_of({"toy": {"node_type": "group"}, "toy/x": {"node_type": "array", "shape": [3], "chunk_grid": grid}}, "toy")
    ['zarr.json', 'x/zarr.json', 'x/c/0', 'x/c/1']
    """
    keys = []
    for path, node in nodes.items():
        below = "".join(f"{part}/" for part in path.split("/")[1:])
        keys.append(below + ROOT)
        if node.get("node_type") == "array":
            sizes = zip(node["shape"], node["chunk_grid"]["configuration"]["chunk_shape"], strict=True)
            counts = [-(-size // max(1, chunk)) for size, chunk in sizes]
            keys += [below + "/".join(["c", *map(str, place)]) for place in itertools.product(*map(range, counts))]
    return keys


def compare(expected: Listing, found: Listing) -> None:
    """A study's own metadata against the list's copy; DamageError."""
    differ = sorted(path for path in expected | found if expected.get(path) != found.get(path))
    if differ:
        variable = differ[-1].partition("/")[2]
        what = f"variable {variable!r}" if variable else "the study"
        raise DamageError(f"the metadata of {what} was changed or lost")


def _less(attrs: dict[str, Any], study: str) -> dict[str, Any]:
    """The attributes without what they say of a study; what is empty then goes too."""
    left = dict(attrs)
    for name in (VERSIONS, PENDING):
        entries = {key: value for key, value in left.pop(name, {}).items() if key != study}
        if entries:
            left[name] = entries
    return left
