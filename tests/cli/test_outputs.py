"""What a verb writes: whole or not at all. What it prints: text, never codes. What it does not foresee: one sentence."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.cli import main as cli

CODE = "import sys; sys.argv[0] = 'headwise'; from headwise.cli.main import main; main()"
SOURCE = Path(cli.__file__).parents[1]
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture(scope="module")
def atlas(tmp_path_factory) -> Path:
    made = Atlas.create(tmp_path_factory.mktemp("outputs") / "atlas")
    made.add("profile", profile_dataset(3, 2, texts=4, randoms=2).assign_attrs(record='["value"]'))
    return made.path


@pytest.fixture
def full(monkeypatch):
    """A disk that is full when a file is to be made safe."""

    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", str(arguments[0]))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (["show", "atlas", "profile"], "out.png"),
        (["heads", "atlas"], "out.csv"),
        (["heads", "atlas"], "out.json"),
        (["head", "atlas", "L0H0"], "out.md"),
        (["report", "atlas"], "out.html"),
    ],
)
def test_a_full_disk_leaves_what_was_there(headwise, full, atlas, tmp_path, verb, name):
    (tmp_path / "atlas").symlink_to(atlas)
    target = tmp_path / name
    target.write_text("what was there")
    run = headwise(*verb, "-o", name, cwd=tmp_path)
    assert run.code == 2, run.err
    assert "the disk is full" in run.err and "What was there before is intact" in run.err
    assert "Traceback" not in run.err
    assert target.read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["atlas", name]), "nothing is left over"


@pytest.mark.parametrize("form", [["--output=~/out.csv"], ["-o~/out.csv"], ["-o", "~/out.csv"]])
def test_the_home_folder_is_expanded_at_the_door(headwise, atlas, tmp_path, monkeypatch, form):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    run = headwise("heads", atlas, *form, cwd=tmp_path)
    assert run.code == 0, run.err
    assert (home / "out.csv").is_file()
    assert not (tmp_path / "~").exists()


def test_the_home_folder_of_an_atlas(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Atlas.create("~/mine").path == tmp_path / "mine"


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "missing/out.csv", "."])
def test_names_that_cannot_be_written(headwise, atlas, tmp_path, name):
    run = headwise("heads", atlas, "-o", name, cwd=tmp_path)
    assert run.code == 2 and "Traceback" not in run.err
    assert len(run.err.splitlines()) == 1, run.err


def test_a_full_standard_output(atlas, tmp_path):
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-c", CODE, "heads", str(atlas)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("headwise: the standard output: No space left on device")
    assert "Exception ignored" not in run.stderr


def test_what_nobody_foresaw_is_a_bug_and_says_so(headwise, atlas, tmp_path, monkeypatch):
    def broken(*_):
        raise KeyError("surprise")

    monkeypatch.setattr(Atlas, "open", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = headwise("heads", atlas, cwd=tmp_path)
    assert run.code == 70
    (line,) = run.err.splitlines()
    assert line.startswith("headwise: this is a bug in Headwise (KeyError: 'surprise'); the details are in ")
    (log,) = tmp_path.glob("headwise-bug-*.log")
    assert str(log) in line and "in broken\n" in log.read_text()


def test_arguments_that_are_not_text(atlas, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", CODE, "heads", b"\xff\xfe"], capture_output=True, check=False, cwd=tmp_path
    )
    assert run.returncode == 2 and b"is not UTF-8 text" in run.stderr and b"Traceback" not in run.stderr


@pytest.fixture
def poisoned(tmp_path) -> Path:
    """An atlas whose texts hold terminal codes and formulas."""
    made = Atlas.create(tmp_path / "poisoned")
    dataset = profile_dataset(3, 2, texts=4, randoms=2).assign_attrs(record='["value"]')
    label = dataset["label"].copy()
    label = label.astype(object)
    label[:] = [f"{ESCAPES}{text}" for text in label.values]
    made.add("profile", dataset.assign_coords(label=label))
    toy = xr.Dataset(
        {"note": (("layer", "head"), [["=HYPERLINK(1)", "+1"], ["-cmd", f"x{ESCAPES}"], ["@SUM(1)", "-0.5"]])},
        {"layer": [0, 1, 2], "head": [0, 1]},
    ).assign_attrs(record='["note"]')
    origin = json.dumps(json.loads(made["profile"].attrs["provenance"]) | {"study": "toy"})
    made.add("toy", toy.assign_attrs(provenance=origin))
    return made.path


@pytest.mark.parametrize(
    "verb", [["describe", "profile"], ["heads"], ["head", "L1H1"], ["heads", "--columns", "all"], ["describe", ESCAPES]]
)
def test_codes_are_shown_and_not_obeyed(headwise, poisoned, verb, tmp_path):
    run = headwise(verb[0], poisoned, *verb[1:], cwd=tmp_path)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", run.out + run.err)


def test_compared_codes_are_shown_and_not_obeyed(headwise, poisoned, atlas, tmp_path):
    run = headwise("compare", poisoned, atlas, cwd=tmp_path)
    assert run.code == 0, run.err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", run.out + run.err)


def test_formulas_are_text_in_a_csv(headwise, poisoned, tmp_path):
    run = headwise("heads", poisoned, "-o", "heads.csv", cwd=tmp_path)
    assert run.code == 0, run.err
    text = (tmp_path / "heads.csv").read_text()
    assert "'=HYPERLINK(1)" in text and "'@SUM(1)" in text and "'-cmd" in text
    assert not re.search(r"(^|,)[=@]", text, re.MULTILINE)
    assert re.search(r",-0\.5", text) and "'-0.5" not in text, "numbers stay numbers"


def test_every_line_is_printed_by_the_terminals_door():
    for path in (SOURCE / "cli").glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if ">>>" not in line and path.name != "terminal.py"]
        assert not [line for line in lines if re.search(r"typer\.s?echo\(|(?<![.\w])print\(|Console\(", line)], path
