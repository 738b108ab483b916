"""Sessions around tiny models: a random one, and one whose heads are planted."""

import pytest
from planted import planted_profile_model, tiny_model

from headwise.live import LiveSession
from headwise.model import load


@pytest.fixture(scope="session")
def tiny():
    return load(*tiny_model(layers=3))


@pytest.fixture
def session(tiny):
    return LiveSession(tiny)


@pytest.fixture(scope="session")
def planted():
    return LiveSession(planted_profile_model())
