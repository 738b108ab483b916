"""The format of an atlas: one ``zarr.json`` at the top, with the consolidated metadata of every study.

Consolidated metadata is a copy of the ``zarr.json`` of every study and variable below, so that plain xarray opens the atlas
with one read and sees nothing that is not listed. In an object store two attributes are added::

    versions   study -> {"id": of its write, "sha256": of all its objects}
    pending    study -> the same and its "nodes", while it is being committed (see ``object_store``)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwise.atlas.encoding import CorruptionError
from headwise.atlas.storage import Location
from headwise.core.errors import AtlasError

__all__ = [
    "ATTRS", "ROOT", "UNLISTED", "ConsolidatedMetadata", "NodeMetadata", "check_is_atlas", "compare_metadata",
    "node_metadata", "study_keys",
]  # fmt: skip

FORMAT, FORMAT_VERSION = "headwise-atlas", 1
ATTRS = {"format": FORMAT, "format_version": FORMAT_VERSION}
ROOT = "zarr.json"
STAGING, SHARDS = ".swap", ".shards"
UNLISTED = {STAGING, SHARDS}  # unfinished work next to the studies, which no reader sees
VERSIONS, PENDING = "versions", "pending"

NodeMetadata = dict[str, dict[str, Any]]
"""Path of a node below the atlas ("profile", "profile/value") -> its zarr.json"""


@dataclass(frozen=True)
class ConsolidatedMetadata:
    """The content of an atlas's top ``zarr.json``."""

    attrs: dict[str, Any]
    nodes: NodeMetadata

    @classmethod
    def parse(cls, content: bytes) -> ConsolidatedMetadata:
        """From the file's content; ValueError if it is not the metadata of a Zarr group."""
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        nodes = (found.get("consolidated_metadata") or {}).get("metadata", {})
        return cls(dict(found.get("attributes", {})), dict(nodes))

    def to_bytes(self) -> bytes:
        """The file's content."""
        consolidated = {"kind": "inline", "must_understand": False, "metadata": self.nodes}
        group = {"zarr_format": 3, "node_type": "group", "attributes": self.attrs}
        return json.dumps(group | {"consolidated_metadata": consolidated}, indent=1).encode()

    @property
    def studies(self) -> set[str]:
        """The names of the listed studies."""
        return {path.split("/")[0] for path in self.nodes}

    @property
    def pending(self) -> dict[str, dict[str, Any]]:
        """The studies that are being committed."""
        return dict(self.attrs.get(PENDING, {}))

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """The id and digest of each listed study."""
        return dict(self.attrs.get(VERSIONS, {}))

    def of(self, study: str) -> NodeMetadata:
        """The nodes of one study."""
        return {path: node for path, node in self.nodes.items() if path.split("/")[0] == study}

    def without(self, study: str) -> ConsolidatedMetadata:
        """The metadata without that study; attributes that become empty are removed."""
        attrs = dict(self.attrs)
        for name in (VERSIONS, PENDING):
            entries = {key: value for key, value in attrs.pop(name, {}).items() if key != study}
            if entries:
                attrs[name] = entries
        nodes = {path: node for path, node in self.nodes.items() if path.split("/")[0] != study}
        return ConsolidatedMetadata(attrs, nodes)

    def with_study(self, study: str, nodes: NodeMetadata) -> ConsolidatedMetadata:
        """The metadata with that study added or replaced."""
        without = self.without(study)
        return ConsolidatedMetadata(without.attrs, without.nodes | nodes)

    def with_pending(self, study: str, version: dict[str, str], nodes: NodeMetadata) -> ConsolidatedMetadata:
        """The metadata during a commit: the study is not among the nodes, but pending."""
        without = self.without(study)
        pending = without.pending | {study: {**version, "nodes": nodes}}
        return ConsolidatedMetadata({**without.attrs, PENDING: pending}, without.nodes)

    def with_committed(self, study: str) -> ConsolidatedMetadata:
        """The metadata once the pending study is committed."""
        entry = self.pending[study]
        listed = self.with_study(study, entry["nodes"])
        version = {name: value for name, value in entry.items() if name != "nodes"}
        return ConsolidatedMetadata({**listed.attrs, VERSIONS: listed.versions | {study: version}}, listed.nodes)


def study_keys(nodes: NodeMetadata, study: str) -> list[str]:
    """The files of a study that its metadata implies: every ``zarr.json`` and every chunk.

    >>> grid = {"configuration": {"chunk_shape": [2]}}
    >>> nodes = {"toy": {"node_type": "group"}, "toy/x": {"node_type": "array", "shape": [3], "chunk_grid": grid}}
    >>> study_keys(nodes, "toy")
    ['zarr.json', 'x/zarr.json', 'x/c/0', 'x/c/1']
    """
    keys = []
    for path, node in nodes.items():
        below = "".join(f"{part}/" for part in path.split("/")[1:])
        keys.append(below + ROOT)
        if node.get("node_type") == "array":
            sizes = zip(node["shape"], node["chunk_grid"]["configuration"]["chunk_shape"], strict=True)
            counts = [-(-size // max(1, chunk)) for size, chunk in sizes]
            keys += [below + "/".join(["c", *map(str, index)]) for index in itertools.product(*map(range, counts))]
    return keys


def node_metadata(study: str, files: Mapping[str, bytes]) -> NodeMetadata:
    """The metadata among a study's files; CorruptionError if it is not JSON."""
    nodes = {}
    for key in sorted(files):
        if key.rsplit("/", 1)[-1] == ROOT:
            below = key.removesuffix(ROOT).rstrip("/")
            try:
                nodes[f"{study}/{below}" if below else study] = json.loads(files[key])
            except ValueError as cause:
                raise CorruptionError(f"its metadata cannot be read ({key}: {cause})") from cause
    return nodes


def compare_metadata(expected: NodeMetadata, found: NodeMetadata) -> None:
    """A study's own metadata against the consolidated copy; CorruptionError if they differ."""
    differ = sorted(path for path in expected | found if expected.get(path) != found.get(path))
    if differ:
        variable = differ[-1].partition("/")[2]
        what = f"variable {variable!r}" if variable else "the study"
        raise CorruptionError(f"the metadata of {what} was changed or lost")


def check_is_atlas(location: Location, read_metadata: Callable[[], ConsolidatedMetadata | None]) -> None:
    """AtlasError if there is nothing at the location, no atlas, or an atlas of a later format."""
    try:
        metadata = read_metadata()
    except ValueError:
        metadata = ConsolidatedMetadata({}, {})
    if metadata is None:
        raise AtlasError(f"There is no atlas at {location}; make one with headwise build -o {location}.")
    known = {"format", "format_version"} <= metadata.attrs.keys() and metadata.attrs["format"] == FORMAT
    if not known and location.folder is not None and (location.folder / STAGING).is_dir():
        raise AtlasError(
            f"The metadata of the atlas {location} ({ROOT}) is damaged; delete that file and run the same headwise build "
            "again, which restores it from the studies' own folders."
        )
    if metadata.attrs.get("format") != FORMAT:
        raise AtlasError(
            f"{location} is not an atlas (no {ROOT} of the format {FORMAT!r} in it); give the folder that "
            "headwise build wrote, or build one with headwise build -o FOLDER."
        )
    version = metadata.attrs.get("format_version")
    if version != FORMAT_VERSION:
        raise AtlasError(
            f"The atlas {location} has format version {version}, and this Headwise reads version {FORMAT_VERSION}; "
            "use a newer Headwise (pip install -U headwise)."
        )
    if metadata.pending and location.folder is not None:
        raise AtlasError(
            f"{location} was copied from a store while {', '.join(metadata.pending)} was being committed there; "
            "open the atlas at its URL once, then copy it again."
        )
