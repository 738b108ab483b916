"""Does the installed Headwise work on this machine? Its command checks a tiny model, builds its atlas, and reads it.

    make smoke                    with make's environment
    python scripts/smoke.py       with any environment in which Headwise is installed

Takes half a minute and no download: what CI runs on macOS, on Windows and with the oldest dependencies, and what
tests/test_packaging.py runs with the built wheel. Everything is written to a folder that is deleted at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # at the end: the installed package is what is tried

from planted import save_tiny, tiny_passages  # noqa: E402


def headwise(*arguments: str) -> str:
    """What the installed command prints; its error ends the program."""
    command = shutil.which("headwise", path=str(Path(sys.executable).parent))
    if command is None:
        raise SystemExit(f"There is no command headwise next to {sys.executable}; install the package first.")
    settings = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"}
    done = subprocess.run(
        [command, *arguments], env=settings, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"headwise {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main() -> None:
    """One command after the other, as a reader of the README would."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        save_tiny("model", layers=2)
        texts = [json.dumps({"text": one.text}) for one in tiny_passages(4).items]
        Path("texts.jsonl").write_text("\n".join(texts), encoding="utf-8")
        print(headwise("--version").strip())
        checks = json.loads(headwise("check", "model", "--json"))["checks"]
        assert len(checks) >= 8 and all(one["passed"] for one in checks), checks
        headwise("build", "model", "--studies", "profile", "--data", "texts.jsonl", "-o", "atlas")
        assert "2 layers" in (said := headwise("describe", "atlas", "profile")), said
        headwise("show", "atlas", "profile", "-o", "profile.pdf")
        assert Path("profile.pdf").read_bytes().startswith(b"%PDF")
        assert "<html" in Path("atlas-report.html").read_text(encoding="utf-8")[:2000]
        os.chdir(ROOT)
    print("check, build, describe, show and the report work here")


if __name__ == "__main__":
    main()
