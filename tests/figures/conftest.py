from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

_SYNTHETIC = runpy.run_path(str(Path(__file__).with_name("synthetic.py")))


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., xr.Dataset]:
    """``make_profile(layers, heads)``: a synthetic profile with planted heads."""
    return _SYNTHETIC["profile_dataset"]


@pytest.fixture
def profile(make_profile: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_profile()
