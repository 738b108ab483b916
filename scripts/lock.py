"""Write requirements.lock: every dependency with its version and the SHA-256 of its files, for those who want to check them.

    pip install uv && python scripts/lock.py                                  make it again, after constraints.txt has changed

    pip install torch==2.13.0                                                 the build for your machine
    pip install --require-hashes --no-deps -r requirements.lock               everything else, checked
    pip install --no-deps --no-build-isolation .                              Headwise itself

Versions are those of constraints.txt; the extras are all but docs and dev. torch, and what only torch needs, are left out: its
builds differ by platform and by CUDA version, and come from other places. make does not use the lock, for the same reason.
No place to fetch from is named: pip uses the one you have configured.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("gguf", "peft", "datasets", "web", "notebook", "ray", "cloud")
BUILD_TOOLS = ("editables", "hatchling")
TORCH = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
HEADER = "# Made by scripts/lock.py, which says how to use it. Without torch, whose builds differ by platform.\n"


def main() -> None:
    """Resolve with uv, for all platforms and Python 3.11 and newer."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not TORCH.match(line)]
    with tempfile.TemporaryDirectory() as folder:
        given, tools = Path(folder, "constraints.txt"), Path(folder, "tools.in")
        given.write_text("\n".join(pins) + "\n")
        tools.write_text("\n".join(BUILD_TOOLS) + "\n")
        command = ["uv", "pip", "compile", "pyproject.toml", str(tools), "--constraint", str(given), "--universal"]
        command += ["--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
        command += [word for extra in EXTRAS for word in ("--extra", extra)]
        found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    entries = re.split(r"\n(?=\S)", found.strip())
    kept = [entry for entry in entries if not TORCH.match(entry) and not entry.startswith("-")]
    (ROOT / "requirements.lock").write_text(HEADER + "\n".join(kept) + "\n")


if __name__ == "__main__":
    sys.exit(main())
