"""The studies and options as their source says: the same as when it is run, and without loading torch."""

import dataclasses
import subprocess
import sys

import pytest

from headwise.cli.catalogue import catalogue, refuse_unknown
from headwise.errors import StudyError


def test_it_is_what_the_studies_say_when_they_are_loaded():
    from headwise.studies.building import OPTIONS, STUDIES

    fields = {study: [field.name for field in dataclasses.fields(kind)] for study, kind in OPTIONS.items()}
    assert catalogue() == fields
    assert set(fields) == set(STUDIES)


@pytest.mark.parametrize(
    ("studies", "settings", "sentence"),
    [
        (["profil"], [], "no study 'profil'. Did you mean 'profile'"),
        ([], ["aswers.k=1"], "no study 'aswers' with options. Did you mean 'answers'"),
        ([], ["spectral.kk=1"], "spectral has no option 'kk'"),
        ([], ["spectral.k"], "STUDY.OPTION=VALUE"),
    ],
)
def test_names_that_are_not_there_are_refused(studies, settings, sentence):
    with pytest.raises(StudyError) as error:
        refuse_unknown(studies, settings)
    assert sentence in str(error.value)
    refuse_unknown(["profile"], ["spectral.k=many"])  # what a value may be is another's matter


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
