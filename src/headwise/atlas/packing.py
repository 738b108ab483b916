"""One Dataset as one piece of bytes: the form of shards, and of what workers of a cluster send.

    magic | length of the header | CRC-32 of the header | header (JSON) | arrays, one after the other

The header lists the arrays: name, dims, shape, dtype, attributes, bytes, and the CRC-32 of these bytes. Numbers are stored
as they are in memory, text as a JSON list. Nothing is compressed: activations in half precision hardly shrink, and a GPU
would wait for the compressor. What is kept for good is stored as Zarr instead (`encoding`).

Reading trusts nothing: the header is parsed into its declared types, the sizes must add up to the bytes that are there, so
that nothing larger is allocated, and every checksum is compared. Cost: writing none but the checksums (7 GB/s), reading no
copy: arrays are views of the bytes, and read-only. With the path of the file, large arrays stay there (`_StoredArray`): a
study reads one layer of every shard at a time, so that all shards of a run can be open at once.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

from headwise.atlas.decoding import CorruptionError, RefusedError
from headwise.atlas.disk import translate_read_errors
from headwise.atlas.encoding import storable
from headwise.core.errors import AtlasError
from headwise.core.parsing import Attribute, Count, parse

Buffer = bytes | memoryview
_MAGIC = b"headwise pack 1\n"
_TEXT = "text"
LAZY = 2**20  # bytes of an array above which it may stay in its file
_DTYPES = Literal[
    "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "text",
]  # fmt: skip


class _Array(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    dims: list[str]
    shape: list[Count]
    dtype: _DTYPES
    coordinate: bool
    attrs: dict[str, Attribute]
    size: Count  # bytes
    crc32: Count


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    arrays: list[_Array]
    attrs: dict[str, Attribute]


def pack(dataset: xr.Dataset) -> bytes:
    """One Dataset as bytes; the same Dataset gives the same bytes."""
    return b"".join(pack_buffers(dataset))


def pack_buffers(dataset: xr.Dataset) -> list[Buffer]:
    """The same in buffers that follow one another, without a copy of the numbers."""
    arrays, contents = [], []
    for name, variable in dataset.variables.items():
        stored = storable(str(name), variable)
        content, dtype = _content(stored)
        dims, attrs = [str(dim) for dim in stored.dims], _plain(stored.attrs)
        coordinate, crc32 = name in dataset.coords, zlib.crc32(content)
        arrays.append(_Array(str(name), dims, list(stored.shape), dtype, coordinate, attrs, len(content), crc32))  # type: ignore[arg-type]
        contents.append(content)
    header = msgspec.json.encode(_Header(arrays, _plain(dataset.attrs)))
    numbers = (len(header), zlib.crc32(header))
    return [_MAGIC, *(number.to_bytes(8, "little") for number in numbers), header, *contents]


def unpack(content: bytes) -> xr.Dataset:
    """The Dataset that was packed, every byte verified; raises CorruptionError."""
    dataset, rest = unpack_first(content)
    if rest:
        raise CorruptionError("there are bytes behind its end")
    return dataset


def unpack_first(content: bytes, path: Path | None = None) -> tuple[xr.Dataset, bytes]:
    """The Dataset at the beginning of the bytes, and the bytes behind it.

    With the ``path`` of the file that holds these bytes, arrays of more than `LAZY` bytes are verified now, and read from there
    where they are used; the file has to stay until then.
    """
    view = memoryview(content)
    start = len(_MAGIC) + 16
    if len(view) < start or view[: len(_MAGIC)] != _MAGIC:
        raise CorruptionError("it does not begin as a shard does")
    size, crc = (int.from_bytes(view[at : at + 8], "little") for at in (len(_MAGIC), len(_MAGIC) + 8))
    header = bytes(view[start : start + size])
    if len(header) != size or zlib.crc32(header) != crc:
        raise CorruptionError("its header is damaged")
    try:
        parsed: _Header = parse(header, _Header)
    except ValueError as cause:
        raise RefusedError(f"its header is not one that Headwise writes ({cause})") from cause
    start += size
    if start + sum(array.size for array in parsed.arrays) > len(view):
        raise CorruptionError("it is cut off")
    found: dict[str, xr.Variable] = {}
    for array in parsed.arrays:
        part = view[start : start + array.size]
        if zlib.crc32(part) != array.crc32:
            raise CorruptionError(f"variable {array.name!r} does not match its checksum")
        values: Any = _values(array, part)
        if path is not None and array.size > LAZY and array.dtype != _TEXT:
            values = LazilyIndexedArray(_StoredArray(path, start, values.shape, values.dtype))
        found[array.name] = xr.Variable(array.dims, values, dict(array.attrs))
        start += array.size
    coords = {array.name: found[array.name] for array in parsed.arrays if array.coordinate}
    try:
        dataset = xr.Dataset({name: one for name, one in found.items() if name not in coords}, coords, parsed.attrs)
    except ValueError as cause:
        raise RefusedError(f"its variables do not fit together ({' '.join(str(cause).split())[:200]})") from cause
    return dataset, bytes(view[start:])


def _content(variable: xr.Variable) -> tuple[Buffer, str]:
    values = np.asarray(variable.values)
    if values.dtype.kind == "T":
        return json.dumps(values.ravel().tolist(), ensure_ascii=False).encode(), _TEXT
    values = np.ascontiguousarray(values)
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    content = values.reshape(-1).view(np.uint8).data if values.size else b""
    return content, values.dtype.str


def _values(array: _Array, part: memoryview) -> np.ndarray:
    items = math.prod(array.shape)
    if len(array.dims) != len(array.shape) or len(set(array.dims)) != len(array.dims):
        raise RefusedError(f"variable {array.name!r} has dims {array.dims} and the shape {array.shape}")
    if array.dtype == _TEXT:
        try:
            texts = parse(bytes(part), list[str])
        except ValueError as cause:
            raise RefusedError(f"variable {array.name!r} is not a list of texts ({cause})") from cause
        if len(texts) != items:
            raise RefusedError(f"variable {array.name!r} holds {len(texts)} texts, not {items}")
        return np.array(texts, dtype=object).reshape(array.shape)
    dtype = np.dtype(array.dtype)
    if items * dtype.itemsize != array.size:
        raise RefusedError(f"variable {array.name!r} holds {array.size} bytes, not {items} x {dtype.itemsize}")
    if dtype.kind == "b" and items and np.frombuffer(part, np.uint8).max() > 1:
        raise CorruptionError(f"variable {array.name!r} holds truth values that are neither true nor false")
    return np.frombuffer(part, dtype).reshape(array.shape)


class _StoredArray(BackendArray):
    """An array that stays in a file; xarray asks it for regions."""

    def __init__(self, path: Path, start: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path, self._start = path, start
        self.shape, self.dtype = shape, dtype

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self._region)

    def _region(self, key: tuple[int | slice, ...]) -> np.ndarray:
        """The dims from the last one that is cut on are read in one piece for each entry of the dims before."""
        ranges = [
            range(size)[one] if isinstance(one, slice) else range(size)[one : one + 1 or None]
            for one, size in zip(key, self.shape, strict=True)
        ]
        cut = [own != range(size) for own, size in zip(ranges, self.shape, strict=True)]
        walked = len(cut) - cut[::-1].index(True) if any(cut) else 0
        items = math.prod(self.shape[walked:])
        steps = [math.prod(self.shape[dim + 1 : walked]) for dim in range(walked)]
        found = np.empty((math.prod(len(own) for own in ranges[:walked]), items), self.dtype)
        with translate_read_errors(str(self._path)), self._path.open("rb", buffering=0) as file:
            for row, entry in zip(found, itertools.product(*ranges[:walked]), strict=True):
                at = sum(one * step for one, step in zip(entry, steps, strict=True))
                file.seek(self._start + at * items * self.dtype.itemsize)
                if file.readinto(row.view(np.uint8).data) != row.nbytes:
                    raise AtlasError(
                        f"{self._path} was cut off while it was read: something else changes the folder of the atlas. Run the "
                        "same command again; what is damaged is measured again."
                    )
        sizes = [len(own) for own, one in zip(ranges, key, strict=True) if isinstance(one, slice)]
        return found.reshape(sizes)


def _plain(attrs: Any) -> dict[str, Any]:
    """Attributes as JSON values."""
    return {
        str(name): value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in attrs.items()
    }
