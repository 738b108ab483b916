from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

_SYNTHETIC = runpy.run_path(str(Path(__file__).with_name("synthetic.py")))
_SPECTRAL = runpy.run_path(str(Path(__file__).with_name("synthetic_spectral.py")))
_DETECTION = runpy.run_path(str(Path(__file__).with_name("synthetic_detection.py")))
_RELATIONS = runpy.run_path(str(Path(__file__).with_name("synthetic_relations.py")))


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., xr.Dataset]:
    """``make_profile(layers, heads)``: a synthetic profile with planted heads."""
    return _SYNTHETIC["profile_dataset"]


@pytest.fixture
def profile(make_profile: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_profile()


@pytest.fixture(scope="session")
def make_spectral() -> Callable[..., xr.Dataset]:
    """``make_spectral(layers, heads)``: a synthetic spectral study with a planted block of heads."""
    return _SPECTRAL["spectral_dataset"]


@pytest.fixture(scope="session")
def _one_spectral(make_spectral: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_spectral()


@pytest.fixture
def spectral(_one_spectral: xr.Dataset) -> xr.Dataset:
    return _one_spectral.copy(deep=True)


@pytest.fixture(scope="session")
def make_detection() -> Callable[..., xr.Dataset]:
    """``make_detection(layers)``: a synthetic table of detectors of known separation."""
    return _DETECTION["detection_dataset"]


@pytest.fixture
def detection(make_detection: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_detection()


@pytest.fixture(scope="session")
def make_relations() -> Callable[..., xr.Dataset]:
    """``make_relations(layers, heads)``: a synthetic relations study with planted heads."""
    return _RELATIONS["relations_dataset"]


@pytest.fixture
def relations(make_relations: Callable[..., xr.Dataset]) -> xr.Dataset:
    return make_relations()
