"""How does a Dataset get to disk and back? Four verbs, and nothing else in Headwise touches the files of an atlas.

``write_study`` and ``read_study`` keep one study in an atlas, which is a folder that plain
``xarray.open_datatree(path, engine="zarr")`` opens; ``write_file`` and ``read_file`` keep one Dataset in one file (a
zipped Zarr group), as shards do. Writing: the study is written into ``.swap``, flushed, and put in its place by
renames (see ``swap``); a failure before that leaves what was there. Reading: the study's metadata is compared with the
atlas's list, every chunk with its checksum; what does not agree is refused, never guessed.

Cost: a study is held in memory once while it is written or read. Writers of different studies do not wait for each
other but for the renames; two writers of one study do. This module does not know what the numbers mean: ``schema``
does. A plain xarray reader who opened a study lazily, while it is replaced, must open it again.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import zipfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import xarray as xr
from zarr.storage import MemoryStore, ZipStore

from headwise.atlas import swap
from headwise.atlas.disk import explained, lock, replace_file, sync_tree
from headwise.atlas.encoding import DamageError, decode, encode
from headwise.errors import AtlasError

__all__ = ["read_file", "read_study", "write_file", "write_study"]


def write_study(atlas: Path, study: str, dataset: xr.Dataset) -> None:
    """Put a study into an atlas, in the place of the one that is there, if any."""
    work = swap.workplace(atlas)
    new = work / f"{study}.new"
    with explained(atlas):
        work.mkdir(exist_ok=True)
        with lock(work / f"{study}.lock"):
            swap.discard(atlas, holding=study)
            try:
                encode(dataset, new)
                sync_tree(new)
                swap.enter(atlas, study, swap.metadata_of(new, study))
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            swap.discard(atlas, holding=study)


def read_study(atlas: Path, study: str) -> xr.Dataset:
    """A study in memory, every byte of it verified."""
    with swap.settled(atlas):
        try:
            _compare(atlas, study)
            return decode(atlas / study)
        except DamageError as cause:
            raise AtlasError(
                f"The study {study!r} in {atlas} is damaged: {cause}. Run the same headwise build again with "
                f"--redo {study}, which computes only this study anew."
            ) from cause


def _compare(atlas: Path, study: str) -> None:
    """The study's own metadata against the copy in the atlas's list."""
    expected = swap.listed(swap.listing(atlas), study)
    try:
        found = swap.metadata_of(atlas / study, study)
    except (OSError, ValueError) as cause:
        raise DamageError(f"its metadata cannot be read ({cause})") from cause
    differ = sorted(path for path in expected | found if expected.get(path) != found.get(path))
    if expected and differ:
        _, _, variable = differ[-1].partition("/")
        raise DamageError(
            f"the metadata of {f'variable {variable!r}' if variable else 'the study'} was changed or lost"
        )


def write_file(path: Path, dataset: xr.Dataset) -> None:
    """One Dataset in one file, which is there whole or not at all."""
    chunks: MutableMapping[str, Any] = {}
    encode(dataset, MemoryStore(chunks))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, chunk in sorted(chunks.items()):
            archive.writestr(name, chunk.to_bytes())
    with explained(path.parent):
        replace_file(path, buffer.getvalue())


def read_file(path: Path) -> xr.Dataset:
    """Read it back, verified; AtlasError where the file is missing or damaged."""
    if not path.is_file():
        raise AtlasError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise DamageError(f"the part {broken!r} of it was changed")
        with contextlib.closing(ZipStore(path, mode="r")) as store:
            return decode(store)
    except (DamageError, zipfile.BadZipFile, OSError, ValueError) as cause:
        raise AtlasError(f"The file {path} is damaged: {cause}. Delete it and run the same command again.") from cause
