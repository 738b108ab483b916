"""Files that a verb writes: the suffix says the format, a missing folder or a full disk is told in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headwise.atlas.disk import translate_os_errors
from headwise.core.errors import DataError

__all__ = ["written"]


def written(path: Path, formats: Mapping[str, Callable[[Path], object]]) -> None:
    """Let the writer of this suffix write the file."""
    if path.suffix not in formats:
        known = ", ".join(formats)
        raise DataError(f"-o takes a file that ends in {known}, not {path.suffix or 'a name without a suffix'!r}.")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}; make it first, or choose another place with -o.")
    with translate_os_errors(path):
        formats[path.suffix](path)
