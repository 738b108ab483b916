"""How does a Dataset become Zarr, so that no corrupt number is ever read back?

Every chunk is compressed (Zstandard) and ends with a CRC-32C, so that a flipped bit or a truncated chunk raises an error when
it is read. Zarr reads a missing chunk as zeros; therefore all chunks are written, including empty ones, and counted before
reading. Text is stored as variable-length UTF-8 (the only text type of the Zarr 3 specification) and comes back as Python
``str`` in an object array. There is no fill value, NaN is stored like any number: values return bit for bit.

``pack`` turns the Zarr group into one zip file: the form of shards, of results that workers send, and of a study that is
staged in an object store. Cost: one copy of the data in memory.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from headwise.core.errors import AtlasError

__all__ = [
    "CorruptionError", "decode", "digest", "encode", "encode_files", "memory_store", "pack", "unpack", "unzip_files",
    "zip_files",
]  # fmt: skip

_NUMBERS = "biuf"


class CorruptionError(Exception):
    """Stored bytes are not what was written; the text says which variable. Callers add the location and the remedy."""


def encode(dataset: xr.Dataset, store: Any) -> None:
    """Write a Dataset as the root group of an empty Zarr store (a path, or a zarr store object)."""
    plain = dataset.drop_encoding()
    plain = plain.assign_coords({name: _storable(str(name), plain[name]) for name in plain.coords})
    plain = plain.assign({name: _storable(str(name), plain[name]) for name in plain.data_vars})
    layout = {name: {"compressors": [ZstdCodec(), Crc32cCodec()], "_FillValue": None} for name in plain.variables}
    plain.to_zarr(store, mode="w", zarr_format=3, consolidated=False, encoding=layout, write_empty_chunks=True)


def decode(store: Any) -> xr.Dataset:
    """Read it back, every byte verified; raises CorruptionError."""
    try:
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        arrays = sorted(group.arrays())
        attrs = dict(group.attrs)
    except Exception as cause:  # zarr raises many classes for broken JSON, a missing file or a wrong type
        raise CorruptionError(f"its metadata cannot be read ({_reason(cause)})") from cause
    if isinstance(store, MemoryStore):
        keys = list(store._store_dict)
    else:
        keys = [file.relative_to(store).as_posix() for file in Path(store).rglob("*") if file.is_file()]
    raw = xr.Dataset({name: _read(name, array, keys) for name, array in arrays}, attrs=attrs)
    return xr.decode_cf(raw, mask_and_scale=False, decode_times=False)  # only finds which variables are coordinates


def pack(dataset: xr.Dataset) -> bytes:
    """One Dataset as bytes: a zipped Zarr group. The same Dataset gives the same bytes."""
    return zip_files(encode_files(dataset))


def unpack(content: bytes) -> xr.Dataset:
    """The Dataset that was packed, every byte verified; raises CorruptionError."""
    return decode(memory_store(unzip_files(content)))


def encode_files(dataset: xr.Dataset) -> dict[str, bytes]:
    """The files of a Dataset's Zarr group, key -> content, sorted."""
    chunks: MutableMapping[str, Any] = {}
    encode(dataset, MemoryStore(chunks))
    return {key: chunk.to_bytes() for key, chunk in sorted(chunks.items())}


def memory_store(files: Mapping[str, bytes]) -> MemoryStore:
    """A read-only Zarr store in memory."""
    buffer = default_buffer_prototype().buffer
    return MemoryStore({key: buffer.from_bytes(content) for key, content in files.items()}, read_only=True)


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """One zip archive, without timestamps, so that the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def unzip_files(content: bytes) -> dict[str, bytes]:
    """The files of a zip archive; CorruptionError if a checksum is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as cause:
        raise CorruptionError(str(cause) or "it is cut off") from cause


def digest(files: Mapping[str, bytes]) -> str:
    """One SHA-256 over all keys and contents.

    >>> digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"}) != digest({"a": b"12", "b": b""})
    True
    """
    lines = (f"{key} {hashlib.sha256(files[key]).hexdigest()}\n" for key in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _storable(name: str, array: xr.DataArray) -> xr.Variable:
    variable = array.variable.to_base_variable()
    if variable.dtype.kind in _NUMBERS:
        return variable
    values = np.asarray(variable.values, dtype=object)
    wrong = [value for value in values.ravel() if not isinstance(value, str)]
    if wrong:
        raise AtlasError(
            f"The variable {name!r} holds {wrong[0]!r}; an atlas stores numbers, truth values and text only."
        )
    return xr.Variable(variable.dims, values.astype(np.dtypes.StringDType()), variable.attrs)


def _read(name: str, array: zarr.Array, keys: list[str]) -> xr.Variable:
    try:
        if sum(key == f"{name}/c" or key.startswith(f"{name}/c/") for key in keys) != array.nchunks:
            raise CorruptionError(f"variable {name!r} has lost a chunk")
        values = np.asarray(array[...])
        dims = array.metadata.dimension_names or ()
        variable = xr.Variable(dims, values, dict(array.attrs))
    except CorruptionError:
        raise
    except Exception as cause:  # a checksum, the decompressor or the file system
        raise CorruptionError(f"variable {name!r} cannot be read ({_reason(cause)})") from cause
    return variable if values.dtype.kind in _NUMBERS else variable.astype(object)


def _reason(cause: Exception) -> str:
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__
