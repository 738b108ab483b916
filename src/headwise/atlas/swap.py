"""How does a new study take the place of an old one, so that a kill -9 at any moment loses neither?

An atlas is a folder that is a Zarr group. Its ``zarr.json`` lists the metadata of all studies ("consolidated"), so that
plain xarray opens it at once and without a warning, and looks at nothing that is not listed. All that is not finished
lives in ``.swap``, which has no ``zarr.json`` and so is no part of the group::

    zarr.json  profile/  spectral/        what a reader sees
    .swap/lock                            held while names change (some microseconds), shared by readers
    .swap/profile.lock                    held by the one who writes the study
    .swap/profile.new/                    the study being written, then flushed to the disk
    .swap/profile.old/                    the study being replaced
    .swap/profile.trash/                  to be deleted

Replacing is four renames, prepared so that nothing between them can fail for want of space: 1. a ``zarr.json`` without
the study; 2. the old folder to ``.old``; 3. the new folder in; 4. a ``zarr.json`` with the new study. A reader can
never meet the old list with the new numbers. ``recover`` looks at what a kill left: old folder aside and none in its
place -> put it back (undo 2); new folder in place -> bin the old and list the new (finish 4). So the previous or the
new state stands, whole. Adding a study that was not there is steps 3 and 4 only.

The list is a second copy of every study's metadata: reading compares the two, so that damage to either is seen.

Cost: one pass over a study's small JSON files. This module does not know what a study holds.
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

from headwise.atlas.disk import lock, sync, write_file
from headwise.atlas.root import ROOT, Listing, Root

__all__ = ["create", "discard", "enter", "metadata_of", "recover", "root", "settled", "studies", "workplace"]

_SWAP = ".swap"


def workplace(atlas: Path) -> Path:
    """The folder of unfinished things."""
    return atlas / _SWAP


def create(atlas: Path, attrs: dict[str, Any]) -> None:
    """Make an empty atlas in an existing folder, unless somebody else just did."""
    workplace(atlas).mkdir(exist_ok=True)
    with lock(workplace(atlas) / "lock"):
        if not (atlas / ROOT).exists():
            os.replace(_prepared(atlas, "with", Root(attrs, {})), atlas / ROOT)


def root(atlas: Path) -> Root:
    """The atlas's list; raises OSError or ValueError where there is none."""
    return Root.parse((atlas / ROOT).read_bytes())


def metadata_of(folder: Path, study: str) -> Listing:
    """The metadata of a study as its own folder has it; raises OSError or ValueError where that is broken."""
    nodes = {}
    for path in sorted(folder.rglob(ROOT)):
        below = path.parent.relative_to(folder).as_posix()
        nodes[study if below == "." else f"{study}/{below}"] = json.loads(path.read_bytes())
    return nodes


def studies(atlas: Path) -> list[str]:
    """The studies that are there: folders that are Zarr groups, or that are listed though their metadata is lost."""
    names = root(atlas).studies
    folders = (entry.name for entry in os.scandir(atlas) if entry.is_dir() and not entry.name.startswith("."))
    return sorted(name for name in folders if name in names or (atlas / name / ROOT).exists())


def enter(atlas: Path, study: str, nodes: Listing) -> None:
    """Put ``.swap/STUDY.new`` in the study's place; the caller holds the study's lock. Microseconds."""
    work = workplace(atlas)
    new, old, place = work / f"{study}.new", work / f"{study}.old", atlas / study
    with lock(work / "lock"):
        _repair(atlas)
        before = root(atlas)
        without = _prepared(atlas, "without", before.without(study))
        complete = _prepared(atlas, "with", before.listing(study, nodes))
        if place.exists():
            os.replace(without, atlas / ROOT)
            os.rename(place, old)
        os.rename(new, place)
        os.replace(complete, atlas / ROOT)
        _bin(old)
        for folder in (atlas, work):
            sync(folder)


def recover(atlas: Path) -> None:
    """Finish or undo what a killed writer left half done; where nothing is, or nothing may be changed, only look."""
    if _half_done(atlas):
        with contextlib.suppress(OSError), lock(workplace(atlas) / "lock"):
            _repair(atlas)


@contextlib.contextmanager
def settled(atlas: Path) -> Iterator[None]:
    """For readers: recover, then hold all swaps off, so that what is listed, what is there and what is read are one."""
    recover(atlas)
    with lock(workplace(atlas) / "lock", shared=True):
        yield


def discard(atlas: Path, *, holding: str) -> None:
    """Delete leftovers in ``.swap``: those of the study whose lock the caller holds, and of writers that are dead."""
    work = workplace(atlas)
    for entry in sorted(work.iterdir()):
        study = entry.name.split(".")[0]
        if entry.suffix not in (".new", ".trash"):
            continue
        if study == holding:
            shutil.rmtree(entry, ignore_errors=True)
            continue
        with lock(work / f"{study}.lock", wait=False) as held:
            if held:
                shutil.rmtree(entry, ignore_errors=True)


def _half_done(atlas: Path) -> bool:
    return any(workplace(atlas).glob("*.old")) or root(atlas).studies != set(studies(atlas))


def _repair(atlas: Path) -> None:
    """Bring folders and list into agreement; the caller holds the lock. Lists anew only what is not listed."""
    for old in workplace(atlas).glob("*.old"):
        place = atlas / old.stem
        if place.exists():
            _bin(old)
        else:
            os.rename(old, place)
    there, before = set(studies(atlas)), root(atlas)
    right = before
    for study in before.studies - there:
        right = right.without(study)
    for study in there - before.studies:
        with contextlib.suppress(ValueError, OSError):  # broken: reading it will say so
            right = right.listing(study, metadata_of(atlas / study, study))
    if right != before:
        os.replace(_prepared(atlas, "with", right), atlas / ROOT)


def _bin(old: Path) -> None:
    """Set a replaced study aside for ``discard``, in one rename: an ``.old`` is always whole."""
    if old.exists():
        os.rename(old, old.with_name(f"{old.stem}.{time.time_ns()}.trash"))


def _prepared(atlas: Path, name: str, after: Root) -> Path:
    """A ``zarr.json`` of the atlas, flushed to the disk under another name; the caller holds the lock."""
    path = workplace(atlas) / f"{name}.json"
    write_file(path, after.content())
    return path
