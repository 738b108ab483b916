"""What comes next: the end of a build, quick builds and their mark, and `headwise` with nothing behind it."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from headwise.atlas import Atlas
from headwise.cli.first_steps import HEADLINE_LINES, clipped, summary, welcome
from headwise.studies.registry import default_studies, studies
from headwise.studies.spec import QUICK_QUESTIONS
from headwise.web.content import Content

SCREEN_LINES = 48


@pytest.fixture(scope="module")
def quick(headwise, tiny, texts, tmp_path_factory) -> Path:
    """A quick atlas; tests only read it."""
    folder = tmp_path_factory.mktemp("quick")
    result = headwise(
        "build",
        tiny,
        "--data",
        texts,
        "--studies",
        "profile",
        "--quick",
        "--set",
        "profile.period=16",
        "-o",
        folder / "atlas",
    )
    assert result.code == 0, result.err
    (folder / "printed.txt").write_text(result.out, encoding="utf-8")
    return folder / "atlas"


def test_a_quick_build_takes_the_declared_values_and_those_that_are_set(quick):
    given = Atlas.open(quick).provenance("profile").parameters
    options = studies()["profile"].options
    known = {one.name: one.metadata["quick"] for one in dataclasses.fields(options)}
    assert known["max_tokens"] < options().max_tokens and given["max_tokens"] == known["max_tokens"]
    assert given["repeats"] == known["repeats"] < options().repeats
    assert given["period"] == 16


def test_a_quick_build_is_marked_everywhere(quick):
    atlas = Atlas.open(quick)
    assert atlas.provenance("profile").quick
    assert atlas.figure("profile").provenance.startswith("QUICK BUILD")
    words = atlas.describe("profile")
    assert "quick build" in words.caveats[0] and "Quick build" in words.short()
    assert Content(atlas).at("atlas")["quick"] is True
    assert "A quick build" in (quick.parent / "printed.txt").read_text(encoding="utf-8")


def test_a_full_build_is_not_marked(atlas):
    found = Atlas.open(atlas)
    assert not found.provenance("profile").quick
    assert "QUICK" not in found.figure("profile").provenance
    assert "quick" not in found.describe("profile").text().lower()


def test_quick_and_full_measurements_never_share_an_atlas(headwise, quick, atlas, tiny, texts, tmp_path):
    for made, more, advice in ((quick, [], "add --quick"), (atlas, ["--quick"], "omit --quick")):
        copy = shutil.copytree(made, tmp_path / advice.replace(" ", ""))
        for redo in ([], ["--redo", "profile"]):
            refused = headwise(
                "build", tiny, "--data", texts, "--studies", "profile", *more, *redo, "-o", copy
            ).refused()
            assert advice in refused and "choose another folder with -o" in refused
        assert Atlas.open(copy).provenance("profile") == Atlas.open(made).provenance("profile")


@pytest.mark.parametrize("limit", ["0", str(QUICK_QUESTIONS + 1)])
def test_a_quick_build_of_many_questions_is_refused(headwise, tiny, tmp_path, limit):
    refused = headwise("build", tiny, "--quick", "--limit", limit, "-o", tmp_path / "atlas").refused()
    assert f"at most {QUICK_QUESTIONS} questions" in refused


def test_a_quick_build_leaves_out_the_longest_studies():
    assert set(default_studies()) - set(default_studies(quick=True)) == {"relation_validation", "function_masking"}


@pytest.mark.parametrize("name", list(studies()))
def test_the_values_of_a_quick_build_are_allowed_and_smaller(name):
    options = studies()[name].options
    quick, full = options.for_quick_build(), options()
    for one in dataclasses.fields(options):
        value, usual = getattr(quick, one.name), getattr(full, one.name)
        if value != usual and usual is not None and not isinstance(value, tuple):
            assert value < usual


def test_the_summary_is_one_screen(quick, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = summary(Atlas.open(quick), quick.with_name("atlas-report.html"), None, 103.4)
    assert len(lines) <= SCREEN_LINES and "1 min 43 s" in "\n".join(lines)
    assert sum(line.startswith("  headwise ") for line in lines) == 3
    # nine studies with pages is what the default build has
    assert HEADLINE_LINES * len(default_studies()) + len(lines) <= SCREEN_LINES


def test_the_commands_of_the_summary_work(headwise, quick):
    printed = (quick.parent / "printed.txt").read_text(encoding="utf-8")
    commands = re.findall(r"^  headwise (\S+(?: \S+)*?)   ", printed, re.M)
    assert [command.split()[0] for command in commands] == ["head", "describe", "serve"]
    for command in commands[:2]:
        assert headwise(*command.split()).code == 0


def test_a_headline_is_cut_between_clauses():
    text = "34 % of the heads attend to the first token; the strongest induction head is L18H6 (0.896, 0.88 to 0.91)."
    for length in range(30, len(text) + 5):
        short = clipped(text, length)
        assert len(short) <= max(length, len(text) if length >= len(text) else 0) + 1
        assert short == text or short.endswith(" …")
        assert all(
            number in text.split() or number.strip(";,().") in text for number in short.removesuffix(" …").split()
        )


def test_headwise_alone_says_how_to_begin(headwise, tmp_path):
    result = headwise(cwd=tmp_path)
    assert result.code == 0
    assert "headwise build --quick" in result.out and "There is no atlas in this folder yet" in result.out


def test_headwise_alone_names_the_atlas_that_is_there(headwise, quick):
    result = headwise(cwd=quick.parent)
    assert result.code == 0
    assert "atlas is a quick atlas of" in result.out and "atlas-report.html is its report" in result.out
    assert "headwise describe atlas profile" in result.out and "There is no atlas" not in result.out
    printed = (quick.parent / "printed.txt").read_text(encoding="utf-8")
    heads = [re.search(r"headwise head \S+ (L\d+H\d+)", text)[1] for text in (result.out, printed)]
    assert heads[0] == heads[1] == re.search(r"L\d+H\d+", Atlas.open(quick).describe("profile").text())[0]


def test_the_demo_is_found_and_a_damaged_atlas_is_not_named(quick, tmp_path):
    shutil.copytree(quick, tmp_path / "demo" / "atlas")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "zarr.json").write_text("{", encoding="utf-8")
    lines = "\n".join(welcome(tmp_path))
    assert f"{Path('demo', 'atlas')} is a quick atlas" in lines and "broken" not in lines
