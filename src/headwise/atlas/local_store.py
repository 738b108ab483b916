"""How does a study replace another in a local folder, so that a kill -9 at any moment loses neither?

An atlas is a folder that is a Zarr group. Its ``zarr.json`` holds the consolidated metadata of all studies, so that plain
xarray opens it without a warning and looks at nothing that is not listed. Unfinished work lives in the staging directory
``.swap``, which has no ``zarr.json`` and so is not part of the group::

    zarr.json  profile/  spectral/        what a reader sees
    .swap/lock                            held exclusively during a commit (microseconds), shared by readers
    .swap/profile.lock                    held by the writer of the study
    .swap/profile.new/                    the study being written, then flushed to disk
    .swap/profile.old/                    the study being replaced
    .swap/profile.trash/                  to be deleted

A commit is four renames, prepared so that none can fail for lack of space: 1. a ``zarr.json`` without the study; 2. the old
folder to ``.old``; 3. the new folder into its place; 4. a ``zarr.json`` with the new study. A reader never sees old metadata
with new numbers. ``recover`` handles what a kill left behind: an ``.old`` folder and no study -> rename it back (undo 2); the
new folder is in place -> trash the old one and list the new (finish 4). So either the previous or the new state stands,
whole. Adding a study takes steps 3 and 4 only.

Reading compares the study's own metadata with the consolidated copy, and every chunk with its checksum. A study is held in
memory once while it is written or read. Writers of different studies wait for each other only during a commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas.disk import lock, sync, sync_tree, translate_os_errors, write_file
from headwise.atlas.encoding import CorruptionError, decode, encode
from headwise.atlas.format import ROOT, STAGING, UNLISTED, ConsolidatedMetadata, NodeMetadata, compare_metadata
from headwise.core.errors import AtlasError
from headwise.core.provenance import ATTRIBUTE

__all__ = ["LocalStore"]


class LocalStore:
    """The studies of an atlas in a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.staging_dir = folder, folder / STAGING

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas in an empty folder, unless another process just did.

        A folder that holds studies is an atlas whose metadata was lost: it is restored from them.
        """
        with translate_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / ROOT).exists():
                return
            self.refuse_occupied()
            self.staging_dir.mkdir(exist_ok=True)
            with lock(self.staging_dir / "lock"):
                if not (self.folder / ROOT).exists():
                    os.replace(self._staged("with", ConsolidatedMetadata(attrs, {})), self.folder / ROOT)
            self.recover()

    def refuse_occupied(self) -> None:
        """AtlasError if the folder holds files, and neither an atlas nor studies of one."""
        others = sorted({entry.name for entry in os.scandir(self.folder)} - UNLISTED)
        if others and ROOT not in others and not any(_is_study(self.folder / name) for name in others):
            raise AtlasError(
                f"{self.folder} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; "
                "choose a new or empty folder with -o."
            )

    def metadata(self) -> ConsolidatedMetadata | None:
        """The consolidated metadata; None if there is no folder, ValueError if it cannot be read."""
        if not self.folder.exists():
            return None
        try:
            return self._metadata()
        except OSError as cause:
            raise ValueError(str(cause)) from cause

    def studies(self) -> list[str]:
        """The names of the committed studies."""
        with self.read_lock():
            return self.committed_studies()

    def nodes(self) -> NodeMetadata:
        """The metadata of every study."""
        with self.read_lock():
            return self._metadata().nodes

    def fingerprint(self) -> str:
        """Changes when a study does: the modification times and sizes of the metadata."""
        facts = []
        for file in (self.folder / ROOT, *sorted(self.folder.glob(f"*/{ROOT}"))):
            try:
                found = file.stat()
            except OSError:
                continue
            facts.append(f"{file.relative_to(self.folder)} {found.st_mtime_ns} {found.st_size}")
        return "\n".join(facts)

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte verified."""
        with self.read_lock():
            try:
                expected = self._metadata().of(study)
                try:
                    found = self._nodes_below(self.folder / study, study)
                except (OSError, ValueError) as cause:
                    raise CorruptionError(f"its metadata cannot be read ({cause})") from cause
                if expected:
                    compare_metadata(expected, found)
                return decode(self.folder / study)
            except CorruptionError as cause:
                raise AtlasError(
                    f"The study {study!r} in {self.folder} is damaged: {cause}. Run the same headwise build again with "
                    f"--redo {study}, which recomputes only this study."
                ) from cause

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Add or replace a study, atomically: it is staged, flushed to disk, then committed."""
        new = self.staging_dir / f"{study}.new"
        with translate_os_errors(self.folder):
            self.staging_dir.mkdir(exist_ok=True)
            with lock(self.staging_dir / f"{study}.lock"):
                self._cleanup(holding=study)
                try:
                    encode(dataset, new)
                    sync_tree(new)
                    self._commit(study, self._nodes_below(new, study))
                except BaseException:
                    shutil.rmtree(new, ignore_errors=True)
                    raise
                self._cleanup(holding=study)

    def recover(self) -> None:
        """Finish or undo the commit of a killed writer; a no-op where nothing may be written."""
        interrupted = any(self.staging_dir.glob("*.old"))
        if interrupted or self._metadata().studies != set(self.committed_studies()):
            with contextlib.suppress(OSError), lock(self.staging_dir / "lock"):
                self._repair()

    @contextlib.contextmanager
    def read_lock(self) -> Iterator[None]:
        """Recover, then hold off commits, so that metadata and folders agree during the block."""
        self.recover()
        with lock(self.staging_dir / "lock", shared=True):
            yield

    def committed_studies(self) -> list[str]:
        """Folders that are Zarr groups, or that are listed although their own metadata is lost; the caller locks."""
        listed = self._metadata().studies
        folders = (entry.name for entry in os.scandir(self.folder) if entry.is_dir() and not entry.name.startswith("."))
        return sorted(name for name in folders if name in listed or (self.folder / name / ROOT).exists())

    def _commit(self, study: str, nodes: NodeMetadata) -> None:
        """Put ``.swap/STUDY.new`` in the study's place; the caller holds the study's lock. Microseconds."""
        new, old, target = self.staging_dir / f"{study}.new", self.staging_dir / f"{study}.old", self.folder / study
        with lock(self.staging_dir / "lock"):
            self._repair()
            before = self._metadata()
            without = self._staged("without", before.without(study))
            complete = self._staged("with", before.with_study(study, nodes))
            if target.exists():
                os.replace(without, self.folder / ROOT)
                os.rename(target, old)
            os.rename(new, target)
            os.replace(complete, self.folder / ROOT)
            _trash(old)
            for folder in (self.folder, self.staging_dir):
                sync(folder)

    def _repair(self) -> None:
        """Make folders and metadata agree; the caller holds the lock."""
        for old in self.staging_dir.glob("*.old"):
            if (self.folder / old.stem).exists():
                _trash(old)
            else:
                os.rename(old, self.folder / old.stem)
        present, before = set(self.committed_studies()), self._metadata()
        after = before
        for study in before.studies - present:
            after = after.without(study)
        for study in present - before.studies:
            with contextlib.suppress(ValueError, OSError):  # corrupt: reading it raises the error
                after = after.with_study(study, self._nodes_below(self.folder / study, study))
        if after != before:
            os.replace(self._staged("with", after), self.folder / ROOT)

    def _cleanup(self, *, holding: str) -> None:
        """Delete leftovers in the staging directory: those of the study whose lock is held, and of dead writers."""
        for entry in sorted(self.staging_dir.iterdir()):
            study = entry.name.split(".")[0]
            if entry.suffix not in (".new", ".trash"):
                continue
            if study == holding:
                shutil.rmtree(entry, ignore_errors=True)
                continue
            with lock(self.staging_dir / f"{study}.lock", wait=False) as held:
                if held:
                    shutil.rmtree(entry, ignore_errors=True)

    def _metadata(self) -> ConsolidatedMetadata:
        return ConsolidatedMetadata.parse((self.folder / ROOT).read_bytes())

    def _nodes_below(self, folder: Path, study: str) -> NodeMetadata:
        """The metadata of a study in its own folder; OSError or ValueError if it cannot be read."""
        nodes = {}
        for path in sorted(folder.rglob(ROOT)):
            below = path.parent.relative_to(folder).as_posix()
            nodes[study if below == "." else f"{study}/{below}"] = json.loads(path.read_bytes())
        return nodes

    def _staged(self, name: str, metadata: ConsolidatedMetadata) -> Path:
        """A ``zarr.json``, flushed to disk in the staging directory; the caller holds the lock."""
        path = self.staging_dir / f"{name}.json"
        write_file(path, metadata.to_bytes())
        return path


def _trash(old: Path) -> None:
    """Mark a replaced study for deletion by one rename, so that an ``.old`` is always whole."""
    if old.exists():
        os.rename(old, old.with_name(f"{old.stem}.{time.time_ns()}.trash"))


def _is_study(folder: Path) -> bool:
    """Whether it is a Zarr group with a provenance."""
    try:
        return ATTRIBUTE in json.loads((folder / ROOT).read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
