"""Does any input show a traceback? Cases from the grammars of tests/fuzz, for as long as wanted. Writes docs/reliability.md.

    make fuzz MINUTES=30                                           all grammars in turn, and the table
    python benchmarks/fuzz.py --minutes 5 --seed 7                 other cases
    python benchmarks/fuzz.py "command lines" --minutes 2          one grammar
    python benchmarks/fuzz.py "command lines" --seed 0 --case 17   one case again, with all that it printed

The cases are tried in a child of this process: one that crashes, or that no signal can interrupt, ends the child and not the
run. Every finding is printed with the command that tries it again. It ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = (
    "1"  # a model's id that nobody has must not be looked up; before the hub's package is imported
)
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzz.callers import CALLERS
from fuzz.files import FILES
from fuzz.harness import PATIENCE, try_case
from fuzz.scene import Scene
from page import made_by, write_section

sys.dont_write_bytecode = True  # the cases may write nowhere
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk in memory, for thousands of small files
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
GRAMMARS = {**FILES, **CALLERS}
TURN = 2.0  # seconds of a grammar before the next one's turn
WITHOUT_NEWS = 3 * PATIENCE  # seconds after which a child is given up


class Tally:
    """Cases, refusals and findings per grammar."""

    def __init__(self) -> None:
        self.cases, self.refused, self.findings = Counter[str](), Counter[str](), Counter[str]()
        self.seconds = Counter[str]()

    def table(self) -> str:
        """One row per grammar, and the sum."""
        lines = ["| grammar | cases | refused by a sentence | findings |", "|---|--:|--:|--:|"]
        lines += [
            f"| {name} | {self.cases[name]:,} | {self.refused[name]:,} | {self.findings[name]:,} |"
            for name in GRAMMARS
            if self.cases[name]
        ]
        sums = (f"{sum(counter.values()):,}" for counter in (self.cases, self.refused, self.findings))
        return "\n".join([*lines, f"| **all** | {' | '.join(sums)} |"])


def run(names: list[str], minutes: float, seed: int, log: Path | None) -> Tally:
    """Cases of these grammars in turn, until the time is over."""
    tally, upcoming = Tally(), Counter[str]()
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="headwise-fuzz-", dir=FAST) as folder:
        scene = Scene(Path(folder))
        while time.monotonic() < end:
            _one_child(scene, names, upcoming, seed, end, tally, log)
    return tally


def _one_child(
    scene: Scene, names: list[str], upcoming: Counter[str], seed: int, end: float, tally: Tally, log: Path | None
) -> None:
    """Fork; try cases there until the time is over, it dies, or it stops answering."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(scene, names, dict(upcoming), seed, end, writer)
    os.close(writer)
    now, since, buffer = ("", 0), time.monotonic(), b""
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], 1.0)
            if not ready:
                if now[0] and time.monotonic() - since > WITHOUT_NEWS:
                    os.kill(child, signal.SIGKILL)
                    _note(tally, log, now, f"{now}: did not end, and no signal interrupted it")
                    now = ("", 0)
                continue
            content = os.read(reader, 1 << 16)
            if not content:
                break
            *lines, buffer = (buffer + content).split(b"\n")
            for line in lines:
                news = json.loads(line)
                if news["what"] == "start":
                    now, since = (news["grammar"], news["number"]), time.monotonic()
                    upcoming[now[0]] = now[1] + 1
                else:
                    tally.seconds[now[0]] += time.monotonic() - since
                    tally.cases[now[0]] += 1
                    tally.refused[now[0]] += news["refused"]
                    if news["finding"]:
                        _note(tally, log, now, news["finding"])
                    now = ("", 0)
    finally:
        os.close(reader)
        _, status = os.waitpid(child, 0)
    if now[0]:
        tally.cases[now[0]] += 1
        again = f'python benchmarks/fuzz.py "{now[0]}" --seed {seed} --case {now[1]}'
        _note(tally, log, now, f"the process died ({status})\n  again: {again}")


def _note(tally: Tally, log: Path | None, now: tuple[str, int], text: str) -> None:
    tally.findings[now[0]] += 1
    print(f"\n[{now[0]} {now[1]}] {text}", flush=True)
    if log is not None:
        with log.open("a") as file:
            file.write(f"\n[{now[0]} {now[1]}] {text}\n")


def _child(scene: Scene, names: list[str], first: dict[str, int], seed: int, end: float, writer: int) -> None:
    """The forked process; never returns."""
    code = 1
    faulthandler.enable()  # a crash says where
    try:
        numbers = {name: first.get(name, 0) for name in names}
        while time.monotonic() < end:
            for name in names:
                over = min(time.monotonic() + TURN, end)
                while time.monotonic() < over:
                    _tell(writer, {"what": "start", "grammar": name, "number": numbers[name]})
                    finding, outcome = try_case(name, GRAMMARS[name], scene, numbers[name], seed)
                    numbers[name] += 1
                    refused = outcome is not None and outcome.code == 2
                    _tell(
                        writer, {"what": "end", "refused": refused, "finding": "" if finding is None else str(finding)}
                    )
        code = 0
    except BaseException:  # of the fuzzer itself
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _tell(writer: int, news: dict[str, object]) -> None:
    content = json.dumps(news).encode() + b"\n"
    while content:
        content = content[os.write(writer, content) :]


def one(name: str, seed: int, number: int) -> bool:
    """One case again, with all that it printed; whether all held."""
    with tempfile.TemporaryDirectory(prefix="headwise-fuzz-", dir=FAST) as folder:
        finding, outcome = try_case(name, GRAMMARS[name], Scene(Path(folder)), number, seed)
    print(finding or "all held")
    if outcome is not None:
        print(f"  exit code {outcome.code}\n--- out\n{outcome.out}\n--- err\n{outcome.err}")
    return finding is None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("grammars", nargs="*", metavar="GRAMMAR", help=f"all by default: {', '.join(GRAMMARS)}")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this case")
    parser.add_argument("--log", type=Path, help="findings are also written here")
    parser.add_argument("--page", action="store_true", help="write the table into docs/reliability.md")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.grammars if name not in GRAMMARS]
    if unknown or (chosen.case is not None and len(chosen.grammars) != 1):
        parser.error(f"there is no grammar {unknown[0]!r}" if unknown else "--case needs one grammar")
    if chosen.case is not None:
        sys.exit(not one(chosen.grammars[0], chosen.seed, chosen.case))
    tally = run(chosen.grammars or list(GRAMMARS), chosen.minutes, chosen.seed, chosen.log)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=PAGE.parent
    ).stdout.strip()
    command = f"python benchmarks/fuzz.py --minutes {chosen.minutes:g} --seed {chosen.seed}"
    text = f"{tally.table()}\n\n{made_by(command)} Commit {commit}."
    print(f"\n{text}\n")
    print(
        "milliseconds per case:",
        {name: round(1000 * tally.seconds[name] / max(tally.cases[name], 1)) for name in GRAMMARS},
    )
    if chosen.page:
        write_section("fuzzing", text, PAGE)
    sys.exit(bool(sum(tally.findings.values())))


if __name__ == "__main__":
    main()
