from __future__ import annotations

import subprocess
import sys

import pytest
import xarray as xr

from headwise import figures
from headwise.core.errors import StudyError


def test_unknown_study(profile: xr.Dataset) -> None:
    with pytest.raises(StudyError, match=r"There is no figure for the study 'profil'. Did you mean 'profile'"):
        figures.figure_of("profil", profile)


def test_public_names_exist() -> None:
    assert all(hasattr(figures, name) for name in figures.__all__)


def test_reading_does_not_load_what_draws_or_measures() -> None:
    code = (
        "import sys, headwise.figures, headwise.describe;"
        "print([name for name in ('matplotlib', 'torch', 'transformers', 'scipy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
