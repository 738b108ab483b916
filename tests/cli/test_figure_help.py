"""`headwise show ATLAS STUDY --help`: the options of that study's figure, and those that contradict each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from synthetic.atlas import RECORD
from synthetic.circuits import circuits_dataset
from synthetic.patterns import patterns_dataset
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.cli.settings import study_in
from headwise.core.errors import StudyError
from headwise.studies.present import _refuse_conflicts, figure_defaults, figure_types, refuse_style
from headwise.studies.registry import datasets

OPTIONS = {name: spec.figure_options for name, spec in datasets().items() if spec.figure}


def refuse_conflicts(study: str, given: dict[str, Any], defaults: dict[str, Any]) -> None:
    _refuse_conflicts(datasets()[study], given, defaults)


@pytest.mark.parametrize("study", OPTIONS)
def test_every_option_of_a_figure_is_told_and_nothing_else(study: str) -> None:
    assert list(OPTIONS[study]) == list(figure_types(study))
    for name, option in OPTIONS[study].items():
        assert option.meaning.endswith(".") and (option.example or figure_types(study)[name] is bool)
        assert set(option.without) <= set(OPTIONS[study]) and set(option.needs) <= set(OPTIONS[study])


@pytest.mark.parametrize("study", OPTIONS)
def test_help_lists_them_with_type_meaning_and_example(headwise: Any, study: str) -> None:
    said = headwise("show", "nowhere", study, "--help")
    assert said.code == 0, said.err
    text = re.sub(r"[\s│]+", " ", said.out)
    for name, option in OPTIONS[study].items():
        takes = "" if figure_types(study)[name] is bool else "(NAMES|NUMBERS?|TEXT) "
        assert re.search(f"--{name.replace('_', '-')} {takes}{re.escape(option.meaning.split(' ')[0])}", text)
        assert option.meaning.split(":")[0] in text and option.example in text
    assert f"headwise show atlas {study}" in text
    assert ("Options of the" in text) == bool(OPTIONS[study])


def test_without_a_study_help_says_how_to_ask(headwise: Any) -> None:
    said = headwise("show", "--help").out
    assert "headwise show ATLAS STUDY --help" in said and "Options of the" not in said
    assert study_in(["atlas", "--output", "profile"]) is None


def test_examples_of_the_help_are_not_refused() -> None:
    for study in OPTIONS:
        for name, option in OPTIONS[study].items():
            needs = {other: values[0] for other, values in option.needs.items()}
            refuse_conflicts(study, {name: option.example or True, **needs}, figure_defaults(study))


@pytest.mark.parametrize(
    ("study", "options", "sentence"),
    [
        ("patterns", {"head": "L0H0", "numbers": True}, "either --head or --numbers, not both"),
        ("patterns", {"heads": "L0H0", "top": 3}, "--heads or --top"),
        ("patterns", {"average": True, "statistics": "peak"}, "--average or --statistics"),
        ("functions", {"kind": "sorted", "cap": 0.1}, "--cap of the functions figure has no effect with --kind sorted"),
        ("relations", {"beyond_null": True, "kind": "relations"}, "--beyond-null .* choose --kind categories"),
        ("relations", {"relations": "copying"}, "no effect with --kind categories; .* choose --kind relations"),
        (
            "spectral",
            {"value": "effect", "scale": "log"},
            "--scale of the spectral figure has no effect with --value effect",
        ),
    ],
)
def test_options_without_effect_are_refused(study: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StudyError, match=sentence):
        refuse_conflicts(study, options, figure_defaults(study))


def test_an_option_at_its_default_contradicts_nothing() -> None:
    refuse_conflicts("patterns", {"head": "L0H0", "numbers": False, "top": None}, figure_defaults("patterns"))
    refuse_conflicts("functions", {"kind": "sorted", "value": "magnitude"}, figure_defaults("functions"))


def test_on_the_command_line(headwise: Any, tmp_path: Path) -> None:
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("patterns", patterns_dataset(4, 3))
    said = headwise("show", tmp_path / "atlas", "patterns", "--head", "L0H1", "--numbers").refused()
    assert "leave one of them out" in said
    result = headwise("show", tmp_path / "atlas", "patterns", "--top", "3", "--average", "-o", tmp_path / "top.png")
    assert result.code == 0 and (tmp_path / "top.png").stat().st_size > 10_000


@pytest.mark.parametrize("study", OPTIONS)
def test_a_study_without_a_published_layout_says_so(study: str) -> None:
    if "style" in OPTIONS[study]:
        return
    with pytest.raises(
        StudyError, match=f"The {study} figure follows no published figure and has one style only; leave out"
    ):
        refuse_style(study, {"style": "paper"})


def test_styles_on_the_command_line(headwise: Any, tmp_path: Path) -> None:
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("patterns", patterns_dataset(4, 3))
    atlas.add("circuits", circuits_dataset(4, 3))
    atlas.add("profile", profile_dataset(4, 3).assign_attrs(record=json.dumps(RECORD["profile"])))
    where = tmp_path / "atlas"
    assert headwise("show", where, "patterns", "--style", "paper", "-o", tmp_path / "paper.svg").code == 0
    assert (
        headwise(
            "show", where, "patterns", "--by", "circuits.greater_than", "--grid", "2x12", "-o", tmp_path / "c.svg"
        ).code
        == 0
    )
    assert "Greater than" in (tmp_path / "c.svg").read_text()
    refused = headwise("show", where, "profile", "--style", "paper").refused()
    assert "Studies with a published layout: patterns, spectral, probing, relations and functions" in refused
    assert (
        "no style 'papers' of figures. Did you mean 'paper'?"
        in headwise("show", where, "patterns", "--style", "papers").refused()
    )
