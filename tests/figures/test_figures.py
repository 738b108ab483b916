from __future__ import annotations

import subprocess
import sys

import pytest
import xarray as xr

from headwise import figures
from headwise.core.errors import StudyError
from headwise.studies.present import figure_of


def test_unknown_study(profile: xr.Dataset) -> None:
    with pytest.raises(StudyError, match=r"There is no figure for the study 'profil'. Did you mean 'profile'"):
        figure_of("profil", profile)


def test_public_names_exist() -> None:
    assert all(hasattr(figures, name) for name in figures.__all__)


@pytest.mark.parametrize(
    ("part", "heavy"),
    [
        ("figures", ("matplotlib", "torch", "transformers", "scipy")),
        ("describe", ("matplotlib", "torch", "transformers")),
    ],
)
def test_reading_does_not_load_what_draws_or_measures(part: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, headwise.{part}; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
