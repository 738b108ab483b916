"""How does a Dataset become Zarr, so that no damaged number is ever read back?

Every chunk is compressed (Zstandard) and closed by a CRC-32C, so a flipped bit or a cut-off chunk is an error when it
is read. Zarr reads a chunk that is not there as zeros; so all chunks are written, also empty ones, and counted before
reading. Text is stored as variable-length UTF-8 (the only text type the Zarr 3 specification has) and comes back as
Python ``str`` in an object array. NaNs are numbers like others: no fill value, values return bit for bit.

Cost: one copy of the data in memory. This module does not know about folders, swaps or studies: it is given a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from headwise.core.errors import AtlasError

__all__ = ["DamageError", "decode", "encode", "memory"]

_NUMBERS = "biuf"


class DamageError(Exception):
    """Something on disk is not what was written; the text says which variable. Callers add where, and the remedy."""


def encode(dataset: xr.Dataset, store: Any) -> None:
    """Write a Dataset as the root group of an empty Zarr store (a path, or a zarr store object)."""
    plain = dataset.drop_encoding()
    plain = plain.assign_coords({name: _storable(str(name), plain[name]) for name in plain.coords})
    plain = plain.assign({name: _storable(str(name), plain[name]) for name in plain.data_vars})
    layout = {name: {"compressors": [ZstdCodec(), Crc32cCodec()], "_FillValue": None} for name in plain.variables}
    plain.to_zarr(store, mode="w", zarr_format=3, consolidated=False, encoding=layout, write_empty_chunks=True)


def decode(store: Any) -> xr.Dataset:
    """Read it back, whole and verified; raises DamageError."""
    try:
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        arrays = sorted(group.arrays())
        attrs = dict(group.attrs)
    except Exception as cause:  # whatever zarr makes of broken JSON, a missing file or a wrong type
        raise DamageError(f"its metadata cannot be read ({_reason(cause)})") from cause
    keys = _keys(store)
    raw = xr.Dataset({name: _read(name, array, keys) for name, array in arrays}, attrs=attrs)
    return xr.decode_cf(raw, mask_and_scale=False, decode_times=False)  # only finds which variables are coordinates


def memory(parts: Mapping[str, bytes]) -> MemoryStore:
    """A store that holds these bytes by key."""
    of = default_buffer_prototype().buffer
    return MemoryStore({key: of.from_bytes(content) for key, content in parts.items()}, read_only=True)


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


def _keys(store: Any) -> list[str]:
    """Every file of a store."""
    if isinstance(store, MemoryStore):
        return list(store._store_dict)
    root = Path(store)
    return [file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()]


def _read(name: str, array: zarr.Array, keys: list[str]) -> xr.Variable:
    try:
        if sum(key == f"{name}/c" or key.startswith(f"{name}/c/") for key in keys) != array.nchunks:
            raise DamageError(f"variable {name!r} has lost a chunk")
        values = np.asarray(array[...])
        dims = array.metadata.dimension_names or ()
        variable = xr.Variable(dims, values, dict(array.attrs))
    except DamageError:
        raise
    except Exception as cause:  # a checksum, a decompressor, the file system: all mean the same to the reader
        raise DamageError(f"variable {name!r} cannot be read ({_reason(cause)})") from cause
    return variable if values.dtype.kind in _NUMBERS else variable.astype(object)


def _reason(cause: Exception) -> str:
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__
