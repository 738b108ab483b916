"""One Dataset as one piece of bytes: the form of shards, and of what workers of a cluster send.

    magic | length of the header | CRC-32 of the header | header (JSON) | arrays, one after the other

The header lists the arrays: name, dims, shape, dtype, attributes, bytes, and the CRC-32 of these bytes. Numbers are stored
as they are in memory, text as a JSON list. Nothing is compressed: activations in half precision hardly shrink, and a GPU
would wait for the compressor. What is kept for good is stored as Zarr instead (`encoding`).

Reading trusts nothing: the header is parsed into its declared types, the sizes must add up to the bytes that are there, so
that nothing larger is allocated, and every checksum is compared. Cost: writing none but the checksums (7 GB/s), reading no
copy: arrays are views of the bytes, and read-only.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Literal

import msgspec
import numpy as np
import xarray as xr

from headwise.atlas.decoding import CorruptionError, RefusedError
from headwise.atlas.encoding import storable
from headwise.core.parsing import Attribute, Count, parse

Buffer = bytes | memoryview
_MAGIC = b"headwise pack 1\n"
_TEXT = "text"
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
        arrays.append(
            _Array(str(name), dims, list(stored.shape), dtype, coordinate, attrs, len(content), crc32)  # type: ignore[arg-type]
        )
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


def unpack_first(content: bytes) -> tuple[xr.Dataset, bytes]:
    """The Dataset at the beginning of the bytes, and the bytes behind it."""
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
        start += array.size
        if zlib.crc32(part) != array.crc32:
            raise CorruptionError(f"variable {array.name!r} does not match its checksum")
        found[array.name] = xr.Variable(array.dims, _values(array, part), dict(array.attrs))
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


def _plain(attrs: Any) -> dict[str, Any]:
    """Attributes as JSON values."""
    return {
        str(name): value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in attrs.items()
    }
