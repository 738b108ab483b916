"""The registry: every study declared once, names resolved to the studies that produce them, nothing heavy loaded."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from headwise.cli.settings import refuse_unknown
from headwise.core.errors import StudyError
from headwise.studies.registry import datasets, default_studies, producers, studies, with_dependencies
from headwise.studies.spec import StudyOptions


def test_every_study_declares_what_everything_else_is_derived_from():
    for name, spec in studies().items():
        assert spec.name == name == spec.options.study and issubclass(spec.options, StudyOptions)
        assert spec.cost is not None and set(spec.depends_on) <= set(studies())
        for field in dataclasses.fields(spec.options):
            assert field.metadata["help"], f"{name}.{field.name} has no help"


def test_every_dataset_says_how_it_is_shown():
    for name, spec in datasets().items():
        assert spec.question.endswith("?") and spec.method.text.endswith((".", "?"))
        assert bool(spec.method.source) == bool(spec.method.link)
        assert bool(spec.figure) == bool(spec.words) == bool(spec.variants)
        assert spec.figure or spec.read_with, f"{name} can be neither drawn nor read"
        assert len({one.key for one in spec.variants}) == len(spec.variants)


def test_a_produced_dataset_is_built_by_its_study():
    assert producers(["detection"]) == ["spectral"] and producers(["salience"]) == ["relations"]
    assert with_dependencies(["detection"]) == ["answers", "spectral"]


def test_slow_studies_are_built_only_when_named():
    assert set(studies()) - set(default_studies()) == {
        "samples", "uncertainty", "transfer", "causal", "causal_answers", "circuits", "sparsity"
    }  # fmt: skip
    assert with_dependencies(["samples"]) == ["answers", "probing", "samples"]


def test_what_each_study_is_shown():
    inputs = {name: [study for study, spec in studies().items() if name in spec.inputs] for name in
              ("passages", "reference", "questions", "relations", "steps")}  # fmt: skip
    assert inputs == {
        "passages": ["profile", "patterns", "causal", "sparsity"],
        "reference": ["patterns", "circuits"],
        "questions": ["causal", "answers", "causal_answers", "samples", "uncertainty"],
        "relations": ["relations", "relation_validation"],
        "steps": ["functions", "function_masking"],
    }


@pytest.mark.parametrize(
    ("names", "settings", "sentence"),
    [
        (["profil"], [], "no study 'profil'. Did you mean 'profile'"),
        ([], ["aswers.k=1"], "no study 'aswers' with options. Did you mean 'answers'"),
        ([], ["spectral.kk=1"], "spectral has no option 'kk'"),
        ([], ["spectral.k"], "STUDY.OPTION=VALUE"),
        ([], ["spectral.k=abc"], "option k of the study spectral takes a whole number or none, not 'abc'."),
        ([], ["profile.period=1"], "profile.period must be at least 3, not 1; write --set profile.period=3."),
        (
            [],
            ["functions.key_tokens=some"],
            "functions.key_tokens cannot be 'some'. Known: all, content, first, last.",
        ),
    ],
)
def test_names_and_values_that_are_not_there_are_refused(names, settings, sentence):
    with pytest.raises(StudyError) as error:
        refuse_unknown(names, settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "words", [["build", "--studies", "profil"], ["build", "--set", "profile.perod=3"], ["plan", "--studies", "x"]]
)
def test_a_misspelt_name_is_refused_before_anything_heavy_is_loaded(words):
    code = (
        "import sys\nfrom headwise.cli.main import main\n"
        f"sys.argv = ['headwise', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules, 'xarray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2", "False", "False"], done.stderr
