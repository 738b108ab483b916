"""The studies and options as their source says: the same as when it is run, and without loading torch."""

import dataclasses
import subprocess
import sys
import typing

import pytest

from headwise.cli.catalogue import catalogue, refuse_unknown
from headwise.core.errors import StudyError


def test_it_is_what_the_studies_say_when_they_are_loaded():
    from headwise.studies.catalogue import OPTIONS, STUDIES

    fields = {study: [field.name for field in dataclasses.fields(kind)] for study, kind in OPTIONS.items()}
    assert {study: list(options) for study, options in catalogue().items()} == fields
    assert set(fields) == set(STUDIES)


def test_types_are_what_the_dataclasses_say():
    from headwise.studies.catalogue import OPTIONS

    told = {(study, name): kind for study, options in catalogue().items() for name, kind in options.items()}
    hints = {
        (study, name): hint for study, kind in OPTIONS.items() for name, hint in typing.get_type_hints(kind).items()
    }
    read = {place: kind for place, kind in told.items() if kind is not None}
    assert read == {place: hints[place] for place in read}
    assert len(read) >= len(told) - 3  # endpoints are given by options of their own


@pytest.mark.parametrize(
    ("studies", "settings", "sentence"),
    [
        (["profil"], [], "no study 'profil'. Did you mean 'profile'"),
        ([], ["aswers.k=1"], "no study 'aswers' with options. Did you mean 'answers'"),
        ([], ["spectral.kk=1"], "spectral has no option 'kk'"),
        ([], ["spectral.k"], "STUDY.OPTION=VALUE"),
        ([], ["spectral.k=abc"], "option k of the study spectral takes a whole number or none, and was given 'abc'"),
    ],
)
def test_names_that_are_not_there_are_refused(studies, settings, sentence):
    with pytest.raises(StudyError) as error:
        refuse_unknown(studies, settings)
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
