"""How does a Dataset become Zarr, so that no corrupt number is ever read back?

Every chunk is compressed (Zstandard) and ends with a CRC-32C, so that a flipped bit or a truncated chunk raises an error when
it is read. Zarr reads a missing chunk as zeros; therefore all chunks are written, including empty ones, and counted before
reading (`decoding`). Text is stored as variable-length UTF-8 (the only text type of the Zarr 3 specification) and comes back
as Python ``str`` in an object array. There is no fill value, NaN is stored like any number: values return bit for bit.

``zip_files`` makes one zip archive of the Zarr group: the form of a study that is staged in an object store. Cost: one copy
of the data in memory.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas.decoding import CorruptionError, RefusedError
from headwise.core.errors import AtlasError

_NUMBERS = "biuf"


def encode(dataset: xr.Dataset, store: Any) -> None:
    """Write a Dataset as the root group of an empty Zarr store (a path, or a zarr store object).

    Zarr is loaded here, because that takes a third of a second, and reading does not need it.
    """
    from zarr.codecs import Crc32cCodec, ZstdCodec

    plain = dataset.drop_encoding()
    plain = plain.assign_coords({name: storable(str(name), plain[name].variable) for name in plain.coords})
    plain = plain.assign({name: storable(str(name), plain[name].variable) for name in plain.data_vars})
    layout = {name: {"compressors": [ZstdCodec(), Crc32cCodec()], "_FillValue": None} for name in plain.variables}
    plain.to_zarr(store, mode="w", zarr_format=3, consolidated=False, encoding=layout, write_empty_chunks=True)


def encode_files(dataset: xr.Dataset) -> dict[str, bytes]:
    """The files of a Dataset's Zarr group, key -> content, sorted."""
    from zarr.storage import MemoryStore

    chunks: MutableMapping[str, Any] = {}
    encode(dataset, MemoryStore(chunks))
    return {key: chunk.to_bytes() for key, chunk in sorted(chunks.items())}


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """One zip archive, without timestamps, so that the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def unzip_files(content: bytes) -> dict[str, bytes]:
    """The files of a zip archive, as `zip_files` makes it; CorruptionError if a checksum is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise RefusedError("it is a compressed archive, which Headwise does not write")
            if sum(member.file_size for member in members) > len(content):
                raise RefusedError("it declares more bytes than it holds")
            return {member.filename: archive.read(member) for member in members}
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError, struct.error) as cause:
        raise CorruptionError(str(cause) or "it is cut off") from cause


def storable(name: str, variable: xr.Variable) -> xr.Variable:
    """Numbers as they are, text as numpy's text; AtlasError for anything else."""
    variable = variable.to_base_variable()
    if variable.dtype.kind in _NUMBERS:
        return variable
    values = np.asarray(variable.values, dtype=object)
    wrong = [value for value in values.ravel() if not isinstance(value, str)]
    if wrong:
        raise AtlasError(
            f"The variable {name!r} holds {wrong[0]!r}; an atlas stores numbers, truth values and text only."
        )
    return xr.Variable(variable.dims, values.astype(np.dtypes.StringDType()), variable.attrs)
