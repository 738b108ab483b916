"""Tutorials: every page has its parts, every command on it is one that Headwise takes, every option that it names is there.

Commands that draw make their figure from a made-up atlas (not the ink), those that read are run on it; of those that
measure the words are checked against the verb's options. Numbers on the pages are of the real atlas: the studies' own
tests hold those.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from unittest import mock

import pytest
import typer
from page_code import blocks
from synthetic.atlas import MAKERS, synthetic_atlas
from typer.testing import CliRunner

import headwise as hw
from headwise.analysis import AGREEMENT
from headwise.atlas import Atlas, open_location
from headwise.atlas.training_atlas import MeasuredCheckpoint, add_to_manifest
from headwise.cli.main import app
from headwise.cli.settings import figure_options
from headwise.studies.present import figure_of, figure_types
from headwise.studies.registry import studies

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
PARTS = ["Read the figure", "Make it", "Options worth knowing", "Cost", "Keep in mind"]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
READS = ("describe", "heads", "head")
VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def commands(page: Path) -> list[list[str]]:
    """Every command line of a page, as words, without the comment behind it."""
    lines = [
        line for kind, text in BLOCK.findall(page.read_text("utf-8")) if kind == "sh" for line in text.splitlines()
    ]
    told = [line.split("  #")[0].strip() for line in lines]
    return [shlex.split(line)[1:] for line in told if line.startswith("headwise ")]


def ids(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="module")
def atlas(tmp_path_factory) -> Atlas:
    made = synthetic_atlas(tmp_path_factory.mktemp("tutorials") / "atlas", 30, 9, [*MAKERS, "salience"])
    for other in ("dense", "sparse", "full", "nf4"):
        shutil.copytree(made.path, made.path.with_name(other))
    training = open_location(made.path.with_name("training-atlas"))
    for step in (0, 512, 1344, 1408, 1472):
        shutil.copytree(made.path, training.folder / f"step-{step}")
        add_to_manifest(training, MeasuredCheckpoint(step, "made-up", losses={"eval_repeated_loss": 4.0}))
    return made


def test_there_is_one_for_every_map():
    names = [
        "functions",
        "joins",
        "patterns",
        "probing",
        "profile",
        "quantised",
        "relations",
        "spectral",
        "streaming",
        "training",
    ]
    assert [page.stem for page in PAGES] == names
    listed = (FOLDER / "index.md").read_text("utf-8")
    assert all(f"({name}.md)" in listed for name in names)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_page_has_its_parts(page):
    text = page.read_text("utf-8")
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [part for part in found if part in PARTS] == PARTS
    assert text.index("![") < text.index("## Read the figure"), "a page opens with its figure"
    reading = text.split("## Read the figure")[1].split("\n## ")[0]
    assert re.findall(r"^(\d)\. ", reading, re.MULTILINE) == list("123456")
    assert len(commands(page)) >= 5


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_pictures_are_there_and_told(page):
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8"))
    assert pictures
    for told, path in pictures:
        assert len(told) > 30 and (page.parent / path).resolve().is_file(), path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_verb_and_option_is_known(page):
    for verb, *words in commands(page):
        known = {name for parameter in VERBS[verb].params for name in parameter.opts}
        if verb == "show":
            known |= {f"--{name.replace('_', '-')}" for name in figure_types(words[1])}
        asked = {word for word in words if re.fullmatch(r"-\w|--[a-z-]+", word)}
        assert asked <= known, (verb, words, asked - known)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_option_of_a_study_is_known(page):
    fields = {study: {field.name for field in dataclasses.fields(spec.options)} for study, spec in studies().items()}
    named = re.findall(r"(?:`|--set \"?)([a-z_]+)\.([a-z_]+)(?:=|`)", page.read_text("utf-8"))
    for study, option in named:
        if study in fields and option not in ("best",):
            assert option in fields[study], f"{study}.{option}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_what_draws_finds_its_figure(page, atlas):
    for verb, *words in commands(page):
        if verb == "show" and words[1] != AGREEMENT:
            own = [word for at, word in enumerate(words[2:], 2) if "-o" not in (word, words[at - 1])]
            assert figure_of(words[1], atlas[words[1]], **figure_options(own, figure_types(words[1]), words[1])).panels


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_what_reads_runs(page, atlas, monkeypatch):
    monkeypatch.chdir(atlas.path.parent)
    for typed in commands(page):
        words = [word.replace(",functions.best", "") for word in typed]  # which the made-up study does not have
        if words[0] in READS and words[2:3] != [AGREEMENT]:
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0 and done.stdout.strip(), (words, done.output, done.exception)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_python_on_a_page_can_be_pasted(page, atlas, monkeypatch):
    """In a folder with the atlases that the commands above it made; only the model of a scorer or a watch is made up."""
    monkeypatch.chdir(atlas.path.parent)
    monkeypatch.setattr(hw.AnswerScorer, "open", lambda where: mock.create_autospec(hw.AnswerScorer, instance=True))
    monkeypatch.setattr(hw, "load", mock.MagicMock())
    monkeypatch.setattr(hw, "watch", mock.MagicMock())
    python = [block.text for block in blocks(page) if block.language == "python"]
    assert python
    space: dict[str, object] = {}
    for code in python:
        exec(compile(code, str(page), "exec"), space)
