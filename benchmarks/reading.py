"""What do commands that only read cost, against importing their libraries? Writes its section of docs/benchmarks.md.

    python benchmarks/reading.py demo/atlas --rounds 7

Each command runs in a process of its own, all of them in each round, in an order that is drawn again for each round; so does
`python -c "import xarray, zarr, typer"`, the base of the ratios. Seconds of CPU are those of the process (user and system);
on a machine that others use they say more than wall time. One round before the first fills the caches, Python's compiled
modules included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clock import in_turn, ratio
from page import PAGE, made_by, write_section

BASE = "import xarray, zarr, typer"
TARGETS = {
    "describe ATLAS profile": 1.5,
    "heads ATLAS": 1.5,
    "head ATLAS L0H1": 1.5,
    "answers ATLAS": 1.5,
    "show ATLAS profile -o profile.pdf": 2.5,
    "plan": 2.5,
    "report ATLAS -o report.html": 6.0,
}


def command(words: str, atlas: Path) -> list[str]:
    """The arguments of a process."""
    if words == BASE:
        return [sys.executable, "-c", BASE]
    start = "import sys; from headwise.cli import run; sys.argv[0] = 'headwise'; run()"
    return [sys.executable, "-c", start, *words.replace("ATLAS", str(atlas)).split()]


def measured(atlas: Path, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Words of a command -> its seconds of CPU and of wall time, round by round."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cpu: dict[str, list[float]] = {}

    with tempfile.TemporaryDirectory() as folder:

        def run(words: str) -> None:
            process = subprocess.Popen(
                command(words, atlas), cwd=folder, env={**settings, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )  # fmt: skip
            assert process.stderr is not None
            said = process.stderr.read().decode()
            _, status, used = os.wait4(process.pid, 0)
            if os.waitstatus_to_exitcode(status) != 0:
                raise SystemExit(f"{words} failed: {said}")
            cpu.setdefault(words, []).append(used.ru_utime + used.ru_stime)

        cases: dict[str, Callable[[], object]] = {words: partial(run, words) for words in (BASE, *TARGETS)}
        wall = in_turn(cases, rounds)
    return {words: (cpu[words][1:], wall[words]) for words in cases}


def section(found: dict[str, tuple[list[float], list[float]]], atlas: Path) -> str:
    """The words and the table."""
    size = sum(path.stat().st_size for path in atlas.rglob("*") if path.is_file()) / 1e6
    rounds = len(found[BASE][0])
    lines = [
        "## Commands that only read",
        "",
        f"An atlas of {size:.1f} MB; medians of {rounds} rounds, and ratios of them (lowest to highest within a round).",
        "",
        "| command | CPU | CPU / import | wall | wall / import | target |",
        "|---|---|---|---|---|---|",
    ]
    for words, times in found.items():
        cpu, wall = (ratio(own, base) for own, base in zip(times, found[BASE], strict=True))
        name = f'`python -c "{BASE}"`' if words == BASE else f"`headwise {words}`"
        shares = [f"**{one.ratio:.2f}** ({one.lowest:.2f} to {one.highest:.2f})" for one in (cpu, wall)]
        target = f"{TARGETS[words]:.1f}" if words in TARGETS else ""
        lines.append(f"| {name} | {cpu.seconds:.2f} s | {shares[0]} | {wall.seconds:.2f} s | {shares[1]} | {target} |")
    return "\n".join(lines)


def main() -> None:
    """Run the commands, print the table, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atlas", type=Path, help="an atlas with the studies profile and answers")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    began = time.perf_counter()
    found = measured(options.atlas.resolve(), options.rounds)
    text = (
        f"{section(found, options.atlas)}\n\n{made_by(f'python benchmarks/reading.py ATLAS --rounds {options.rounds}')}"
    )
    print(text, f"\n\n{time.perf_counter() - began:.0f} s")
    write_section("reading", text, options.page)


if __name__ == "__main__":
    main()
