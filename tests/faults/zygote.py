"""Run `headwise build` in a process of its own, again and again, paying for the imports once.

As a program it imports all that a build needs, touches neither torch nor Zarr, and forks a child for every line it is
given; the child is a `headwise` process like any other from its entry point on. `Zygote` is the other end of the pipe.

Left out, unless asked for: the figures and the report that a build draws at its end. They take longer than all the rest,
and no fault of theirs can reach the atlas, which is finished by then. Every map is read instead, as drawing would.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "400", "TERM": "dumb",
    "MPLBACKEND": "Agg",
}  # fmt: skip
HEAVY = (
    "faults.injection",
    "headwise.figures", "headwise.studies.progress", "headwise.cli.settings", "headwise.studies.building",
    "headwise.web.report", "headwise.studies.runner", "headwise.engines.ray.engine",
    "headwise.studies.profile.measure", "headwise.studies.answers.measure", "headwise.studies.spectral.measure",
    "headwise.studies.spectral.detection",
    "sklearn.cluster", "sklearn.decomposition", "sklearn.feature_extraction.text", "sklearn.isotonic", "sklearn.linear_model",
    "transformers.models.llama.modeling_llama", "transformers.tokenization_utils_tokenizers", "pyarrow.pandas_compat",
)  # fmt: skip
PATIENCE = 120.0  # seconds that a build of the tiny model may take, however loaded the machine


@dataclass(frozen=True)
class Outcome:
    """How a build ended: its exit code (negative: the signal that ended it), what it said, what it measured."""

    code: int
    out: str
    err: str
    seconds: float  # of processor time
    notes: list[dict[str, Any]] = field(repr=False)

    @property
    def measured(self) -> list[tuple[str, int]]:
        """(study, shard), in the order of measuring."""
        return [(note["study"], note["shard"]) for note in self.notes if "study" in note]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """(event, path below the atlas) of every change, if they were noted."""
        return [(note["event"], note["path"]) for note in self.notes if "change" in note]

    @property
    def sentence(self) -> str:
        """What the person at the keyboard was told: the one line, without a traceback."""
        assert "Traceback" not in self.err, self.err
        said = [line for line in self.err.splitlines() if line.startswith("headwise: ")]
        assert len(said) == 1, self.err
        return said[0]


class Run:
    """A build under way."""

    def __init__(self, zygote: Zygote, pid: int, place: Path) -> None:
        self.zygote, self.pid, self.place = zygote, pid, place

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = PATIENCE) -> Outcome:
        code, spent = self.zygote.ask({"wait": self.pid, "seconds": seconds})["ended"]
        self.zygote.seconds += spent
        assert code is not None, f"a build did not end within {seconds} s: {(self.place / 'err').read_text()}"
        log = self.place / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        out, err = ((self.place / name).read_text() for name in ("out", "err"))
        return Outcome(code, out, err, spent, [json.loads(line) for line in lines])


class Zygote:
    """The process that forks builds; use as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.seconds = folder, 0, 0.0  # of processor time, all builds
        path = os.pathsep.join([str(Path(__file__).parents[1]), *(entry for entry in sys.path if entry)])
        command = [sys.executable, "-c", "from faults.zygote import serve; serve()"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": path},
        )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, arguments: list[str], atlas: str | Path, fault: dict[str, Any] | None = None, **how: Any) -> Run:
        """Begin a build; `how`: noting (every change), drawing, obeying (permissions, also as root), environment."""
        self.count += 1
        place = self.folder / f"run{self.count:04d}"
        place.mkdir()
        request = {"arguments": arguments, "atlas": str(atlas), "fault": fault or {}, "place": str(place), **how}
        return Run(self, self.ask(request)["pid"], place)

    def run(self, arguments: list[str], atlas: str | Path, fault: dict[str, Any] | None = None, **how: Any) -> Outcome:
        return self.start(arguments, atlas, fault, **how).wait()


def serve() -> None:
    """The program."""
    from importlib import import_module

    for name in HEAVY:
        import_module(name)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores Ctrl-C
    os.fsync = lambda handle: None  # a killed process loses nothing that it wrote; only a power cut would
    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"ended": reap(request["wait"], request["seconds"])}
        else:
            answer = {"pid": os.fork() or child(request)}
        print(json.dumps(answer), flush=True)


def warm_up() -> None:
    """Read the command line once, up to where a build is refused: nothing is loaded, and every child is quicker."""
    from headwise.cli.main import main

    sys.argv = ["headwise", "build", "--studies", "no-such-study"]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main()


def reap(pid: int, seconds: float) -> tuple[int | None, float]:
    """The exit code of a child, and its processor time; None where it has not ended by then, and is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None, seconds


def child(request: dict[str, Any]) -> int:
    """Become a `headwise` process; never returns."""
    place = Path(request["place"])
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    if request.get("obeying") and os.geteuid() == 0:
        obey_permissions()
    os.environ.update(request.get("environment", {}))
    code = 1
    try:
        code = headwise(request, place)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def obey_permissions() -> None:
    """Root gives up its right to write where nobody may (Linux: the capabilities DAC_OVERRIDE and DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << 1 | 1 << 2)  # of those in effect
    assert libc.capset(header, sets) == 0


def headwise(request: dict[str, Any], place: Path) -> int:
    """The entry point itself; its exit code."""
    from faults import injection
    from headwise.cli import build
    from headwise.cli.main import main
    from headwise.web import report

    if not request.get("drawing"):
        build.write_figures = lambda atlas, folder: [atlas[study] for study in atlas.studies][:0]
        report.write = lambda atlas, path: path
    sys.argv = ["headwise", *request["arguments"]]
    injection.install(request["fault"], request["atlas"], place / "log", noting=request.get("noting", False))
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
