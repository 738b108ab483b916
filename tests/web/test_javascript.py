"""The front end's own tests (tests/js), where node is installed; `make check-js` adds eslint, prettier and tsc."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_pure_modules_pass_their_tests():
    files = sorted(str(path) for path in (ROOT / "tests" / "js").glob("*.test.js"))
    command = ["node", "--import", "./tests/js/resolve.js", "--test", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_lock_file_names_no_registry():
    lock = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock and not re.search(r"registry\.\w+", lock)
