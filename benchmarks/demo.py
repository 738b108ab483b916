"""How long the parts of the whole atlas take, from what `make demo` printed. Writes its section of docs/benchmarks.md.

    make demo > demo.log; python benchmarks/demo.py demo.log

Bars and lines are those of `headwise build`, one per study, with its time; nothing is measured here. Studies that share their
forward passes, which the log names together ("spectral+probing: detectors ..."), have one time.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from page import PAGE, made_by, write_section

BAR = re.compile(r"^(\w+)\b.*?(\d+)(?:/| of )(\d+)\s+\w+,\s+(?:done in )?(\d+):(\d\d):(\d\d)\b")

JOINT = re.compile(r"^(\w+(?:\+\w+)+): ", re.MULTILINE)


def parts(log: str) -> dict[str, tuple[int, int]]:
    r"""Study -> examples, seconds, of the bars and lines that came to their end; the last one of a study counts.

    >>> parts("profile   ━━━━ 100/100 examples, 0:01:37 elapsed, 0:00:00 left")
    {'profile': (100, 97)}
    >>> parts("profile: 60 of 100 examples, 0:01:00 elapsed\nprofile: 100 of 100 examples, done in 0:01:37")
    {'profile': (100, 97)}
    >>> parts("a+b: probes, 1 of 9 steps\na: 5 of 5 examples, done in 0:00:09\nb: 5 of 5 examples, done in 0:00:09")
    {'a+b': (5, 9)}
    """
    found = {}
    shared = {name: joint for joint in JOINT.findall(log) for name in joint.split("+")}
    for line in log.splitlines():
        if (bar := BAR.match(line)) and bar[2] == bar[3]:
            hours, minutes, seconds = map(int, bar.groups()[3:])
            found[shared.get(bar[1], bar[1])] = int(bar[2]), 3600 * hours + 60 * minutes + seconds
    return found


def section(path: Path) -> str:
    """The words and the table."""
    found = parts(path.read_text(encoding="utf-8", errors="replace"))
    if not found:
        raise SystemExit(f"{path} has no finished bar of `headwise build`; give what `make demo` printed")
    lines = ["## The whole atlas of `make demo`", "", "| study | examples or layers | time |", "|---|---|---|"]
    lines += [f"| {study} | {count} | {seconds} s |" for study, (count, seconds) in found.items()]
    total = sum(seconds for _, seconds in found.values())
    return "\n".join([*lines, f"| together | | {total} s |"])


def main() -> None:
    """Read the log, print the table, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="what `make demo` printed")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    text = f"{section(options.log)}\n\n{made_by('make demo > demo.log; python benchmarks/demo.py demo.log')}"
    print(text)
    write_section("demo", text, options.page)


if __name__ == "__main__":
    main()
