"""Options of studies and figures, from words."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from headwise.cli.settings import figure_options, study_options
from headwise.core.errors import StudyError


@dataclass(frozen=True)
class Options:
    k: int = 10
    temperature: float = 0.0
    few_shot: int | None = None
    chat: bool | None = None
    too_long: str = "refuse"
    sites: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


HINTS = {"features": Iterable[str] | str | None, "part": str, "matched": bool, "least": float}


def test_study_options_take_the_type_of_their_field():
    words = [
        "s.k=50",
        "s.temperature=1",
        "s.few_shot=none",
        "s.chat=no",
        "s.too_long=drop",
        "s.sites=mlp, residual",
        "s.steps=1,2",
    ]
    assert study_options(words, {"s": Options}) == {
        "s": Options(50, 1.0, None, False, "drop", ("mlp", "residual"), (1, 2))
    }
    assert study_options(["s.few_shot=3"], {"s": Options})["s"].few_shot == 3
    assert study_options([], {"s": Options}) == {}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("k=5", "STUDY.OPTION=VALUE, such as answers.temperature=0.7, not 'k=5'; write s.k=5"),
        ("s.k", "STUDY.OPTION=VALUE"),
        ("t.k=5", "no study 't'"),
        ("s.temprature=1", "Did you mean 'temperature'?"),
        ("s.k=many", "The option k of the study s takes a whole number, not 'many'"),
        ("s.few_shot=many", "a whole number or none, not 'many'"),
        ("s.chat=perhaps", "yes or no"),
        ("s.steps=1,two", "The option steps of the study s takes a whole number, not 'two'"),
    ],
)
def test_wrong_study_options_are_refused(word, sentence):
    with pytest.raises(StudyError, match=sentence.replace(".", r"\.").replace("?", r"\?")):
        study_options([word], {"s": Options})


def test_numbers_of_heads_are_numbers_when_they_reach_the_study():
    removed = "relation_validation.removed"
    assert study_options([f"{removed}=1,2,8"])["relation_validation"].removed == (1, 2, 8)
    with pytest.raises(StudyError, match="removed of the study relation_validation takes a whole number, not 'one'"):
        study_options([f"{removed}=one"])


def test_figure_options():
    words = ["--features", "laplacian,entropy", "--matched", "--part=answer", "--least", "0.5"]
    wanted = {"features": ("laplacian", "entropy"), "matched": True, "part": "answer", "least": 0.5}
    assert figure_options(words, HINTS, "spectral") == wanted
    assert figure_options(["--matched", "no", "--features", "none"], HINTS, "s") == {"matched": False, "features": None}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--feature", "x"], "Did you mean 'features'"),
        (["stray"], "unexpected argument 'stray'"),
        (["--part"], "--part needs a value"),
        (["--least", "low"], "--least of the spectral figure takes a number, not 'low'"),
    ],
)
def test_wrong_figure_options_are_refused(words, sentence):
    with pytest.raises(StudyError, match=sentence):
        figure_options(words, HINTS, "spectral")


def test_a_figure_without_options_says_so():
    with pytest.raises(StudyError, match="It has none"):
        figure_options(["--anything", "1"], {}, "detection")
