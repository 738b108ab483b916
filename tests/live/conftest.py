"""Sessions around tiny models: a random one, and one whose heads are planted."""

import pytest
from planted import planted_profile_model, tiny_model

from headwise.live import Session
from headwise.model import load


@pytest.fixture(scope="session")
def tiny():
    return load(*tiny_model(layers=3))


@pytest.fixture
def session(tiny):
    return Session(tiny)


@pytest.fixture(scope="session")
def planted():
    return Session(planted_profile_model())
