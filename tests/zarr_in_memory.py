"""A Zarr store of given files, so that plain xarray reads what an object store holds."""

from collections.abc import Mapping

from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore


def zarr_memory_store(files: Mapping[str, bytes]) -> MemoryStore:
    buffer = default_buffer_prototype().buffer
    return MemoryStore({key: buffer.from_bytes(content) for key, content in files.items()}, read_only=True)
