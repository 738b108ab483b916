"""A local folder as a place: keys are files below it.

Writing goes beside the file, to the disk, then by a rename into its place, so that a kill or a full disk leaves what was
there. What the disk refuses is an AtlasError with the remedy.

Cost: one flush to the disk per key written. This module does not know what an atlas is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headwise.atlas.disk import create_file, explained, replace_file
from headwise.core.errors import AtlasError

__all__ = ["Folder"]


class Folder:
    """A local folder, which need not exist before something is written.

    >>> import tempfile
    >>> place = Folder(tempfile.mkdtemp())
    >>> place.write("a/b", b"text")
    >>> place.read("a/b"), place.read("a/c"), place.keys("a")
    (b'text', None, ['a/b'])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: Path = Path(folder)

    @property
    def name(self) -> str:
        """The folder's name, also where it is typed as `.`"""
        return self.folder.name if self.folder.name not in ("", "..") else self.folder.resolve().name

    @property
    def address(self) -> str:
        """The folder's absolute path, links followed."""
        return str(self.folder.resolve())

    def read(self, key: str) -> bytes | None:
        """The file's content; None where there is none."""
        try:
            return (self.folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except PermissionError as cause:
            raise AtlasError(f"{self.folder / key} may not be read; change its permissions, then try again.") from cause

    def write(self, key: str, content: bytes) -> None:
        """Write the file, and the folders above it."""
        path = self.folder / key
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)

    def create(self, key: str, content: bytes) -> bool:
        """Write the file where none is."""
        path = self.folder / key
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            return create_file(path, content)

    def delete(self, key: str) -> None:
        """Delete the file, if there is one."""
        with explained(self.folder):
            (self.folder / key).unlink(missing_ok=True)

    def keys(self, prefix: str = "") -> list[str]:
        """The files below, without those that are being written."""
        walked = os.walk(self.folder / prefix)  # which does not mind folders that somebody else takes away meanwhile
        files = (Path(parent, name) for parent, _, names in walked for name in names)
        return sorted(path.relative_to(self.folder).as_posix() for path in files if path.suffix != ".tmp")

    def clear(self, prefix: str) -> None:
        """Delete a folder below, with all it holds."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"Folder({str(self.folder)!r})"
