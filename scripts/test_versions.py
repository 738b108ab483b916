"""Run the tests that depend on transformers with several of its versions, and print one table.

    make test-versions                              the oldest that pyproject.toml allows, 5.17 and the newest
    python scripts/test_versions.py 5.13.1 5.21.1   others

Each version has an environment of its own in .cache/versions: transformers, and those of its dependencies that it does not
share with the environment of `make test` (the client of the hub, tokenizers), placed before that environment's packages. So
everything else is equal, and an environment takes seconds and 150 MB. The tests are those of the model, the seam, the
instruments, the interventions and generation; kernels, which never meet transformers, are left out. Exit code 1 if one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".cache" / "versions"
MIDDLE = "5.17.0"  # chooses SDPA for soft-capped families, and drops the cap
TESTS = (
    "tests/model", "tests/seam", "tests/instruments", "tests/interventions", "tests/studies/test_decoding.py",
    "--ignore=tests/seam/test_decode_kernel.py",
)  # fmt: skip
VERSIONS = (
    "from importlib.metadata import version as v; print(v('transformers'), v('huggingface_hub'), v('tokenizers'))"
)


@dataclass(frozen=True)
class Outcome:
    """What one version did."""

    versions: tuple[str, str, str]  # transformers, hub client, tokenizers
    passed: int
    skipped: int
    too_old: int  # of the skipped: families that this version does not know
    failed: tuple[str, ...]
    minutes: float

    def row(self) -> str:
        """As a line of the table."""
        numbers = (self.passed, len(self.failed), self.too_old, self.skipped - self.too_old, f"{self.minutes:.1f}")
        return f"| {' | '.join([*self.versions, *map(str, numbers)])} |"


def oldest() -> str:
    """The lower bound in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = (one for one in project["dependencies"] if one.startswith("transformers"))
    found = re.fullmatch(r"transformers>=([\d.]+)", bound)
    assert found is not None, bound
    return found[1] if found[1].count(".") > 1 else f"{found[1]}.0"


def environment(version: str) -> Path:
    """The Python of an environment with that version; "newest" is looked up again each time."""
    folder = ENVIRONMENTS / version
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        own = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        Path(own, "shared.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    wanted = ["--upgrade", "transformers"] if version == "newest" else [f"transformers=={version}"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return python


def outcome(version: str) -> Outcome:
    """Run the tests with one version."""
    python, report = environment(version), ENVIRONMENTS / f"{version}.xml"
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    found = subprocess.run([python, "-c", VERSIONS], check=True, capture_output=True, text=True, env=settings)
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    report.unlink(missing_ok=True)
    start = time.monotonic()
    subprocess.run([*pytest, f"--junit-xml={report}", *TESTS], cwd=ROOT, env=settings, check=False)
    minutes = (time.monotonic() - start) / 60
    transformers, hub, tokenizers = found.stdout.split()
    return read(report, (transformers, hub, tokenizers), minutes)


def read(report: Path, versions: tuple[str, str, str], minutes: float) -> Outcome:
    """What a JUnit report of pytest says."""
    passed, skipped, too_old, failed = 0, 0, 0, []
    for case in ET.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skip is not None:
            skipped += 1
            too_old += "needs transformers" in (skip.get("message") or "")
        else:
            passed += 1
    return Outcome(versions, passed, skipped, too_old, tuple(failed), minutes)


def main() -> int:
    """All versions, one after the other."""
    outcomes = [outcome(version) for version in sys.argv[1:] or (oldest(), MIDDLE, "newest")]
    print(
        "\n| transformers | huggingface_hub | tokenizers | passed | failed | family not known yet | skipped | minutes |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(one.row() for one in outcomes))
    for one in outcomes:
        print(*(f"transformers {one.versions[0]}: {name}" for name in one.failed), sep="\n")
    return int(any(one.failed or not one.passed for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
