"""What tests of several studies share."""

from __future__ import annotations

import pytest
from planted import tiny_model, tiny_passages

from headwise.corpora import Passages
from headwise.model import Model, load


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load(*tiny_model(layers=2))


@pytest.fixture
def passages() -> Passages:
    return tiny_passages(4, tokens=(20, 50))
