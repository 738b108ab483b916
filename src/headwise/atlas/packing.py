"""How does a Dataset become one piece of bytes, to be sent or kept whole?

``pack`` makes a zipped Zarr group of it, ``unpack`` takes it apart and verifies every byte. Shards are kept so, workers
of a cluster send their results so, and a study goes so into an object store before it is put in its place.

Cost: the packed bytes are held in memory beside the Dataset. This module does not know where the bytes go.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, MutableMapping
from typing import Any

import xarray as xr
from zarr.storage import MemoryStore

from headwise.atlas.encoding import DamageError, decode, encode, memory

__all__ = ["digest", "open_zip", "pack", "parts_of", "unpack", "zipped"]


def pack(dataset: xr.Dataset) -> bytes:
    """One Dataset as bytes: a zipped Zarr group. The same Dataset gives the same bytes."""
    return zipped(parts_of(dataset))


def unpack(content: bytes) -> xr.Dataset:
    """The Dataset that was packed, every byte of it verified; raises DamageError."""
    return decode(memory(open_zip(content)))


def parts_of(dataset: xr.Dataset) -> dict[str, bytes]:
    """The files of a Dataset's Zarr group, by key, in order."""
    chunks: MutableMapping[str, Any] = {}
    encode(dataset, MemoryStore(chunks))
    return {key: chunk.to_bytes() for key, chunk in sorted(chunks.items())}


def zipped(parts: Mapping[str, bytes]) -> bytes:
    """Many files as one; without times, so that the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part)
    return buffer.getvalue()


def open_zip(content: bytes) -> dict[str, bytes]:
    """The files that were zipped; DamageError where a byte is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as cause:
        raise DamageError(str(cause) or "it is cut off") from cause


def digest(parts: Mapping[str, bytes]) -> str:
    """One SHA-256 of all keys and all that lies under them.

    >>> digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"}) != digest({"a": b"12", "b": b""})
    True
    """
    lines = (f"{key} {hashlib.sha256(parts[key]).hexdigest()}\n" for key in sorted(parts))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
