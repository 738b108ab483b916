"""The one place where files for the user are written: figures, tables, reports, detectors, adapters, exports.

A file is written under a temporary name in the folder of its target, flushed, and renamed: a reader sees the old file or
the new one, and a full disk leaves the old one as it was. Refusals of the system become sentences with the remedy.
``~`` is the home folder, here and on the command line (`cli.main`), wherever it was typed. (The atlas has a door of its own,
`atlas.disk`.) tests/test_doors.py finds whatever writes elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from headwise.core.errors import AtlasError, DataError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # how libraries in Rust (safetensors) end the text of a refusal


@contextlib.contextmanager
def output_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file with the target's suffix, for any writer; it becomes the target at the end of the block.

    Examples:
        >>> with output_file(folder / "table.csv") as temporary:
        ...     _ = temporary.write_text("head,sink\\n")
        >>> (folder / "table.csv").read_text()
        'head,sink\\n'
    """
    target = Path(path).expanduser()
    with translate_os_errors(target):
        if target.is_dir():
            raise DataError(f"{target} is a folder; give the file a name of its own, such as {target / 'output'}.")
        if not target.parent.is_dir():
            raise DataError(f"There is no folder {target.parent}; create it first, or choose another path with -o.")
        target = target.resolve()  # a link of the user's own stays a link
        if target.exists() and not target.is_file():  # /dev/stdout, a named pipe: there is nothing to keep
            yield target
            return
        temporary = target.with_name(f".headwise-{uuid.uuid4().hex[:12]}.tmp{target.suffix}")
        try:
            yield temporary
            _flush(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def write_output(path: str | os.PathLike[str], content: str | bytes | Callable[[], str | bytes]) -> Path:
    """Write a whole file; text as UTF-8. A function is called once the path is known to be one."""
    with output_file(path) as temporary:
        content = content if isinstance(content, str | bytes) else content()
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path).expanduser()


@contextlib.contextmanager
def output_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder that becomes the target at the end of the block; if there is one, the files move into it.

    Examples:
        >>> with output_folder(folder / "adapter") as temporary:
        ...     _ = (temporary / "adapter_config.json").write_text("{}")
        >>> [file.name for file in (folder / "adapter").iterdir()]
        ['adapter_config.json']
    """
    target = Path(path).expanduser()
    name = f".headwise-{uuid.uuid4().hex[:12]}.tmp"
    temporary = (
        target / name if target.is_dir() else target.with_name(name)
    )  # on the same disk, where it can be renamed
    with translate_os_errors(target):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.iterdir():
                _flush(file)
            if temporary.parent == target:
                for file in temporary.iterdir():
                    os.replace(file, target / file.name)
            else:
                os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder for outputs, with its parents; it may be there already."""
    target = Path(path).expanduser()
    with translate_os_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    return target


@contextlib.contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise OS errors of writing under ``path`` as AtlasError, with the remedy."""
    try:
        yield
    except Exception as error:
        cause = _as_os_error(error)
        if cause is None:
            raise
        if cause.errno in _DISK_FULL:
            what = "the disk is full; free some space, or choose another folder with -o"
        elif cause.errno in _NO_PERMISSION:
            what = "it may not be written to; change its permissions, or choose another folder with -o"
        elif cause.errno == errno.EFBIG:
            what = "no file may be longer than it allows (see ulimit -f); raise that, or choose another folder with -o"
        elif cause.errno == errno.ENAMETOOLONG:
            what = "the name is too long for the disk; choose a shorter one with -o"
        elif cause.errno in _NOT_A_FOLDER:
            target = Path(cause.filename or path)
            file = next((one for one in (*reversed(target.parents), target) if one.is_file()), target)
            what = f"{file} is a file where a folder is needed; choose another folder with -o"
        else:
            what = f"{cause.strerror or type(cause).__name__}; check the disk, or choose another folder with -o"
        raise AtlasError(
            f"Could not write to {_short(path)}: {what}, then run the same command again. What was there before is intact."
        ) from error


def _as_os_error(error: Exception) -> OSError | None:
    """The refusal of the system that an exception is, or reports in its text; None: it is none."""
    if isinstance(error, OSError):
        return error
    reported = _OS_ERROR.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    return None if reported is None else OSError(int(reported[1]), os.strerror(int(reported[1])))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 300 else f"{text[:140]}...{text[-140:]}"
