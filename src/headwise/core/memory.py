"""How much memory may still be allocated, and how much was? Sizes that a file declares are compared with it beforehand."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

try:
    import resource
except ImportError:  # pragma: no cover  (Windows)
    resource = None  # type: ignore[assignment]

LARGE = 2**24  # bytes from which on to ask whether there is room: the question takes longer than reading a small file
MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/statm")
_OWN_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Bytes that programs of this machine can still allocate, including the file cache; 0 if unknown."""
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def room_for(size: int) -> bool:
    """Whether this process can allocate so many bytes: of the machine, its container and its own limit (ulimit -v)."""
    rooms = [room for room in (available_memory(), *_container_rooms(), *_own_room()) if room]
    return not rooms or size <= min(rooms)


def restart_peak() -> None:
    """Let `peak_memory` count from here; without effect where the system does not allow that."""
    with contextlib.suppress(OSError):
        _FORGET.write_text("5")


def peak_memory() -> int:
    """The largest resident set of this process in bytes, since `restart_peak` or since it began; 0 if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        line = next(line for line in _OWN_STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return 0 if resource is None else int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def in_bytes(size: int) -> str:
    """A size in a message.

    >>> in_bytes(3_400_000_000), in_bytes(48_000), in_bytes(7)
    ('3.4 GB', '48.0 kB', '7 bytes')
    """
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}" if size >= 1000 * unit else f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _container_rooms() -> list[int]:
    found = []
    for limit, used in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
            found.append(max(1, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return found


def _own_room() -> list[int]:
    if resource is None:  # pragma: no cover
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return []
    try:
        used = int(_STATUS.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        used = 0
    return [max(1, limit - used)]
