"""The fixtures that the tests of figures and of words share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import xarray as xr

from synthetic.detection import detection_dataset
from synthetic.profile import PLANTED, profile_dataset
from synthetic.relations import relations_dataset
from synthetic.spectral import spectral_dataset


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., xr.Dataset]:
    """``make_profile(layers, heads)``: a synthetic profile with planted heads."""
    return profile_dataset


@pytest.fixture(scope="session")
def planted() -> dict[str, list[tuple[int, int]]]:
    return PLANTED


@pytest.fixture
def profile() -> xr.Dataset:
    return profile_dataset()


@pytest.fixture(scope="session")
def make_spectral() -> Callable[..., xr.Dataset]:
    """``make_spectral(layers, heads)``: a synthetic spectral study with a planted block of heads."""
    return spectral_dataset


@pytest.fixture(scope="session")
def _one_spectral() -> xr.Dataset:
    return spectral_dataset()


@pytest.fixture
def spectral(_one_spectral: xr.Dataset) -> xr.Dataset:
    return _one_spectral.copy(deep=True)


@pytest.fixture(scope="session")
def make_detection() -> Callable[..., xr.Dataset]:
    """``make_detection(layers)``: a synthetic table of detectors of known separation."""
    return detection_dataset


@pytest.fixture
def detection() -> xr.Dataset:
    return detection_dataset()


@pytest.fixture(scope="session")
def make_relations() -> Callable[..., xr.Dataset]:
    """``make_relations(layers, heads)``: a synthetic relations study with planted heads."""
    return relations_dataset


@pytest.fixture
def relations() -> xr.Dataset:
    return relations_dataset()
