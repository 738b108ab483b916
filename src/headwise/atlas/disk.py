"""Crash-safe file operations: a kill or a full disk never destroys what was there.

A file lock that a killed process cannot leave behind (``flock``: the kernel releases it), atomic file replacement (write to a
temporary file, flush, rename), and errors of reading translated into sentences with the remedy.

Cost: one flush to disk per file written. Where the system has no ``flock`` (Windows) there is no lock: one writer at a time
is then up to the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwise.core.errors import AtlasError

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # some network disks: continue without


@contextlib.contextmanager
def translate_read_errors(what: str) -> Iterator[None]:
    """Raise what kept ``what`` from being read as AtlasError: a fault of the disk or too little memory is no damage."""
    try:
        yield
    except MemoryError as cause:
        why = f": {cause}" if str(cause) else ""
        raise AtlasError(
            f"There is too little memory to read {what}{why}; close other programs, or use a larger machine. What is stored "
            "was not changed."
        ) from cause
    except PermissionError as cause:
        raise AtlasError(
            f"{cause.filename or what} may not be read; change its permissions, then try again."
        ) from cause
    except OSError as cause:
        raise AtlasError(
            f"{what[:1].upper()}{what[1:]} cannot be read now ({cause.strerror or cause}); check the disk or the network, then "
            "run the same command again. What is stored was not changed."
        ) from cause


@contextlib.contextmanager
def lock(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file during the block; yields whether it is held.

    A shared lock (for readers) is taken only if the file exists and can be opened: an atlas on a read-only disk has no
    writers. With ``wait=False`` a lock that another process holds is not waited for.
    """
    handle = None
    held = fcntl is None
    try:
        try:
            handle = os.open(path, (os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT) | _NO_FOLLOW, 0o666)
        except OSError as cause:
            if not shared and cause.errno != errno.ELOOP:
                raise
            if cause.errno == errno.ELOOP:
                raise AtlasError(
                    f"{path} is a symbolic link, and locks are plain files; delete it to go on."
                ) from cause
        if handle is not None and not stat.S_ISREG(os.fstat(handle).st_mode):
            raise AtlasError(f"{path} is a pipe, a socket or a device, and locks are plain files; delete it to go on.")
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
        if cause.errno not in _NO_LOCKS:
            raise
    return True


def write_file(path: Path, content: bytes | Sequence[bytes | memoryview]) -> None:
    """Write a new file, and flush it to disk; what had the name before is removed, not written through."""
    path.unlink(missing_ok=True)
    with open(path, "xb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def create_file(path: Path, content: bytes) -> bool:
    """Write a file atomically if it does not exist; True for exactly one of several concurrent callers."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        write_file(temporary, content)
        _link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
    return True


def _link(path: Path, name: Path) -> None:
    """A hard link; a rename where the file system has none (some memory sticks) and the name is free."""
    try:
        os.link(path, name)
    except OSError as cause:
        if cause.errno not in (*_NO_LOCKS, errno.EPERM) or name.exists():
            raise
        os.replace(path, name)


def replace_file(path: Path, content: bytes | Sequence[bytes | memoryview]) -> None:
    """Replace a file atomically: the new content is on disk before it gets the name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_file(temporary, content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below to disk, so that a following rename cannot overtake them."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Flush one file, or the directory entries of one folder."""
    if os.name == "nt":  # pragma: no cover  (Windows cannot open a folder)
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
