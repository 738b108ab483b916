"""Install the oldest or the newest dependencies that pyproject.toml allows, and try the package with them.

    make smoke-oldest                                    the lower bounds of pyproject.toml
    make smoke-newest                                    the newest releases, whatever constraints.txt says
    python scripts/dependencies.py oldest torch==2.13.0  with another version of one of them

The environment is .cache/oldest or .cache/newest. uv resolves (pip has no way to ask for the oldest), pip installs, and
scripts/smoke.py is run with the extras gguf, peft and web. Takes some minutes and 1.3 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("gguf", "peft", "web")
RESOLUTION = {"oldest": "lowest-direct", "newest": "highest"}


def main() -> None:
    """One environment, made again from nothing."""
    which, *others = sys.argv[1:] or [""]
    if which not in RESOLUTION:
        raise SystemExit(
            f"Which dependencies? One of {', '.join(RESOLUTION)}, and perhaps others such as torch==2.13.0."
        )
    folder = ROOT / ".cache" / which
    venv.create(folder, clear=True, with_pip=True, symlinks=os.name != "nt")
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "uv", *others], check=True)
    with tempfile.TemporaryDirectory() as other:
        fixed, found = Path(other, "fixed.txt"), Path(other, "found.txt")
        fixed.write_text("\n".join(others), encoding="utf-8")
        command = [programs / "uv", "pip", "compile", "pyproject.toml", "--resolution", RESOLUTION[which], "--quiet"]
        command += ["--python", programs / "python", "--constraint", fixed, "--output-file", found]
        subprocess.run([*command, *(f"--extra={name}" for name in EXTRAS)], cwd=ROOT, check=True)
        subprocess.run([*pip, "--requirement", found], check=True)
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    subprocess.run([programs / "python", ROOT / "scripts" / "smoke.py"], check=True)


if __name__ == "__main__":
    main()
