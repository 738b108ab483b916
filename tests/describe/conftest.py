from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

# The same synthetic profile as the figures are tested with.
_SYNTHETIC = runpy.run_path(str(Path(__file__).parents[1] / "figures" / "synthetic.py"))


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., xr.Dataset]:
    """``make_profile(layers, heads)``: a synthetic profile with planted heads."""
    return _SYNTHETIC["profile_dataset"]


@pytest.fixture(scope="session")
def planted() -> dict[str, list[tuple[int, int]]]:
    return _SYNTHETIC["PLANTED"]


@pytest.fixture
def profile(make_profile: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_profile()
