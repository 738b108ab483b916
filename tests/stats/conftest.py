"""Answers whose truth is known by construction."""

import pytest
from planted_answers import Planted


@pytest.fixture
def planted():
    return Planted
