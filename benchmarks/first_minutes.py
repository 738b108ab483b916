"""How long does it take a newcomer to see something? Times what docs/guide/first-minutes.md tells them to type, in order.

    make first-minutes                                   all of it, into the page
    python benchmarks/first_minutes.py --busy            also on a machine that others use; prints, writes nothing

Everything is new: the environment (made by `make`, so pip downloads what its cache does not have), the cache, the folder.
The page is written on a quiet machine only, where at most `QUIET` processes ran in the last minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from page import made_by, write_section

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide" / "first-minutes.md"
QUIET = 0.5  # processes, the load of the last minute
PATIENCE_S = 120.0  # until the explorer answers


def commands(folder: Path) -> dict[str, list[str]]:
    """What is typed, by its line in the table."""
    headwise, atlas = str(folder / "venv" / "bin" / "headwise"), str(folder / "quick")
    return {
        "set up (`make`)": ["make", "--silent", f"VENV={folder / 'venv'}", str(folder / "venv" / ".ready")],
        "`headwise check`": [headwise, "check"],
        "`headwise build --quick`": [headwise, "build", "--quick", "-o", atlas],
        "`headwise`": [headwise],
        "`headwise head ATLAS L18H6`": [headwise, "head", atlas, "L18H6"],
        "`headwise describe ATLAS profile`": [headwise, "describe", atlas, "profile"],
    }


def timed(command: list[str], environment: Mapping[str, str]) -> float:
    """Seconds of one command, which has to succeed."""
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=dict(environment), check=True, stdout=sys.stderr)
    return time.perf_counter() - start


def until_it_answers(command: list[str], environment: Mapping[str, str]) -> float:
    """Seconds until a server that prints its address shows its first page; it is then ended."""
    start = time.perf_counter()
    server = subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        while time.perf_counter() - start < PATIENCE_S:
            try:
                with urllib.request.urlopen(address, timeout=5) as page:
                    page.read()
                return time.perf_counter() - start
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{address} did not answer in {PATIENCE_S:.0f} s")
    finally:
        server.terminate()
        server.wait()


def table(seconds: Mapping[str, float]) -> str:
    """The table of the page.

    >>> print(table({"set up": 61.2, "build": 100.0}))
    | step | time |
    |---|---|
    | set up | 61 s |
    | build | 100 s |
    | together | 2 min 41 s |
    """
    total = round(sum(seconds.values()))
    lines = ["| step | time |", "|---|---|", *(f"| {step} | {value:.0f} s |" for step, value in seconds.items())]
    return "\n".join([*lines, f"| together | {total // 60} min {total % 60} s |"])


def main() -> None:
    """Time everything; print the table, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the table into docs/guide/first-minutes.md")
    parser.add_argument("--busy", action="store_true", help="time also while other processes use the machine")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if load > QUIET and (options.page or not options.busy):
        raise SystemExit(
            f"{load:.1f} processes ran in the last minute; wait until the machine is quiet, or give --busy alone"
        )
    with tempfile.TemporaryDirectory(prefix="headwise-first-") as name:
        folder = Path(name)
        environment = {**os.environ, "HEADWISE_CACHE": str(folder / "cache")}
        environment.pop("PYTHONPATH", None)
        seconds = {step: timed(command, environment) for step, command in commands(folder).items()}
        serve = [str(folder / "venv" / "bin" / "headwise"), "serve", str(folder / "quick"), "--port", "0"]
        seconds["`headwise serve ATLAS`, until its first page"] = until_it_answers(serve, environment)
    text = f"{table(seconds)}\n\n{made_by('make first-minutes')}"
    print(text)
    if options.page:
        write_section("first minutes", text, GUIDE)


if __name__ == "__main__":
    main()
