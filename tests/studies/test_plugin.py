"""A study of another package: the one that docs/adding/study.md explains, installed, then used by every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_code import DOCS, blocks
from planted import save_tiny

WORDS = "the old river was the old river and the old house was by the low wall of the old river"

COMMANDS = """
import contextlib, io, json, sys
from headwise.cli.main import main
real = sys.stdout
for line in sys.stdin:
    words, code = json.loads(line)
    sys.argv, ended, out, err = ["headwise", *words], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(code, {}) if code else main()
        except SystemExit as end:
            ended = end.code or 0
    print(json.dumps([ended, out.getvalue(), err.getvalue()]), file=real, flush=True)
"""  # one process for all commands: starting another takes seconds


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package from the page, installed into a folder of its own."""
    source, site = tmp_path_factory.mktemp("headwise-recency"), tmp_path_factory.mktemp("site")
    for block in blocks(DOCS / "adding" / "study.md"):
        if block.file and not block.file.endswith(".jsonl"):
            (source / block.file).parent.mkdir(parents=True, exist_ok=True)
            (source / block.file).write_text(block.text, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True, text=True)
    return site


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a command of headwise (or Python code) where the package is installed."""
    folder = tmp_path_factory.mktemp("work")
    save_tiny(folder / "model", layers=2)
    save_tiny(folder / "other", layers=2, seed=1)
    texts = [json.dumps({"id": str(n), "text": f"{WORDS} {n * 'wall '}"}) for n in range(4)]
    (folder / "texts.jsonl").write_text("\n".join(texts), encoding="utf-8")
    paths = [str(installed), str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "120"}

    program = subprocess.Popen(
        [sys.executable, "-c", COMMANDS], cwd=folder, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def call(*words: str, code: str = "") -> str:
        print(json.dumps([words, code]), file=program.stdin, flush=True)
        ended, out, err = json.loads(program.stdout.readline())
        assert ended == 0, f"{' '.join(words)}\n{out}\n{err}"
        return out

    with program:
        call(
            "build",
            "model",
            "--studies",
            "recency",
            "--data",
            "texts.jsonl",
            "-o",
            "atlas",
            "--set",
            "recency.window=4",
        )
        yield call


def test_it_is_planned_built_drawn_and_described(run: Any) -> None:
    assert "recency" in run("plan", "model", "--studies", "recency", "--data", "texts.jsonl")
    assert run("show", "atlas", "recency", "-o", "recency.svg").strip() == "recency.svg"
    words = run("describe", "atlas", "recency")
    assert "Recency: mean weight on the last tokens" in words or "How recent each head's attention is" in words
    assert "95 % confidence interval" in words


def test_its_heads_are_in_the_table_and_on_the_heads_page(run: Any) -> None:
    assert "recency.value" in run("heads", "atlas", "--sort", "recency.value", "-n", "3")
    assert "Recency" in run("head", "atlas", "L1H2")


def test_report_and_comparison_know_it(run: Any) -> None:
    run("report", "atlas", "-o", "report.html")
    run("build", "other", "--studies", "recency", "--data", "texts.jsonl", "-o", "second", "--set", "recency.window=4")
    assert "recency" in run("compare", "atlas", "second").lower()


def test_python_knows_it(run: Any) -> None:
    code = (
        "import headwise as hw\n"
        "atlas = hw.build('model', [hw.studies.Recency(window=4)], data='texts.jsonl', output='atlas')\n"
        "print(atlas.studies, atlas.figure('recency').panels[0].values.shape)"
    )
    assert run(code=code).strip().endswith("['recency'] (2, 4)")


def test_a_broken_plugin_does_not_take_the_others_with_it(run: Any, tmp_path: Path) -> None:
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[headwise.studies]\nbroken = no_such_module:SPEC\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from headwise.studies.registry import studies\nstudies.cache_clear()\n"
        "print('recency' in studies(), 'broken' in studies())"
    )
    assert run(code=code).split() == ["True", "False"]
