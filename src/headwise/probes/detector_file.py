"""A detector on disk: ``PATH.safetensors`` with the arrays, ``PATH.json`` with all else. No pickle: reading runs no code.

The JSON holds the format and its version, the names, dims and shapes of the blocks, intercept, calibration, what it was
fitted on, the classes where they are not false and true, and the SHA-256 of the arrays, so that a file of one detector is
never read with the JSON of another; and, since version 2, its own SHA-256, so that a changed digit is detected. Numbers
survive bit by bit (float64 arrays; JSON's shortest form that reads back the same). A detector may come from other people, so
its JSON is read as the types below, and its sizes must be those of its arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from headwise.core.errors import AtlasError, reason
from headwise.core.files import make_folder, write_output
from headwise.core.parsing import Count, Finite, Scalar, convert, parse
from headwise.probes.features import FittedBlock
from headwise.probes.stacking import Platt

__all__ = ["FORMAT", "VERSION", "decode", "read", "write"]

FORMAT = "headwise-detector"
VERSION = 2
READABLE_VERSIONS = (1, 2)
MAX_K = 100_000  # eigenvalues per head that a detector may ask for; no text has more tokens


class _Block(msgspec.Struct):
    dims: list[str]
    shape: list[Count]
    kind: Literal["", "k", "layer"]
    choice: Annotated[int, msgspec.Meta(ge=0, le=MAX_K)]


class _Calibration(msgspec.Struct):
    slope: Finite
    offset: Finite


class _About(msgspec.Struct):
    """What is read of it, where it is there; code that fits a detector may add more."""

    folds: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 2
    seed: Count = 0
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_K)] = 1
    seen: dict[str, tuple[Finite, Finite]] = {}


class _Document(msgspec.Struct):
    version: int
    sha256: str
    blocks: Annotated[dict[str, _Block], msgspec.Meta(min_length=1)]
    intercept: Finite
    calibration: _Calibration
    about: dict[str, Any]
    classes: Annotated[list[Scalar], msgspec.Meta(min_length=2, max_length=2)] | None = None


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
    make_folder(json_path.parent)
    write_output(arrays_path, data)
    write_output(json_path, text)


def read(path: str | os.PathLike[str]) -> DetectorParts:
    """Read both files, checked against each other."""
    json_path, arrays_path = _paths(path)
    for file in (json_path, arrays_path):
        if not file.is_file():
            raise AtlasError(f"There is no detector at {file}; fit one with headwise build --studies spectral.")
    return decode(json_path.read_bytes(), arrays_path.read_bytes(), str(json_path), str(arrays_path))


def decode(text: bytes, data: bytes, where: str, arrays_where: str) -> DetectorParts:
    """A detector from the content of its two files; ``where`` they are is for messages."""
    try:
        raw: dict[str, Any] = parse(text, dict[str, Any])
    except ValueError as cause:
        raise _damaged(where, f"it is not JSON ({cause})") from cause
    if raw.get("format") != FORMAT:
        raise AtlasError(f"{where} is not a detector of Headwise; give the path that Detector.save was given.")
    if raw.get("version") not in READABLE_VERSIONS:
        raise AtlasError(
            f"The detector {where} has version {str(raw.get('version'))[:40]}, and this Headwise reads version "
            f"{VERSION}; fit it again, or use the Headwise that wrote it."
        )
    try:
        sealed = raw["version"] == 1 or raw.pop("seal", None) == _seal(raw)
    except (ValueError, RecursionError) as cause:  # of numbers that are not finite, or of depth
        raise _damaged(where, reason(cause)) from cause
    if not sealed:
        raise _damaged(where, "it was changed after it was written")
    try:
        document: _Document = convert(raw, _Document)
        convert(document.about, _About)
    except ValueError as cause:
        raise _damaged(where, str(cause)) from cause
    if hashlib.sha256(data).hexdigest() != document.sha256:
        raise _damaged(arrays_where, f"it is not the file that {Path(where).name} describes")
    try:
        arrays = load_arrays(data)
    except (SafetensorError, ValueError, KeyError) as cause:
        raise _damaged(arrays_where, str(cause)) from cause
    blocks = {name: _fitted(name, one, arrays, arrays_where) for name, one in document.blocks.items()}
    calibration = Platt(document.calibration.slope, document.calibration.offset)
    return DetectorParts(blocks, document.intercept, calibration, document.about, document.classes)


def _fitted(name: str, block: _Block, arrays: Mapping[str, np.ndarray], where: str) -> FittedBlock:
    shape, found = tuple(block.shape), []
    for part in (f"{name}/mean", f"{name}/weights"):
        if part not in arrays:
            raise _damaged(where, f"it has no array {part[:80]!r}")
        array = arrays[part]
        if array.shape != shape or len(block.dims) != len(shape):
            raise _damaged(where, f"{name[:80]!r} has the shape {array.shape} where {str(shape)[:80]} was expected")
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise _damaged(where, f"{part[:80]!r} holds what is not a number")
        found.append(array)
    return FittedBlock(tuple(block.dims), block.kind, block.choice, *found)


def _seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of the JSON's content."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _damaged(where: str, why: str) -> AtlasError:
    return AtlasError(f"The detector file {where} is damaged: {' '.join(why.split())[:300]}; fit the detector again.")


def _paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    stem = os.fspath(Path(path).expanduser()).removesuffix(".json").removesuffix(".safetensors")
    return Path(f"{stem}.json"), Path(f"{stem}.safetensors")
