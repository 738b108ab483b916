"""What must hold for every case, and how one is tried.

A case ends well (exit code 0, an HTTP status below 400), or is refused by exactly one clear sentence (exit code 2; a status of
400 to 499, or 503 where no model is loaded). Never: a traceback, exit code 70, a crash, a wait of more than `PATIENCE`
seconds, more than `MEMORY` bytes, a write outside the working folder, a process, a connection, an unpickled class, terminal
codes, or words of Python's in place of words for the reader.

Writes and all the rest are seen by Python's audit hook, which is called before the act.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import typer

from headwise.cli.main import BUG, app, main
from headwise.cli.terminal import complain
from headwise.core.errors import HeadwiseError

__all__ = ["Act", "Finding", "Outcome", "call", "command", "try_case"]

PATIENCE = 20  # seconds
MEMORY = 1 << 30  # bytes that one case may add
APP = typer.main.get_command(app)  # built once, not for every case
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1", "MPLBACKEND": "Agg"}
OF_PYTHON = re.compile(
    r"Traceback|object has no attribute|NoneType|<class '|<function |<bound | at 0x[0-9a-f]{6}|not subscriptable|"
    r"positional argument|unexpected keyword|\bnp\.(?:float|int|str|bool)|dtype\('|\barray\(\[|<xarray|"
    r"\b(?:Key|Type|Index|Attribute|Value|Recursion|Unicode\w*|ZeroDivision|Overflow|Assertion|Runtime|Memory|struct\.)[Ee]rror\b"
)
CODES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
LONGEST = 2500  # characters of a sentence
LIBRARIES = ("uname", "fc-list")  # programs that libraries ask once: the platform's name, its fonts
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "os.chown",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Outcome(NamedTuple):
    """How it ended: exit code, what was printed, and a traceback where there was one."""

    code: int
    out: str = ""
    err: str = ""
    trace: str = ""
    wrong: tuple[str, ...] = ()  # what the case itself found wrong


@dataclass(frozen=True)
class Act:
    """One case, prepared: what it is, and what is then done in the folder ``work`` next to its inputs."""

    about: str
    do: Callable[[], Outcome]
    codes: tuple[int, ...] = (0, 2)
    terminal: bool = True  # whether what is printed goes to a terminal
    speech: bool = True  # whether what is printed on success is for readers, so that Python's words are wrong in it


@dataclass(frozen=True)
class Finding:
    """A case in which something did not hold."""

    grammar: str
    seed: int
    number: int
    about: str
    wrong: list[str]
    outcome: Outcome | None = None

    def __str__(self) -> str:
        said = (
            "" if self.outcome is None else f"\n  said: {self.outcome.err.strip()[-700:]}\n{self.outcome.trace[-2500:]}"
        )
        again = f'python benchmarks/fuzz.py "{self.grammar}" --seed {self.seed} --case {self.number}'
        return f"{'; '.join(self.wrong)}\n  case: {self.about[:600]}\n  again: {again}{said}"


# ---- running ---------------------------------------------------------------------------------------------------------


def command(*arguments: str | Path, stdin: str = "") -> Outcome:
    """The command line's entry point, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["headwise", *map(str, arguments)]))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin)))
        stack.enter_context(mock.patch("headwise.cli.main.app", APP))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        try:
            main()
            code, trace = 0, ""
        except SystemExit as end:
            code, trace = end.code if isinstance(end.code, int) else int(end.code is not None), ""
        except Exception:
            code, trace = 1, traceback.format_exc()
    if code == BUG:
        trace = "".join(log.read_text("utf-8", "replace") for log in Path().glob("headwise-bug-*.log"))
    return Outcome(code, out.getvalue(), err.getvalue(), trace)


def call(function: Callable[[], Any]) -> Outcome:
    """The same of a function: what it raises on purpose is a refusal."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = function()
        except HeadwiseError as error:
            complain(error)
            return Outcome(2, "", err.getvalue())
        except Exception as error:
            return Outcome(BUG, "", f"headwise: {type(error).__name__}: {error}", traceback.format_exc())
    return found if isinstance(found, Outcome) else Outcome(0, "" if found is None else str(found))


def try_case(
    grammar: str, draw: Callable[[Random, Any, Path], Act], scene: Any, number: int, seed: int = 0
) -> tuple[Finding | None, Outcome | None]:
    """One case of a grammar, in a folder of its own; the finding if something did not hold."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=scene.folder))
    work = folder / "work"
    work.mkdir()
    about, outcome, watch = "(not drawn)", None, Watch(work)
    try:
        act = draw(Random(f"{grammar} {seed} {number}"), scene, folder)
        about = act.about
        before = _reset_peak()
        with _limits(), _inside(work), watch:
            outcome = act.do()
        grown = _peak() - before
        wrong = _judge(act, outcome) + watch.seen
        wrong += [f"took {grown / 1e9:.1f} GB"] if grown > MEMORY else []
    except HangError:
        wrong = [f"did not end within {PATIENCE} s", *watch.seen]
        outcome = Outcome(-1, trace=traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return (Finding(grammar, seed, number, about, wrong, outcome) if wrong else None), outcome


def _judge(act: Act, outcome: Outcome) -> list[str]:
    """What did not hold in how a case ended."""
    wrong = list(outcome.wrong)
    if outcome.code not in act.codes:
        wrong.append(f"exit code {outcome.code}")
    if outcome.code == 2 and outcome.err:
        lines = [line for line in outcome.err.split("\n") if line.strip()]
        said = [line.startswith("headwise: ") for line in lines]  # lines before it tell the progress
        if sum(said) != 1 or not said[-1]:
            wrong.append("not one sentence")
        if lines and len(lines[-1]) > LONGEST:
            wrong.append(f"a sentence of {len(lines[-1]):,} characters")
        if outcome.err.rstrip().endswith((": ", ":", "()")):
            wrong.append("a sentence without an end")
    spoken = outcome.err + (outcome.out if act.speech else "")
    if (found := OF_PYTHON.search(spoken)) is not None:
        wrong.append(f"words of Python's ({found[0]!r})")
    if act.terminal and outcome.code in act.codes and CODES.search(outcome.err + outcome.out):
        wrong.append("terminal codes")
    return wrong


# ---- watching --------------------------------------------------------------------------------------------------------


class HangError(BaseException):
    """It takes too long; no handler of errors catches it."""


_ACTIVE: list[Watch] = []


@dataclass
class Watch:
    """Inside the `with`: notes what is done that should not be."""

    allowed: Path
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Watch:
        if not _HOOKED:
            sys.addaudithook(_hook)
            _HOOKED.append(True)
        self._root = f"{self.allowed.resolve()}{os.sep}"
        _ACTIVE.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _ACTIVE.remove(self)

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        """One event of Python's."""
        if event == "open":
            path, mode, flags = args
            if (set("wax+") & set(mode or "")) or (isinstance(flags, int) and flags & WRITING):
                self._write(event, path)
        elif event in CHANGES:
            for path in args[: 2 if event in ("os.rename", "os.link") else 1]:
                self._write(event, path)
        elif event in PROCESSES and str(args[0]) not in LIBRARIES:
            self.seen.append(f"started a process ({str(args[0])[:60]})")
        elif event == "socket.connect":
            self.seen.append(f"a connection ({str(args[1])[:60]})")
        elif event == "pickle.find_class":
            self.seen.append(f"unpickled {args}")

    def _write(self, event: str, path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        where = os.path.abspath(os.fsdecode(path))
        if not f"{where}{os.sep}".startswith(self._root) and not where.startswith(("/dev/", "/proc/self/")):
            self.seen.append(f"a write outside ({event} {where[-80:]})")


_HOOKED: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for watch in _ACTIVE:
        watch.note(event, args)


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """An end to waiting, and to memory."""

    def give_up(*_: object) -> None:
        raise HangError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, give_up)
    resource.setrlimit(resource.RLIMIT_AS, (now + 4 * MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _inside(work: Path) -> Iterator[None]:
    """The working folder, the home, the cache and the place for temporary files: all the same."""
    places = {"HOME": str(work), "HEADWISE_CACHE": str(work / "cache"), "TMPDIR": str(work)}
    with (
        mock.patch.dict(os.environ, ENVIRONMENT | places),
        mock.patch.object(tempfile, "tempdir", str(work)),
        contextlib.chdir(work),
    ):
        yield


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The most memory that this process has held since the last reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
