"""Headwise's cache folder, and the one way to put something into it.

What is made once and kept (a de-quantised copy of a model) is written to a temporary folder beside its place and then
renamed. A rename is one step: a process that is killed half-way leaves a temporary folder and nothing else, and two
processes that make the same thing at once both end with it whole (the first rename wins, the other copy is dropped).

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

__all__ = ["cache_folder", "keep"]

UNFINISHED = ".unfinished-"
ABANDONED_AFTER = 3600.0  # seconds without a change, after which a temporary folder belongs to nobody


def cache_folder() -> Path:
    """Where Headwise keeps what it made; not created here."""
    if own := os.environ.get("HEADWISE_CACHE"):
        return Path(own).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "headwise"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "headwise"
    return Path.home() / ".cache" / "headwise"


def keep(folder: Path, write: Callable[[Path], None], is_whole: Callable[[Path], bool]) -> Path:
    """``folder``, filled by ``write`` unless it is whole already."""
    if is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        unfinished = folder.parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        unfinished.mkdir()
        try:
            write(unfinished)
            _move(unfinished, folder, is_whole)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            f"Headwise could not write to its cache folder {folder.parent} ({error.strerror or error}); make room, or "
            "set HEADWISE_CACHE to a folder that you may write to."
        ) from error
    return folder


def _move(unfinished: Path, folder: Path, is_whole: Callable[[Path], bool]) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if is_whole(folder):  # another process was first
            return
        if not folder.exists():
            raise
        folder.rename(unfinished.with_name(f"{UNFINISHED}{uuid.uuid4().hex}"))  # damaged: out of the way, swept later
        unfinished.rename(folder)


def _sweep(parent: Path) -> None:
    """Removes what killed processes left behind."""
    for leftover in parent.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            changed = max(path.stat().st_mtime for path in (leftover, *leftover.iterdir()))
            if time.time() - changed > ABANDONED_AFTER:
                shutil.rmtree(leftover, ignore_errors=True)
