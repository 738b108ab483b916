"""How does Headwise touch a disk, so that a kill or a full disk never costs what was there?

Three small things: a lock that a killed process cannot leave behind (``flock``: the kernel lets go of it), a file that
is replaced whole or not at all (written beside, flushed, renamed), and plain words for what a disk may refuse.

Cost: one flush to the disk per file written. This module does not know what the files mean. Where the system has no
``flock`` (Windows) there is no lock: one writer at a time is then up to the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from headwise.core.errors import AtlasError

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

__all__ = ["create_file", "explained", "lock", "replace_file", "sync", "sync_tree", "write_file"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_CROSSED = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_LOCKLESS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # some network disks: go on without


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the disk refuses while writing under ``path`` into an AtlasError with the remedy."""
    try:
        yield
    except OSError as cause:
        if cause.errno in _FULL:
            what = "the disk is full; free some space, or choose another folder with -o"
        elif cause.errno in _CLOSED:
            what = "it may not be written to; change its permissions, or choose another folder with -o"
        elif cause.errno == errno.EFBIG:
            what = "no file may be longer than it allows (see ulimit -f); raise that, or choose another folder with -o"
        elif cause.errno in _CROSSED:
            file = _in_the_way(Path(cause.filename or path))
            what = f"{file} is a file where a folder is needed; choose another folder with -o"
        else:
            raise
        raise AtlasError(
            f"Could not write to {path}: {what}, then run the same command again. What was there before is intact."
        ) from cause


def _in_the_way(path: Path) -> Path:
    """The file that stands where a folder of this path should be."""
    return next((one for one in (*reversed(path.parents), path) if one.is_file()), path)


@contextlib.contextmanager
def lock(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file; yields whether it is held.

    A shared lock (for readers) is taken only where the file exists already and can be opened: an atlas on a read-only
    disk has no writers. With ``wait=False`` a lock that somebody else holds is not waited for.
    """
    handle = None
    held = fcntl is None
    try:
        try:
            handle = os.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            if not shared:
                raise
        if handle is not None and fcntl is not None:
            held = _flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield held
    finally:
        if handle is not None:
            os.close(handle)


def _flock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind)
    except BlockingIOError:
        return False
    except OSError as cause:
        if cause.errno not in _LOCKLESS:
            raise
    return True


def write_file(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def create_file(path: Path, content: bytes) -> bool:
    """Write a file whole where none is; whether it was written, of several who try at once by exactly one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        write_file(beside, content)
        _link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)
    return True


def _link(path: Path, name: Path) -> None:
    """Give a file a second name; where the disk knows no such thing (some memory sticks), another if it is free."""
    try:
        os.link(path, name)
    except OSError as cause:
        if cause.errno not in (*_LOCKLESS, errno.EPERM) or name.exists():
            raise
        os.replace(path, name)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: it is on the disk before it has its name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_file(beside, content)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below to the disk, so that a rename that follows cannot overtake them."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Flush one file, or the names in one folder."""
    if os.name == "nt":  # pragma: no cover  (Windows cannot open a folder)
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
