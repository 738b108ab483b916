"""What goes wrong inside a build, and when. Installed in a process just before it runs `headwise build`.

Python tells an audit hook of every file opened, made, renamed or deleted, before it is done and whoever does it. So the
moments of a build are counted without knowing its code: the *changes* of the atlas's folder, from 0. A fault is a plain
dict (it travels as JSON):

    {"do": "kill", "at": 17}                  kill -9 just before change 17; also "term", "int" (as Ctrl-C)
    {"do": "full", "at": 17}                  from change 17 on there is no space left
    {"do": "closed", "at": 17}                from change 17 on nothing may be changed
    {"do": "chmod", "at": 17}                 the same for real: the folder loses its permission to be written to
    {"do": "kill", "when": "finalize profile"}     as a study is finalized; also "measure profile 3", "finalized profile"
    {"do": "kill", "request": 40}             just before request 40 to an object store
    {"do": "cut", "bytes": 900}               killed by the kernel at byte 900 of the first file that is so long
    {"do": "limit", "bytes": 900}             no file may be longer than 900 bytes: writing fails in mid-file
    {"do": "slow", "seconds": 0.05}           every shard takes so much longer: time to be hit from outside
    {"do": "poison", "example": "code-02"}    the process ends at once when it measures this example

Every shard that is measured, and every change if `noting`, is a line of the log. Not seen: what is written to a file that
is open already ("cut" and "limit" are for those), and what compiled code does by itself.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
WRITES = os.O_WRONLY | os.O_RDWR
REQUESTS = (
    "_put",
    "delete",
    "delete_many",
    "keys",
    "read_tagged",
)  # verbs of `ObjectStoreLocation`, each at least one request
GONE = 87  # exit code of a poisoned process


def install(fault: dict[str, Any], atlas: str, log: Path, *, noting: bool = False) -> None:
    """Arm this process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**line: Any) -> None:
        os.write(handle, (json.dumps(line) + "\n").encode())

    if fault.get("do") in ("cut", "limit"):
        limit_files(fault["bytes"], deadly=fault["do"] == "cut")
    if "://" in atlas:
        watch_requests(fault, note if noting else None)
    else:
        watch_changes(fault, Path(atlas), note if noting else None)
    watch_studies(fault, note)


def limit_files(most: int, *, deadly: bool) -> None:
    """Python shrugs off the signal that comes with this limit, and reports an error; unless it is `deadly`."""
    if deadly:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def watch_changes(fault: dict[str, Any], folder: Path, note: Callable[..., None] | None) -> None:
    """Count the changes below the folder, and do what the fault says at its moment."""
    root, counter, due = str(folder.resolve()), itertools.count(), fault.get("at")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        changed = change(event, args)
        if changed is None or not (changed[1] == root or changed[1].startswith(root + "/")):
            return
        number = next(counter)
        if note is not None:
            note(change=number, event=changed[0], path=os.path.relpath(changed[1], root))
        if due is not None and number >= due:
            happen(fault["do"], first=number == due, event=changed[0], path=changed[1], root=root)

    if due is not None or note is not None:
        sys.addaudithook(hook)


def watch_requests(fault: dict[str, Any], note: Callable[..., None] | None) -> None:
    """The same for an atlas at a URL: its changes are requests, made by compiled code that no hook hears of."""
    from headwise.atlas.storage import ObjectStoreLocation

    counter = itertools.count()

    def counted(verb: str) -> None:
        real = getattr(ObjectStoreLocation, verb)

        def mortal(self: Any, *given: Any, **named: Any) -> Any:
            number = next(counter)
            if note is not None:
                note(change=number, event=verb, path=str(given[0]) if given else "")
            if number == fault.get("request"):
                os.kill(os.getpid(), SIGNALS[fault["do"]])
            return real(self, *given, **named)

        setattr(ObjectStoreLocation, verb, mortal)

    for verb in REQUESTS:
        counted(verb)


def change(event: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
    """What is about to be changed: (open, make, rename, link or delete; the path), or None where nothing is."""
    if event == "open":
        path, _, flags = args
        changes = isinstance(path, str | bytes | os.PathLike) and flags & (WRITES | os.O_CREAT)
        return ("open", absolute(path, -1)) if changes else None
    if event == "os.mkdir":
        return "make", absolute(args[0], args[2])
    if event in ("os.rename", "os.link"):
        return event[3:], absolute(args[1], args[3])
    if event in ("os.remove", "os.rmdir"):
        return "delete", absolute(args[0], args[1])
    return None


def absolute(path: Any, folder: int | None) -> str:
    """`folder`: the open folder that a relative path starts from, if any."""
    text = os.fsdecode(path)
    start = os.readlink(f"/proc/self/fd/{folder}") if folder not in (None, -1) else os.getcwd()
    return os.path.normpath(os.path.join(start, text))


def happen(what: str, *, first: bool, event: str, path: str, root: str) -> None:
    """The fault itself, in the thread that was about to change something."""
    if what in SIGNALS and first:
        os.kill(os.getpid(), SIGNALS[what])
    if what == "chmod" and first:
        for parent, _, _ in os.walk(root):
            os.chmod(parent, 0o500)
    if what == "full" and (event in ("make", "link") or (event == "open" and not os.path.exists(path))):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    if what == "closed":
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)


def watch_studies(fault: dict[str, Any], note: Callable[..., None]) -> None:
    """Note every shard that is measured, and do what the fault says when a study comes to its moment."""
    from headwise.studies.runner import StudyRunner

    prepare, measure, finalize = StudyRunner.prepare, StudyRunner.measure, StudyRunner.finalize

    def moment(name: str) -> None:
        if fault.get("when") == name:
            os.kill(os.getpid(), SIGNALS[fault["do"]])

    def prepared(self: Any, studies: Any, *given: Any, **named: Any) -> Any:
        self.study_in_hand = "+".join(studies)
        return prepare(self, studies, *given, **named)

    def measured(self: Any, shard: Any) -> Any:
        moment(f"measure {self.study_in_hand} {shard.index}")
        time.sleep(fault.get("seconds", 0))
        result = measure(self, shard)
        names = [str(name) for name in result["example"].values] if "example" in result.coords else []
        if fault.get("example") in names:
            os._exit(GONE)
        note(study=self.study_in_hand, shard=shard.index, examples=names)
        return result

    def finalized(self: Any, parts: Any) -> Any:
        moment(f"finalize {self.study_in_hand}")
        result = finalize(self, parts)
        moment(f"finalized {self.study_in_hand}")
        return result

    StudyRunner.prepare, StudyRunner.measure, StudyRunner.finalize = prepared, measured, finalized
