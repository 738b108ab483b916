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
with new numbers. After a kill, a reader looks at what is there: an ``.old`` folder and no study -> the study is in ``.old``;
the new folder is in place -> that is the study, whatever the metadata lists. So either the previous or the new state stands,
whole. Readers write nothing; the next writer makes folders and metadata agree (``recover``). Adding a study takes steps 3 and
4 only.

Reading compares the study's own metadata with the consolidated copy, every chunk with its checksum, and all names and
contents with the digest that the metadata lists. A study is held in memory once while it is written or read. Writers of
different studies wait for each other only during a commit. Links and special files are refused (`plain_files`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas.decoding import CorruptionError, RefusedError, decode, digest_of
from headwise.atlas.disk import lock, sync, sync_tree, translate_read_errors, write_file
from headwise.atlas.encoding import encode
from headwise.atlas.format import (
    ROOT,
    STAGING,
    STUDY_NAME,
    UNLISTED,
    ConsolidatedMetadata,
    NodeMetadata,
    compare_metadata,
    node_metadata,
)
from headwise.atlas.plain_files import PlainFiles, is_plain_folder, read_plain, refuse_links
from headwise.core.errors import AtlasError
from headwise.core.files import translate_os_errors
from headwise.core.parsing import parse
from headwise.core.provenance import ATTRIBUTE


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
            if not (self.folder / ROOT).exists():
                self.refuse_occupied()
                self._make_staging_dir()
                with lock(self.staging_dir / "lock"):
                    if not (self.folder / ROOT).exists():
                        os.replace(self._staged("with", ConsolidatedMetadata(attrs, {})), self.folder / ROOT)
            elif not self._is_readable():
                return  # opening it says what is wrong
            self.recover()

    def refuse_occupied(self) -> None:
        """AtlasError if the folder holds files, and neither an atlas nor studies of one."""
        others = sorted({entry.name for entry in os.scandir(self.folder)} - UNLISTED)
        if others and ROOT not in others and not any(self._is_study(name) for name in others):
            raise AtlasError(
                f"{self.folder} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; "
                "choose a new or empty folder with -o."
            )

    def metadata(self) -> ConsolidatedMetadata | None:
        """The consolidated metadata; None if there is no folder, ValueError if it is not that of an atlas."""
        if not self.folder.exists():
            return None
        with translate_read_errors(str(self.folder / ROOT)):
            content = read_plain(self.folder, ROOT)
        if content is None:
            raise ValueError(f"{ROOT} is missing")
        return ConsolidatedMetadata.parse(content)

    def studies(self) -> list[str]:
        """The names of the committed studies."""
        with self.read_lock():
            return sorted(self.study_folders())

    def nodes(self) -> NodeMetadata:
        """The metadata of every study."""
        with self.read_lock():
            metadata, folders = self._metadata(), self.study_folders()
            found = {path: node for path, node in metadata.nodes.items() if path.split("/")[0] in folders}
            for study in folders.keys() - metadata.studies:
                with contextlib.suppress(CorruptionError):  # reading it raises the error
                    found |= node_metadata(study, PlainFiles(self.folder, folders[study]))
            return found

    def fingerprint(self) -> str:
        """Changes when a study does: the modification times and sizes of the metadata."""
        facts = []
        for file in (self.folder / ROOT, *sorted(self.folder.glob(f"*/{ROOT}"))):
            try:
                found = file.lstat()
            except OSError:
                continue
            facts.append(f"{file.relative_to(self.folder)} {found.st_mtime_ns} {found.st_size}")
        return "\n".join(facts)

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte verified."""
        with self.read_lock(), translate_read_errors(f"the study {study!r} in {self.folder}"):
            try:
                metadata = self._metadata()
                files = PlainFiles(self.folder, self.study_folders().get(study, study))
                expected, found = metadata.of(study), node_metadata(study, files)
                if expected:
                    compare_metadata(expected, found)
                version = metadata.versions.get(study, {}) if expected else {}
                return decode(files, version.get("sha256"))
            except RefusedError as cause:
                raise AtlasError(refused(study, self.folder, cause)) from cause
            except CorruptionError as cause:
                raise AtlasError(
                    f"The study {study!r} in {self.folder} is damaged: {cause}. Run the same headwise build again with "
                    f"--redo {study}, which recomputes only this study."
                ) from cause

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Add or replace a study, atomically: it is staged, flushed to disk, then committed."""
        new = self.staging_dir / f"{study}.new"
        with translate_os_errors(self.folder):
            self._make_staging_dir()
            with lock(self.staging_dir / f"{study}.lock"):
                self._cleanup(holding=study)
                try:
                    new.mkdir()
                    encode(dataset, new)
                    sync_tree(new)
                    self._commit(study)
                except BaseException:
                    shutil.rmtree(new, ignore_errors=True)
                    raise
                self._cleanup(holding=study)

    def recover(self) -> None:
        """Finish or undo the commit of a killed writer; for writers only, and a no-op where nothing may be written."""
        interrupted = any(self._replaced())
        if interrupted or self._metadata().studies != self.study_folders().keys():
            with contextlib.suppress(OSError):
                self._make_staging_dir()
                with lock(self.staging_dir / "lock"):
                    self._repair()

    @contextlib.contextmanager
    def read_lock(self) -> Iterator[None]:
        """Hold off commits, so that metadata and folders agree during the block."""
        with lock(refuse_links(self.folder, STAGING) / "lock", shared=True):
            yield

    def study_folders(self) -> dict[str, str]:
        """Study -> its folder below the atlas; the caller locks.

        That is a folder that is a Zarr group, one that is listed although its own metadata is lost, or the one that a killed
        writer had put aside. A listed one that is a link is named too: reading it raises the error.
        """
        listed = self._metadata().studies
        found = {}
        for entry in os.scandir(self.folder):
            plain = entry.is_dir(follow_symlinks=False) and (self.folder / entry.name / ROOT).exists()
            folder = entry.is_dir(follow_symlinks=False) or entry.is_symlink()
            if STUDY_NAME.fullmatch(entry.name) and (plain or (folder and entry.name in listed)):
                found[entry.name] = entry.name
        return {old.stem: f"{STAGING}/{old.name}" for old in self._replaced()} | found

    def _replaced(self) -> list[Path]:
        """The folders of studies that a writer has put aside, and not yet put into the trash."""
        staging = refuse_links(self.folder, STAGING)
        return [old for old in staging.glob("*.old") if STUDY_NAME.fullmatch(old.stem) and is_plain_folder(old)]

    def _make_staging_dir(self) -> None:
        refuse_links(self.folder, STAGING).mkdir(exist_ok=True)

    def _commit(self, study: str) -> None:
        """Put ``.swap/STUDY.new`` in the study's place; the caller holds the study's lock. Microseconds."""
        new, old, target = self.staging_dir / f"{study}.new", self.staging_dir / f"{study}.old", self.folder / study
        listing = self._listing(study, f"{STAGING}/{new.name}")
        with lock(self.staging_dir / "lock"):
            self._repair()
            before = self._metadata()
            without = self._staged("without", before.without(study))
            complete = self._staged("with", before.with_study(study, *listing))
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
        for old in self._replaced():
            if (self.folder / old.stem).exists():
                _trash(old)
            else:
                os.rename(old, self.folder / old.stem)
        folders, before = self.study_folders(), self._metadata()
        after = before
        for study in before.studies - folders.keys():
            after = after.without(study)
        for study in folders.keys() - before.studies:
            with contextlib.suppress(CorruptionError, AtlasError, OSError):  # corrupt: reading it raises the error
                after = after.with_study(study, *self._listing(study, folders[study]))
        if after != before:
            os.replace(self._staged("with", after), self.folder / ROOT)

    def _cleanup(self, *, holding: str) -> None:
        """Delete leftovers in the staging directory: those of the study whose lock is held, and of dead writers."""
        for entry in sorted(self.staging_dir.iterdir()):
            study = entry.name.split(".")[0]
            if entry.suffix not in (".new", ".trash"):
                continue
            if study == holding:
                _remove(entry)
            elif STUDY_NAME.fullmatch(study):
                with lock(self.staging_dir / f"{study}.lock", wait=False) as held:
                    if held:
                        _remove(entry)

    def _metadata(self) -> ConsolidatedMetadata:
        try:
            found = self.metadata()
        except ValueError as cause:
            damaged = f"damaged ({cause}); delete that file and run"
            problem = damaged if (self.folder / ROOT).exists() else "missing; give the folder of an atlas, or run"
            raise AtlasError(
                f"The metadata {self.folder / ROOT} is {problem} the same headwise build again, which restores it from the "
                "studies' own folders."
            ) from cause
        if found is None:
            raise AtlasError(f"There is no atlas at {self.folder}; make one with headwise build -o {self.folder}.")
        return found

    def _is_readable(self) -> bool:
        try:
            return self.metadata() is not None
        except ValueError:
            return False

    def _is_study(self, name: str) -> bool:
        """Whether a folder is a Zarr group with a provenance."""
        try:
            content = read_plain(self.folder, f"{name}/{ROOT}")
            return content is not None and ATTRIBUTE in parse(content, dict[str, Any])["attributes"]
        except (OSError, ValueError, KeyError, TypeError, AtlasError):
            return False

    def _listing(self, study: str, prefix: str) -> tuple[NodeMetadata, dict[str, str]]:
        """What the consolidated metadata says about a study in that folder: its nodes, and the digest of all its files."""
        files = PlainFiles(self.folder, prefix)
        digests = {key: hashlib.sha256(content).hexdigest() for key, content in files.items()}
        return node_metadata(study, files), {"sha256": digest_of(digests)}

    def _staged(self, name: str, metadata: ConsolidatedMetadata) -> Path:
        """A ``zarr.json``, flushed to disk in the staging directory; the caller holds the lock."""
        path = self.staging_dir / f"{name}.json"
        write_file(path, metadata.to_bytes())
        return path


def _trash(old: Path) -> None:
    """Mark a replaced study for deletion by one rename, so that an ``.old`` is always whole."""
    if old.exists():
        os.rename(old, old.with_name(f"{old.stem}.{time.time_ns()}.trash"))


def _remove(entry: Path) -> None:
    """Delete a leftover; of a link only the link."""
    if is_plain_folder(entry):
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def refused(study: str, where: object, cause: RefusedError) -> str:
    """The sentence about a study that no version of Headwise has written."""
    return (
        f"The study {study!r} in {where} is refused: {cause}. No version of Headwise writes this; do not use the atlas "
        "unless you trust where it comes from."
    )
