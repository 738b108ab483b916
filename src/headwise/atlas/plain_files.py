"""An atlas holds plain files in plain folders: nothing in it leads out of it, and nothing in it can hang a reader.

An atlas that somebody sent may hold symbolic links (to a file that would then be overwritten, or uploaded), pipes (opening
one waits for ever) and files that claim to be terabytes long. Below the atlas's own folder, therefore, every file is opened
without following links, and only if it is a regular file that fits into memory; a folder that is a link is not entered. The
folder that the user names may be a link: it is theirs.

One kind of link is known: the cache of the hub keeps ``snapshots/REVISION/FILE`` as a link to ``blobs/DIGEST``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from headwise.core.errors import AtlasError
from headwise.core.memory import LARGE, in_bytes, room_for

METADATA = "zarr.json"
_BLOB = re.compile(r"(?:\.\./)+blobs/([0-9a-f]{40,64})")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_FOLLOW |= getattr(os, "O_BINARY", 0)


class PlainFiles(Mapping[str, bytes]):
    """The files below a folder, key -> content; each is read when it is asked for, metadata once and others each time."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        cut = len(prefix) + 1
        self._keys: dict[str, bytes | None] = {key[cut:]: None for key in list_plain(root, prefix)}

    def __getitem__(self, key: str) -> bytes:
        content = self._keys[key]
        if content is None:
            content = read_plain(self._root, f"{self._prefix}/{key}")
        if content is None:
            raise KeyError(key)
        if key.endswith(METADATA):
            self._keys[key] = content
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def read_plain(root: Path, key: str) -> bytes | None:
    """The content of a file below ``root``; None if there is none. AtlasError if it is not a plain file; OSError passes."""
    path = refuse_links(root, key)
    try:
        handle = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "a pipe, a socket or a device")
        if found.st_size > LARGE and not room_for(found.st_size):
            raise AtlasError(
                f"{path} has {in_bytes(found.st_size)}, more than there is memory; it is not read. Free some memory, or "
                "delete that file if you do not know it."
            )
        with open(handle, "rb", closefd=False) as file:
            return file.read(found.st_size)  # no more than was checked, should it grow meanwhile
    finally:
        os.close(handle)


def refuse_links(root: Path, key: str) -> Path:
    """The path of a key, none of whose parts below ``root`` is a link; the file in the blobs for a link of the hub's cache."""
    path = str(root)
    parts = [part for part in key.split("/") if part]
    if ".." in parts:
        raise AtlasError(f"{key!r} leads out of the atlas {root}; it is not opened.")
    for part in parts:
        path = os.path.join(path, part)
        if os.path.islink(path):
            blob = _blob(root, Path(path)) if part is parts[-1] else None
            if blob is None:
                raise _refused(Path(path), "a symbolic link")
            return blob
    return Path(path)


def list_plain(root: Path, prefix: str = "") -> list[str]:
    """The keys of the files below a prefix, sorted; AtlasError if there is a link or a special file among them."""
    start = refuse_links(root, prefix)
    found: list[str] = []
    folders = [start]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):  # another process may delete folders meanwhile
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            if entry.is_symlink():
                if _blob(root, path) is None:
                    raise _refused(path, "a symbolic link")
            elif not entry.is_file(follow_symlinks=False) and _is_special(path):
                raise _refused(path, "a pipe, a socket or a device")
            found.append(path.relative_to(root).as_posix())
    return sorted(found)


def is_plain_folder(path: Path) -> bool:
    """Whether it is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # deleted meanwhile
        return False


def _blob(root: Path, link: Path) -> Path | None:
    """The file that a link of the hub's cache stands for; None for any other link."""
    match = _BLOB.fullmatch(os.readlink(link).replace(os.sep, "/"))
    where = root.absolute()
    if match is None or where.parent.name != "snapshots":
        return None
    return where.parent.parent / "blobs" / match[1]


def _refused(path: Path, what: str) -> AtlasError:
    return AtlasError(f"{path} is {what}, and an atlas holds plain files only; nothing was opened. Delete it to go on.")
