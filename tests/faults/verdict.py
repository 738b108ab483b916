"""Is the atlas that came out the one that should have? And is every example in it, once?

`content` is all of an atlas: the bytes of every variable and coordinate, the attributes, the origin, and the files beside
the maps. Two things that are never the same are left out: the hour a map was made, and the mark of the write itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from headwise.atlas import Atlas
from headwise.atlas.storage import open_location

NEVER_THE_SAME = ("created",)


class Census(NamedTuple):
    """Examples against those that should be there."""

    lost: int
    doubled: int


def content(atlas: Atlas, studies: list[str] | None = None) -> dict[str, Any]:
    """What must be the same to the bit, by name; of all studies unless some are named."""
    found: dict[str, Any] = {}
    for study in atlas.studies if studies is None else studies:
        dataset = atlas[study]
        found |= {f"{study}/{name}": _bytes(variable) for name, variable in dataset.variables.items()}
        found |= {f"{study}@{name}": _plain(name, value) for name, value in dataset.attrs.items()}
        found |= {f"{study}/{name}@": str(variable.attrs) for name, variable in dataset.variables.items()}
    return found | _beside(atlas)


def _bytes(variable: xr.Variable) -> tuple[Any, ...]:
    values = np.asarray(variable.values)
    raw = json.dumps(values.tolist()).encode() if values.dtype.kind == "O" else values.tobytes()
    return variable.dims, str(values.dtype), values.shape, hashlib.sha256(raw).hexdigest()


def _plain(name: str, value: Any) -> Any:
    if name != "provenance":
        return value
    return {part: known for part, known in json.loads(value).items() if part not in NEVER_THE_SAME}


def _beside(atlas: Atlas) -> dict[str, Any]:
    """Files that are neither maps nor work in progress, such as a fitted detector."""
    inside = {*atlas.studies, ".swap", ".shards", "zarr.json"}
    keys = [key for key in atlas.location.keys("") if key.split("/")[0] not in inside]
    return {f"file {key}": hashlib.sha256(atlas.location.read(key) or b"").hexdigest() for key in keys}


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The names of what is not the same, or is in one only."""
    return sorted(name for name in found | expected if found.get(name) != expected.get(name))


def examples(atlas: Atlas) -> dict[str, list[str]]:
    """The names of the examples of every map that has examples."""
    datasets = {study: atlas[study] for study in atlas.studies}
    return {study: [str(name) for name in one["example"].values] for study, one in datasets.items() if "example" in one}


def census(found: dict[str, list[str]], expected: dict[str, list[str]]) -> Census:
    """How many are missing, and how many are there more than once (or should not be there)."""
    lost = doubled = 0
    for study, names in expected.items():
        there, wanted = Counter(found.get(study, [])), Counter(names)
        lost += (wanted - there).total()
        doubled += (there - wanted).total()
    return Census(lost, doubled)


def committed(atlas: str | Path) -> set[tuple[str, int]]:
    """(study, shard) of every shard that lies in the atlas, be it a folder or a URL."""
    keys = [key.split("/") for key in open_location(atlas).keys(".shards") if key.endswith(".shard")]
    return {(run.rpartition("-")[0], int(name[:5])) for _, run, name in keys}
