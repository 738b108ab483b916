"""A tiny model in a folder, texts for it, and an atlas built from both by the command line itself."""

import contextlib
import io
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from unittest import mock

import pytest
from answered import rows, write
from planted import save_tiny, tiny_passages

from headwise.cli.main import main

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "COLUMNS": "160", "TERM": "dumb"}


class Result:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def refused(self) -> str:
        """The one sentence of a refusal: exit code 2, no traceback."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err + self.out
        lines = [line for line in self.err.splitlines() if line.startswith("headwise: ")]
        assert len(lines) == 1, self.err
        return lines[0]


def run(*arguments: str | Path, cwd: Path | None = None) -> Result:
    """The entry point, in this process: starting another takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["headwise", *map(str, arguments)]))
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:  # a bug: what a process would print, and its exit code
            traceback.print_exc()
            code = 1
    return Result(code, out.getvalue(), err.getvalue())


def run_apart(*arguments: str | Path) -> Result:
    """The same in a process of its own, as a user has it."""
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    env = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    return Result(done.returncode, done.stdout, done.stderr)


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
    result = run_apart("build", tiny, "--data", texts, "--studies", "profile", "-o", folder / "atlas")
    assert result.code == 0, result.err
    return folder / "atlas"


@pytest.fixture(scope="session")
def detected(headwise, tiny, tmp_path_factory) -> Path:
    """An atlas with answers, maps and a detector; tests only read it."""
    folder = tmp_path_factory.mktemp("detected")
    questions = write(folder / "answers.jsonl", rows(90))
    result = headwise("build", tiny, "--studies", "spectral", "--questions", questions, "-o", folder / "atlas")
    assert result.code == 0, result.err
    return folder / "atlas"
