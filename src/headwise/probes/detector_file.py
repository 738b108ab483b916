"""A detector on disk: ``PATH.safetensors`` with the arrays, ``PATH.json`` with all else. No pickle: reading runs no code.

The JSON holds the format and its version, the names, dims and shapes of the blocks, intercept, calibration, what it was
fitted on, the classes where they are not false and true, and the SHA-256 of the arrays, so that a file of one detector is
never read with the JSON of another; and, since version 2, its own SHA-256, so that a changed digit is detected. Numbers
survive bit by bit (float64 arrays; JSON's shortest form that reads back the same). Each file is written to a temporary
name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from headwise.core.errors import AtlasError
from headwise.probes.features import FittedBlock
from headwise.probes.stacking import Platt

__all__ = ["FORMAT", "VERSION", "read", "write"]

FORMAT = "headwise-detector"
VERSION = 2
READABLE_VERSIONS = (1, 2)


class DetectorParts(NamedTuple):
    """What the two files hold."""

    blocks: dict[str, FittedBlock]
    intercept: float
    calibration: Platt
    about: dict[str, Any]
    classes: list[Any] | None
    """None: false and true"""


def write(
    path: str | os.PathLike[str],
    blocks: Mapping[str, FittedBlock],
    intercept: float,
    calibration: Platt,
    about: Mapping[str, Any],
    classes: list[Any] | None = None,
) -> None:
    """Write both files."""
    arrays = {}
    for name, block in blocks.items():
        arrays[f"{name}/mean"] = np.ascontiguousarray(block.mean, dtype=np.float64).reshape(block.mean.shape)
        arrays[f"{name}/weights"] = np.ascontiguousarray(block.weights, dtype=np.float64).reshape(block.mean.shape)
    data = save_arrays(arrays)
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": hashlib.sha256(data).hexdigest(),
        "blocks": {
            name: {"dims": block.dims, "shape": block.mean.shape, "kind": block.kind, "choice": block.choice}
            for name, block in blocks.items()
        },
        "intercept": intercept,
        "calibration": calibration._asdict(),
        "about": dict(about),
    }
    if classes is not None:
        document["classes"] = classes
    text = json.dumps(document | {"seal": _seal(document)}, indent=1, allow_nan=False)
    json_path, arrays_path = _paths(path)
    try:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        _replace(arrays_path, data)
        _replace(json_path, text.encode())
    except OSError as cause:
        raise AtlasError(
            f"The detector could not be written to {json_path}: {cause.strerror}; choose another location."
        ) from cause


def read(path: str | os.PathLike[str]) -> DetectorParts:
    """Read both files, checked against each other."""
    json_path, arrays_path = _paths(path)
    for file in (json_path, arrays_path):
        if not file.is_file():
            raise AtlasError(f"There is no detector at {file}; fit one with headwise build --studies spectral.")
    try:
        document = json.loads(json_path.read_bytes())
    except ValueError as cause:
        raise _damaged(json_path, "it is not JSON") from cause
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise AtlasError(f"{json_path} is not a detector of Headwise; give the path that Detector.save was given.")
    if document.get("version") not in READABLE_VERSIONS:
        raise AtlasError(
            f"The detector {json_path} has version {document.get('version')}, and this Headwise reads version "
            f"{VERSION}; fit it again, or use the Headwise that wrote it."
        )
    if document["version"] > 1 and document.pop("seal", None) != _seal(document):
        raise _damaged(json_path, "it was changed after it was written")
    data = arrays_path.read_bytes()
    if hashlib.sha256(data).hexdigest() != document.get("sha256"):
        raise _damaged(arrays_path, f"it is not the file that {json_path.name} describes")
    try:
        return _parts(document, load_arrays(data), arrays_path)
    except (AttributeError, KeyError, TypeError, ValueError, SafetensorError) as cause:
        raise _damaged(json_path, f"{type(cause).__name__}: {cause}") from cause


def _parts(document: dict[str, Any], arrays: Mapping[str, np.ndarray], path: Path) -> DetectorParts:
    blocks = {}
    for name, entry in document["blocks"].items():
        mean, weights = arrays[f"{name}/mean"], arrays[f"{name}/weights"]
        shape = tuple(entry["shape"])
        if mean.shape != shape or weights.shape != shape or len(entry["dims"]) != len(shape):
            raise _damaged(path, f"{name!r} has the shape {mean.shape} where {shape} was expected")
        blocks[name] = FittedBlock(tuple(entry["dims"]), entry["kind"], int(entry["choice"]), mean, weights)
    return DetectorParts(
        blocks, float(document["intercept"]), Platt(**document["calibration"]), dict(document["about"]),
        document.get("classes"),
    )  # fmt: skip


def _seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of the JSON's content."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _damaged(path: Path, why: str) -> AtlasError:
    return AtlasError(f"The detector file {path} is damaged: {why}; fit the detector again.")


def _paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    stem = os.fspath(path).removesuffix(".json").removesuffix(".safetensors")
    return Path(f"{stem}.json"), Path(f"{stem}.safetensors")


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    os.replace(temporary, path)
