"""A tiny model in a folder, texts for it, and an atlas built from both by the command line itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from planted import save_tiny, tiny_passages

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"


class Result:
    """What a command printed and how it ended."""

    def __init__(self, done: subprocess.CompletedProcess[str]):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def refused(self) -> str:
        """The one sentence of a refusal: exit code 2, no traceback."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err + self.out
        lines = [line for line in self.err.splitlines() if line.startswith("headwise: ")]
        assert len(lines) == 1, self.err
        return lines[0]


def run(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "160", "TERM": "dumb", **environment}
    return Result(subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=300))


@pytest.fixture(scope="session")
def headwise():
    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    import json

    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = [{"id": p.id, "text": p.text, "register": p.register} for p in tiny_passages(12).items]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def atlas(tmp_path_factory, tiny, texts) -> Path:
    """Built once; tests only read it."""
    folder = tmp_path_factory.mktemp("built")
    result = run("build", tiny, "--data", texts, "--studies", "profile", "-o", folder / "atlas")
    assert result.code == 0, result.err
    return folder / "atlas"
