"""Headwise's cache folder, and atomic writes into it.

An entry (a de-quantised copy of a model) is written to a temporary folder next to its final path and then renamed. The
rename is atomic: a killed process leaves only a temporary folder, and of two processes that create the same entry
concurrently the first rename wins.

The folder is ``$HEADWISE_CACHE``; else ``$XDG_CACHE_HOME/headwise``; else ``%LOCALAPPDATA%\\\\headwise`` on Windows and
``~/.cache/headwise`` elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headwise.core.errors import ModelError

UNFINISHED = ".unfinished-"
ABANDONED_AFTER = 3600.0  # seconds without a change, after which a temporary folder is deleted


def cache_folder() -> Path:
    """The path of the cache folder; not created here."""
    if own := os.environ.get("HEADWISE_CACHE"):
        return Path(own).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "headwise"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "headwise"
    return Path.home() / ".cache" / "headwise"


def get_or_create(folder: Path, write: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> Path:
    """``folder``, filled by ``write`` unless it is already complete."""
    if is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        unfinished = folder.parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        unfinished.mkdir()
        try:
            write(unfinished)
            _move(unfinished, folder, is_complete)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            f"Headwise could not write to its cache folder {folder.parent} ({error.strerror or error}); free some space, "
            "or set HEADWISE_CACHE to a writable folder."
        ) from error
    return folder


def _move(unfinished: Path, folder: Path, is_complete: Callable[[Path], bool]) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if is_complete(folder):  # another process was first
            return
        if not folder.exists():
            raise
        folder.rename(unfinished.with_name(f"{UNFINISHED}{uuid.uuid4().hex}"))  # damaged: deleted later
        unfinished.rename(folder)


def _remove_abandoned(parent: Path) -> None:
    """Delete the temporary folders of killed processes."""
    for leftover in parent.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            changed = max(path.stat().st_mtime for path in (leftover, *leftover.iterdir()))
            if time.time() - changed > ABANDONED_AFTER:
                shutil.rmtree(leftover, ignore_errors=True)
