"""How is a stored Dataset read, if its author may be hostile?

Metadata chooses no code here. A study is one Zarr 3 group of arrays; every array has the codecs that `encoding` writes
(``bytes`` or ``vlen-utf8``, ``zstd``, ``crc32c``), numbers or text, a regular grid, and plain JSON attributes. All of it is
checked before the first chunk is decoded, and these four codecs are decoded here, not by a registry to which other packages
add theirs. What is anything else (Zarr 2, a pickle, Python objects) is refused.

Sizes are checked before they are allocated: a dim has one size, an array declares its bytes, a compressed chunk declares
how long it is, and all of them together must fit into memory and be in proportion to what is stored.

Raises `CorruptionError` if the bytes are not those that were written, and its subclass `RefusedError` if no version of
Headwise writes this. MemoryError and OSError pass through: they say nothing about what is stored.

Cost: the data once, one compressed chunk at a time, and SHA-256 over what is read.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import google_crc32c
import msgspec
import numpy as np
import xarray as xr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import decompress

from headwise.core.memory import LARGE, in_bytes, room_for
from headwise.core.parsing import Attribute, Count, Scalar, convert, parse

NODE = "zarr.json"
_ZARR_2 = (".zgroup", ".zarray", ".zattrs", ".zmetadata")
MAX_CHUNKS = 1_000_000  # of one array; Headwise writes chunks of about a megabyte
MAX_UNPACKED = 2**28  # bytes of a study that are read however well they are compressed
MAX_RATIO = 2_000  # beyond that: bytes for one stored byte. Measurements compress 2- to 20-fold
_TEXT = "string"
_DATA_TYPES = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "string",
]  # fmt: skip
_CRC_BYTES = 4
_ZSTD_MAGIC = 0xFD2FB528


class CorruptionError(Exception):
    """Stored bytes are not what was written; the text says which variable. Callers add the location and the remedy."""


class RefusedError(CorruptionError):
    """No version of Headwise writes this, so it is not read."""


class _Codec(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    configuration: dict[str, Scalar] = {}


class _ChunkShape(msgspec.Struct, forbid_unknown_fields=True):
    chunk_shape: list[Count]


class _Grid(msgspec.Struct, forbid_unknown_fields=True):
    name: Literal["regular"]
    configuration: _ChunkShape


class _Separator(msgspec.Struct, forbid_unknown_fields=True):
    separator: Literal["/"] = "/"


class _Keys(msgspec.Struct, forbid_unknown_fields=True):
    name: Literal["default"]
    configuration: _Separator = msgspec.field(default_factory=_Separator)


class GroupNode(msgspec.Struct, forbid_unknown_fields=True):
    """The ``zarr.json`` of a study."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: dict[str, Attribute] = {}
    consolidated_metadata: None = None


class ArrayNode(msgspec.Struct, forbid_unknown_fields=True):
    """The ``zarr.json`` of a variable."""

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: list[Count]
    data_type: _DATA_TYPES
    chunk_grid: _Grid
    chunk_key_encoding: _Keys
    codecs: list[_Codec]
    fill_value: Scalar = None
    attributes: dict[str, Attribute] = {}
    dimension_names: list[str] | None = None
    storage_transformers: Annotated[list[Scalar], msgspec.Meta(max_length=0)] = []

    @property
    def dims(self) -> tuple[str, ...]:
        """Its dims."""
        return tuple(self.dimension_names or ())

    @property
    def chunk_shape(self) -> list[int]:
        """The shape of every chunk."""
        return self.chunk_grid.configuration.chunk_shape

    @property
    def chunk_counts(self) -> list[int]:
        """The number of chunks along each dim."""
        return [-(-size // chunk) for size, chunk in zip(self.shape, self.chunk_shape, strict=True)]

    @property
    def item_bytes(self) -> int:
        """Bytes of one value in memory, at least."""
        return 8 if self.data_type == _TEXT else np.dtype(self.data_type).itemsize

    @property
    def declared_bytes(self) -> int:
        """What reading it allocates, at least: a chunk is decoded whole even where the array ends in it."""
        chunk = math.prod(self.chunk_shape) if math.prod(self.shape) else 0
        return max(math.prod(self.shape), chunk) * self.item_bytes

    def chunks(self) -> Iterator[tuple[int, ...]]:
        """The index of every chunk."""
        return itertools.product(*map(range, self.chunk_counts))


def check_node(path: str, node: object) -> GroupNode | ArrayNode:
    """One ``zarr.json``, already parsed, as one that Headwise may have written; RefusedError if it is none."""
    name = path.rpartition("/")[2]
    what = f"variable {name!r}" if "/" in path else "the study"
    is_array = isinstance(node, dict) and node.get("node_type") == "array"
    try:
        found = convert(node, ArrayNode) if is_array else convert(node, GroupNode)
    except ValueError as cause:
        raise RefusedError(f"{what} is not stored as Headwise stores it ({_shown(cause)})") from cause
    if isinstance(found, ArrayNode):
        _check_array(what, found)
    return found


def decode(files: Mapping[str, bytes], sha256: str | None = None) -> xr.Dataset:
    """The Dataset whose Zarr group these files are; with a digest, that they are the files that were written together."""
    group, nodes = _check_nodes(files)
    _check_sizes(nodes, files)
    digests: dict[str, str] = {}

    def read(key: str) -> bytes:
        content = files[key]
        if sha256 is not None:
            digests[key] = hashlib.sha256(content).hexdigest()
        return content

    budget, arrays = _Budget(), {}
    for name, node in nodes.items():
        try:
            values = _read_array(name, node, read, budget)
        except (CorruptionError, MemoryError, OSError):
            raise
        except Exception as cause:  # of the decompressor
            raise CorruptionError(f"variable {name!r} cannot be read ({_shown(cause)})") from cause
        arrays[name] = xr.Variable(node.dims, values, dict(node.attributes))
    if sha256 is not None:
        for key in (NODE, *(f"{name}/{NODE}" for name in nodes)):
            read(key)
        if digest_of(digests) != sha256:
            raise CorruptionError("its files are not those that were written together")
    return _with_coordinates(arrays, dict(group.attributes))


def digest(files: Mapping[str, bytes]) -> str:
    """One SHA-256 over all keys and contents.

    >>> digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"}) != digest({"a": b"12", "b": b""})
    True
    """
    return digest_of({key: hashlib.sha256(content).hexdigest() for key, content in files.items()})


def digest_of(digests: Mapping[str, str]) -> str:
    """The same, of files whose own SHA-256 are known."""
    lines = (f"{key} {digests[key]}\n" for key in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check_nodes(files: Mapping[str, bytes]) -> tuple[GroupNode, dict[str, ArrayNode]]:
    """The metadata of the study and of its variables; nothing else is read."""
    if any(key.rpartition("/")[2] in _ZARR_2 for key in files):
        raise RefusedError("it is stored as Zarr 2, and an atlas is Zarr 3")
    if NODE not in files:
        raise CorruptionError(f"its metadata cannot be read ({NODE} is missing)")
    group, nodes = None, {}
    for key in sorted(files):
        name, _, last = key.rpartition("/")
        if last != NODE:
            continue
        if "/" in name:
            raise RefusedError(f"it holds a group within a group ({name!r})")
        try:
            raw: dict[str, Any] = parse(files[key], dict)
        except ValueError as cause:
            raise CorruptionError(f"its metadata cannot be read ({key}: {_shown(cause)})") from cause
        found = check_node(f"study/{name}" if name else "study", raw)
        if isinstance(found, ArrayNode) != bool(name):
            raise RefusedError(f"{key} describes neither the study nor a variable of it")
        if isinstance(found, ArrayNode):
            nodes[name] = found
        else:
            group = found
    assert group is not None
    return group, nodes


def _check_array(what: str, node: ArrayNode) -> None:
    codecs = [codec.name for codec in node.codecs]
    first = "vlen-utf8" if node.data_type == _TEXT else "bytes"
    if codecs != [first, "zstd", "crc32c"]:
        raise RefusedError(
            f"{what} has the codecs {', '.join(map(repr, codecs))[:200]}, and Headwise decodes only its own"
        )
    if node.codecs[0].configuration.get("endian", "little") not in ("little", None):
        raise RefusedError(f"{what} is not little-endian")
    if len(node.chunk_shape) != len(node.shape) or 0 in node.chunk_shape:
        raise RefusedError(f"{what} has chunks of another shape than it has itself")
    if len(node.dims) != len(node.shape) or len(set(node.dims)) != len(node.dims) or "" in node.dims:
        raise RefusedError(f"{what} does not name each of its dims once")
    if math.prod(node.chunk_counts) > MAX_CHUNKS:
        raise RefusedError(f"{what} declares {math.prod(node.chunk_counts):,} chunks")


def _check_sizes(nodes: Mapping[str, ArrayNode], files: Mapping[str, bytes]) -> None:
    """Before anything is allocated: one size per dim, every chunk present, and all of it in proportion and in memory."""
    sizes: dict[str, int] = {}
    for name, node in nodes.items():
        for dim, size in zip(node.dims, node.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise RefusedError(f"its dim {dim!r} has {sizes[dim]} entries in one variable and {size} in {name!r}")
        prefix = f"{name}/c"
        present = sum(key == prefix or key.startswith(f"{prefix}/") for key in files)
        if present != math.prod(node.chunk_counts):
            raise CorruptionError(f"variable {name!r} has lost a chunk")
    declared = sum(node.declared_bytes for node in nodes.values())
    if not room_for(declared):
        largest = max(nodes, key=lambda name: nodes[name].declared_bytes)
        raise MemoryError(
            f"it declares {in_bytes(declared)} (of which variable {largest!r} {in_bytes(nodes[largest].declared_bytes)}), "
            "more than there is memory"
        )


class _Budget:
    """What a study may take in memory: a chunk declares how long it is, and must be in proportion to what is stored."""

    def __init__(self) -> None:
        self.unpacked = self.stored = 0

    def spend(self, name: str, size: int, stored: int) -> None:
        self.unpacked, self.stored = self.unpacked + size, self.stored + stored
        if self.unpacked > MAX_UNPACKED and self.unpacked > MAX_RATIO * self.stored:
            raise RefusedError(
                f"variable {name!r} unpacks {in_bytes(self.unpacked)} from {in_bytes(self.stored)}, as no measurement does"
            )
        if size > LARGE and not room_for(size):
            raise MemoryError(f"variable {name!r} declares a chunk of {in_bytes(size)}, more than there is memory")


def _read_array(name: str, node: ArrayNode, read: Callable[[str], bytes], budget: _Budget) -> np.ndarray:
    text = node.data_type == _TEXT
    values = np.empty(tuple(node.shape), object if text else np.dtype(node.data_type).newbyteorder("<"))
    chunk = tuple(node.chunk_shape)
    for index in node.chunks():
        content = read("/".join([name, "c", *map(str, index)]))
        size = _checked_length(name, content)
        if not text and size != math.prod(chunk) * values.itemsize:
            raise RefusedError(f"variable {name!r} holds a chunk of {in_bytes(size)}, which is not what it declares")
        budget.spend(name, size, len(content))
        raw = decompress(content[:-_CRC_BYTES], bytearray(size)) if size else b""
        found = (_texts if text else _numbers)(name, raw, math.prod(chunk), values.dtype).reshape(chunk)
        where = (slice(one * step, (one + 1) * step) for one, step in zip(index, chunk, strict=True))
        part = values[tuple(where)] if chunk else values  # a view
        part[...] = found[tuple(slice(0, size) for size in part.shape)]
    return values


def _numbers(name: str, raw: bytes, items: int, dtype: np.dtype) -> np.ndarray:
    found = np.frombuffer(raw, dtype)
    if dtype.kind == "b" and found.size and found.view("uint8").max() > 1:
        raise CorruptionError(f"variable {name!r} holds truth values that are neither true nor false")
    return found


def _texts(name: str, raw: bytes, items: int, dtype: np.dtype) -> np.ndarray:
    if len(raw) < 4 * (items + 1) or struct.unpack_from("<I", raw)[0] != items:
        raise CorruptionError(f"variable {name!r} does not hold the {items} texts that it declares")
    found: np.ndarray = VLenUTF8().decode(raw)
    return found


def _checked_length(name: str, content: bytes) -> int:
    """The length that a chunk declares (the header of a Zstandard frame, RFC 8878, 3.1.1.1), after its checksum."""
    stored = int.from_bytes(content[-_CRC_BYTES:], "little")
    if len(content) <= _CRC_BYTES or google_crc32c.value(content[:-_CRC_BYTES]) != stored:
        raise CorruptionError(f"variable {name!r} cannot be read (a checksum is wrong)")
    try:
        magic, descriptor = struct.unpack_from("<IB", content)
        single_segment, flag = descriptor >> 5 & 1, descriptor >> 6
        start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
        if magic != _ZSTD_MAGIC or (flag == 0 and not single_segment):
            raise RefusedError(f"variable {name!r} is not a Zstandard frame that declares its length")
        (size,) = struct.unpack_from(("<B", "<H", "<I", "<Q")[flag], content, start)
    except struct.error as cause:
        raise CorruptionError(f"variable {name!r} cannot be read (it is cut off)") from cause
    return int(size) + (256 if flag == 1 else 0)


def _with_coordinates(arrays: dict[str, xr.Variable], attrs: dict[str, Any]) -> xr.Dataset:
    """By the CF convention: the attribute ``coordinates``, of a variable or of the study, names them."""
    named = attrs.pop("coordinates", None)
    lists = [named, *(array.attrs.pop("coordinates", None) for array in arrays.values())]
    coordinates = {name for listed in lists if isinstance(listed, str) for name in listed.split()}
    coordinates |= {name for name, array in arrays.items() if array.dims == (name,)}
    for name, array in arrays.items():
        if name in array.dims and array.ndim > 1:
            raise RefusedError(f"variable {name!r} has the name of one of its dims and others")
    own = {name: arrays[name] for name in arrays if name in coordinates}
    return xr.Dataset({name: arrays[name] for name in arrays if name not in own}, own, attrs)


def _shown(cause: Exception) -> str:
    return str(cause).splitlines()[0].rstrip(".")[:300] if str(cause) else type(cause).__name__
