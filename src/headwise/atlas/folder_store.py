"""How does a study get into a folder and out of it, whole or not at all?

Writing: the study is written into ``.swap``, flushed, and put in its place by renames (see ``swap``); a failure before that
leaves what was there. Reading: the study's metadata is compared with the atlas's list, every chunk with its checksum; what
does not agree is refused, never guessed.

Cost: a study is held in memory once while it is written or read. Writers of different studies do not wait for each other but
for the renames; two writers of one study do. This module does not know what the numbers mean: ``schema`` does.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.atlas import swap
from headwise.atlas.disk import explained, lock, sync_tree
from headwise.atlas.encoding import DamageError, decode, encode
from headwise.atlas.root import ROOT, Listing, Root, compare
from headwise.core.errors import AtlasError
from headwise.core.provenance import ATTRIBUTE

__all__ = ["FolderStore"]

OURS = {".swap", ".shards"}


class FolderStore:
    """The studies of an atlas in a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, attrs: dict[str, Any]) -> None:
        """Make an empty atlas in a folder that holds nothing else, unless somebody else just did.

        A folder that holds studies is an atlas whose list was lost: they are listed anew.
        """
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / ROOT).exists():
                return
            self.refuse_occupied()
            swap.create(self.folder, attrs)
            swap.recover(self.folder)

    def refuse_occupied(self) -> None:
        """AtlasError where the folder holds things, and neither an atlas nor studies of one are among them."""
        others = sorted({entry.name for entry in os.scandir(self.folder)} - OURS)
        if others and ROOT not in others and not any(_is_study(self.folder / name) for name in others):
            raise AtlasError(
                f"{self.folder} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; "
                "choose a new or empty folder with -o."
            )

    def root(self) -> Root | None:
        """The atlas's list; None where there is none. ValueError where it is broken."""
        if not self.folder.exists():
            return None
        try:
            return swap.root(self.folder)
        except OSError as cause:
            raise ValueError(str(cause)) from cause

    def studies(self) -> list[str]:
        """Those that are there."""
        with swap.settled(self.folder):
            return swap.studies(self.folder)

    def listing(self) -> Listing:
        """The metadata of every study."""
        with swap.settled(self.folder):
            return swap.root(self.folder).nodes

    def state(self) -> str:
        """What changes when a study does: the times and sizes of the metadata."""
        facts = []
        for file in (self.folder / ROOT, *sorted(self.folder.glob(f"*/{ROOT}"))):
            try:
                found = file.stat()
            except OSError:
                continue
            facts.append(f"{file.relative_to(self.folder)} {found.st_mtime_ns} {found.st_size}")
        return "\n".join(facts)

    def read(self, study: str) -> xr.Dataset:
        """A study in memory, every byte of it verified."""
        with swap.settled(self.folder):
            try:
                self._compare(study)
                return decode(self.folder / study)
            except DamageError as cause:
                raise AtlasError(
                    f"The study {study!r} in {self.folder} is damaged: {cause}. Run the same headwise build again with "
                    f"--redo {study}, which computes only this study anew."
                ) from cause

    def write(self, study: str, dataset: xr.Dataset) -> None:
        """Put a study in, in the place of the one that is there, if any."""
        work = swap.workplace(self.folder)
        new = work / f"{study}.new"
        with explained(self.folder):
            work.mkdir(exist_ok=True)
            with lock(work / f"{study}.lock"):
                swap.discard(self.folder, holding=study)
                try:
                    encode(dataset, new)
                    sync_tree(new)
                    swap.enter(self.folder, study, swap.metadata_of(new, study))
                except BaseException:
                    shutil.rmtree(new, ignore_errors=True)
                    raise
                swap.discard(self.folder, holding=study)

    def recover(self) -> None:
        """Finish or undo what a killed writer left half done."""
        swap.recover(self.folder)

    def _compare(self, study: str) -> None:
        """The study's own metadata against the copy in the atlas's list, where that has one."""
        expected = swap.root(self.folder).of(study)
        try:
            found = swap.metadata_of(self.folder / study, study)
        except (OSError, ValueError) as cause:
            raise DamageError(f"its metadata cannot be read ({cause})") from cause
        if expected:
            compare(expected, found)


def _is_study(folder: Path) -> bool:
    """Whether it is a Zarr group that says where its numbers come from."""
    try:
        return ATTRIBUTE in json.loads((folder / ROOT).read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
