"""What the tests of notebooks share: an atlas with maps whose tokens look like markup."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from planted import tiny_model
from synthetic.patterns import patterns_dataset
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.model import Model, load


@pytest.fixture(scope="session")
def atlas(tmp_path_factory) -> Atlas:
    made = Atlas.create(tmp_path_factory.mktemp("notebook") / "atlas")
    made.add("profile", profile_dataset(4, 3, texts=4, randoms=2).assign_attrs(record='["value"]'))
    patterns = patterns_dataset(4, 3)
    tokens = patterns["token_text"].values.astype(object)
    tokens[1], tokens[2] = "<script>alert(1)</script>", "</script><b>bold</b>"
    made.add("patterns", patterns.assign_coords(token_text=("token", tokens)))
    return made


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load(*tiny_model(layers=2))


@pytest.fixture(scope="session")
def reading() -> Callable[..., xr.Dataset]:
    return reading_of


def reading_of(layers: int = 3, heads: int = 2, tokens: int = 5, examples: int = 1) -> xr.Dataset:
    """What a Patterns instrument would have read: every weight of a head is one number, by the head and the example."""
    weights = np.full((examples, layers * heads, tokens, tokens), np.nan, dtype=np.float32)
    for example in range(examples):
        for place in range(layers * heads):
            for query in range(tokens):
                weights[example, place, query, : query + 1] = 0.01 * (place + 1) + 0.001 * example
    return xr.Dataset(
        {"weights": (("example", "place", "query", "key"), weights)},
        coords={
            "layer": ("place", np.repeat(np.arange(layers), heads)),
            "head": ("place", np.tile(np.arange(heads), layers)),
        },
    )
