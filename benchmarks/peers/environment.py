"""An environment of its own for each peer, so that its requirements cannot disturb Headwise's.

A virtual environment under `.cache/bench/NAME`, with the project's constraints, and with torch and transformers at
the project's versions: the base of a ratio is then the same forward pass. A file `.ready` says what it holds; one that
was left half made, or holds something else, is made again. `$HEADWISE_BENCH_PEERS` names a folder that holds
environments made elsewhere, NAME/bin/python; they are taken as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from peers import PEERS, POLYGRAPH, TRACR

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "bench"
CONSTRAINTS = ROOT / "constraints.txt"
GIVEN = "HEADWISE_BENCH_PEERS"
SAME = ("torch", "transformers")  # what the plain forward is made of
LONGEST = 1800  # seconds for one installation


class NoEnvironment(Exception):  # noqa: N818
    """Why there is none."""


def python_of(name: str) -> Path:
    """The peer's Python, made first if need be."""
    if given := os.environ.get(GIVEN):
        python = Path(given) / name / "bin" / "python"
        if not python.exists():
            raise NoEnvironment(f"not found: ${GIVEN} is {given}, and {python} is not there")
        return python
    folder = FOLDER / name
    if _ready(folder) != requirements(name):
        _make(folder, requirements(name))
    return folder / "bin" / "python"


def requirements(name: str) -> list[str]:
    """What pip is asked for: the peer, and the libraries whose forward pass is the base."""
    if name == TRACR.package:
        return [TRACR.requirement]  # it runs on jax
    return [
        *(f"{library}=={_pinned(library)}" for library in SAME),
        (PEERS | {POLYGRAPH.package: POLYGRAPH})[name].requirement,
    ]


def _pinned(library: str) -> str:
    found = re.search(rf"^{library}==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise NoEnvironment(f"not installed: {CONSTRAINTS.name} does not say which {library} to use; pin it there")
    return found[1]


def _ready(folder: Path) -> list[str]:
    mark = folder / ".ready"
    return mark.read_text(encoding="utf-8").split() if mark.exists() else []


def _make(folder: Path, wanted: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing {wanted[-1]} into {folder} ...", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--constraint", str(CONSTRAINTS), *wanted])
    (folder / ".ready").write_text("\n".join(wanted), encoding="utf-8")


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONGEST)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = error.stderr if isinstance(error.stderr, str) else ""
        raise NoEnvironment(f"could not be installed ({last_error(said) or error})") from error


def last_error(text: str) -> str:
    """The last line that says something, without what would break a table.

    >>> last_error("WARNING: x\\nERROR: No matching | distribution\\n\\n")
    'ERROR: No matching / distribution'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].replace("|", "/")[:200] if lines else ""
