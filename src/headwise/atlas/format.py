"""The format of an atlas: one ``zarr.json`` at the top, with the consolidated metadata of every study.

Consolidated metadata is a copy of the ``zarr.json`` of every study and variable below, so that plain xarray opens the atlas
with one read and sees nothing that is not listed. Two attributes are added::

    versions   study -> {"sha256": of the names and contents of all its files; in an object store also the "id" of its write}
    pending    study -> the same and its "nodes", while it is being committed to an object store (see ``object_store``)

Atlases of earlier versions have no ``versions`` in a folder: their chunks are verified one by one, by their checksums.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from headwise.atlas.decoding import ArrayNode, CorruptionError, check_node
from headwise.atlas.storage.location import Location
from headwise.core.errors import AtlasError
from headwise.core.parsing import Attribute, convert, parse

FORMAT, FORMAT_VERSION = "headwise-atlas", 1
ATTRS = {"format": FORMAT, "format_version": FORMAT_VERSION}
ROOT = "zarr.json"
MANIFEST = "checkpoints.json"  # of an atlas over training
STAGING, SHARDS = ".swap", ".shards"
UNLISTED = {STAGING, SHARDS}  # unfinished work next to the studies, which no reader sees
VERSIONS, PENDING = "versions", "pending"
STUDY_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_NODE_PATH = re.compile(rf"{STUDY_NAME.pattern}(/(?!\.{{1,2}}$)[^/\0]{{1,255}})?")

NodeMetadata = dict[str, dict[str, Any]]
"""Path of a node below the atlas ("profile", "profile/value") -> its zarr.json"""


class _Version(msgspec.Struct):
    sha256: str
    id: str = ""
    nodes: NodeMetadata = {}


class _Attributes(msgspec.Struct):
    """Those that are read; others are kept as they are."""

    format: Attribute = None
    format_version: Attribute = None
    versions: dict[str, _Version] = {}
    pending: dict[str, _Version] = {}


class _Consolidated(msgspec.Struct):
    metadata: NodeMetadata = {}


class _Root(msgspec.Struct):
    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: dict[str, Any] = {}
    consolidated_metadata: _Consolidated | None = None


@lru_cache(maxsize=2)  # `compare` reads two atlases in turn
def _parsed(content: bytes) -> tuple[dict[str, Any], NodeMetadata]:
    root: _Root = parse(content, _Root)
    attributes: _Attributes = convert(root.attributes, _Attributes)
    nodes = root.consolidated_metadata.metadata if root.consolidated_metadata is not None else {}
    pending = [path for entry in attributes.pending.values() for path in entry.nodes]
    for path in (*nodes, *pending, *attributes.pending, *attributes.versions):
        if not _NODE_PATH.fullmatch(path):
            raise ValueError(f"{path[:200]!r} names no study and no variable")
    if any(not re.fullmatch(r"[0-9a-zA-Z-]{1,64}", entry.id) for entry in attributes.pending.values()):
        raise ValueError("a pending study has no identifier")
    return root.attributes, nodes


@dataclass(frozen=True)
class ConsolidatedMetadata:
    """The content of an atlas's top ``zarr.json``."""

    attrs: dict[str, Any]
    nodes: NodeMetadata

    @classmethod
    def parse(cls, content: bytes) -> ConsolidatedMetadata:
        """From the file's content; ValueError if it is not the metadata of a Zarr group.

        What was read last is kept: reading an atlas asks for its metadata several times for each study.
        """
        return cls(*_parsed(content))

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

    def with_study(self, study: str, nodes: NodeMetadata, version: dict[str, str]) -> ConsolidatedMetadata:
        """The metadata with that study added or replaced."""
        without = self.without(study)
        versions = {VERSIONS: without.versions | {study: version}}
        return ConsolidatedMetadata(without.attrs | versions, without.nodes | nodes)

    def with_pending(self, study: str, version: dict[str, str], nodes: NodeMetadata) -> ConsolidatedMetadata:
        """The metadata during a commit: the study is not among the nodes, but pending."""
        without = self.without(study)
        pending = without.pending | {study: {**version, "nodes": nodes}}
        return ConsolidatedMetadata({**without.attrs, PENDING: pending}, without.nodes)

    def with_committed(self, study: str) -> ConsolidatedMetadata:
        """The metadata once the pending study is committed."""
        entry = self.pending[study]
        return self.with_study(study, entry["nodes"], {name: value for name, value in entry.items() if name != "nodes"})


def study_keys(nodes: NodeMetadata, study: str) -> list[str]:
    """The files of a study that its metadata implies: every ``zarr.json`` and every chunk.

    >>> study_keys({"toy": {"zarr_format": 3, "node_type": "group"}}, "toy")
    ['zarr.json']
    """
    keys = []
    for path, node in nodes.items():
        below = "".join(f"{part}/" for part in path.split("/")[1:])
        keys.append(below + ROOT)
        found = check_node(path, node)
        if isinstance(found, ArrayNode):
            keys += [below + "/".join(["c", *map(str, index)]) for index in found.chunks()]
    return keys


def node_metadata(study: str, files: Mapping[str, bytes]) -> NodeMetadata:
    """The metadata among a study's files; CorruptionError if it is not JSON."""
    nodes: NodeMetadata = {}
    for key in sorted(files):
        if key.rsplit("/", 1)[-1] == ROOT:
            below = key.removesuffix(ROOT).rstrip("/")
            try:
                nodes[f"{study}/{below}" if below else study] = parse(files[key], dict[str, Any])
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
    """AtlasError if there is nothing at the location, no atlas, or an atlas of another format version."""
    try:
        metadata = read_metadata()
    except ValueError:
        metadata = ConsolidatedMetadata({}, {})
    if (metadata is None or metadata.attrs.get("format") != FORMAT) and location.read(MANIFEST) is not None:
        raise AtlasError(
            f"{location} is an atlas over training; read it with headwise emergence {location}, or give the folder "
            "of one of its checkpoints, such as step-0 in it."
        )
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
        newer = isinstance(version, int) and version > FORMAT_VERSION
        remedy = (
            "use a newer Headwise (pip install -U headwise)"
            if newer
            else "build it again with headwise build -o NEW_FOLDER"
        )
        raise AtlasError(
            f"The atlas {location} has format version {version}, and this Headwise reads version {FORMAT_VERSION}; {remedy}."
        )
    if metadata.pending and location.folder is not None:
        raise AtlasError(
            f"{location} was copied from a store while {', '.join(metadata.pending)} was being committed there; "
            "run the same headwise build at its URL again, then copy it again."
        )
