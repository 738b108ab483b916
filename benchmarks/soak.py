"""How long does it hold? Random faults in real builds, and a long run watched for memory. Writes docs/reliability.md.

    make soak                                                  both, some twenty minutes on two quiet cores
    python benchmarks/soak.py faults --minutes 10 --seed 0     rounds of faults, drawn by dice (tests/faults/repertoire.py)
    python benchmarks/soak.py memory --examples 20000          one build of so many examples, its memory sampled
    python benchmarks/soak.py faults --only "two builds"       only the sorts of faults that are named so

A round: a real `headwise build` of a tiny random model in a process of its own, one fault, the same command again; then the
atlas is compared with an undisturbed one (every variable, coordinate, attribute and origin, bit for bit), and its examples
are counted. Every sort of fault is drawn equally often. It ends with 1 if anything was not held, and says what.

Memory: the resident set of the build's process and its commits, sampled by another process; the slope is that of a straight
line through the samples of the second half of the measuring, with the 95 % interval of ten blocks' own slopes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from faults.experiment import Experiment
from faults.repertoire import REPERTOIRE, Round
from faults.zygote import Zygote
from growth import watched
from page import made_by, write_section

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def rounds(minutes: float, seed: int, only: str) -> dict[str, list[Round]]:
    """Rounds of every sort in turn, until the time is over."""
    dice, found = random.Random(seed), defaultdict(list)
    names = [name for name in REPERTOIRE if only in name]
    deadline = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder, Zygote(Path(folder)) as zygote:
        experiment = Experiment(Path(folder), zygote)
        while time.monotonic() < deadline:
            for name in names:
                if time.monotonic() > deadline:
                    break
                one = REPERTOIRE[name](experiment, dice)
                found[name].append(one)
                for line in one.wrong:
                    print(f"{name}: {line}", flush=True)
        print(f"{zygote.count} builds, {zygote.seconds:.0f} s of processor time", flush=True)
    return dict(found)


def table(found: dict[str, list[Round]]) -> str:
    """One row a sort of fault, and the sum."""
    lines = [
        "| fault | faults | builds | examples lost | examples doubled | violations |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    rows = {name: found.get(name, []) for name in REPERTOIRE if found.get(name)}
    for name, some in [*rows.items(), ("**all**", [one for each in rows.values() for one in each])]:
        sums = [sum(getattr(one, what) for one in some) for what in ("faults", "builds", "lost", "doubled")]
        lines.append(
            f"| {name} | {' | '.join(f'{number:,}' for number in sums)} | {sum(bool(one.wrong) for one in some)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["faults", "memory", "all"], default="all")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="sorts of faults whose name holds this")
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--log", type=Path, help="samples of the memory as JSON lines")
    parser.add_argument("--page", action="store_true", help="write the tables into docs/reliability.md")
    chosen = parser.parse_args()
    sections, held = {}, True
    if chosen.what in ("faults", "all"):
        found = rounds(chosen.minutes, chosen.seed, chosen.only)
        command = f"python benchmarks/soak.py faults --minutes {chosen.minutes:g} --seed {chosen.seed}"
        sections["faults"] = f"{table(found)}\n\n{made_by(command)}"
        held &= not any(one.wrong for some in found.values() for one in some)
    if chosen.what in ("memory", "all"):
        growth = watched(chosen.examples, chosen.log)
        sections["memory"] = (
            f"{growth.summary()}\n\n{made_by(f'python benchmarks/soak.py memory --examples {chosen.examples}')}"
        )
        held &= growth.flat
    for name, text in sections.items():
        print(f"\n{text}")
        if chosen.page:
            write_section(name, text, PAGE)
    sys.exit(not held)


if __name__ == "__main__":
    main()
