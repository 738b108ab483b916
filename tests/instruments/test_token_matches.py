"""Where a text repeats itself, against the definition; and readings of layers that are unlike."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.core.errors import SeamError
from headwise.instruments.profile import matching_queries, token_matches
from headwise.instruments.readings import HeadReadings
from headwise.kernels import Match


@given(st.lists(st.integers(0, 4), min_size=1, max_size=14), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_repeats(tokens, left, right):
    """Padding on either side repeats nothing, whatever token it holds."""
    ids = torch.tensor([[1] * left + tokens + [2] * right])
    valid = torch.zeros_like(ids, dtype=torch.bool)
    valid[0, left : left + len(tokens)] = True
    duplicate, induction = token_matches(ids, valid)
    earlier = [(i, j) for i in range(len(tokens)) for j in range(i) if tokens[i] == tokens[j]]
    assert places(duplicate) == {(i + left, j + left) for i, j in earlier}
    assert places(induction) == {(i + left, j + 1 + left) for i, j in earlier if j + 1 < i}
    for found, match in zip(matching_queries(ids, valid), (duplicate, induction), strict=True):
        assert set(found[0].nonzero()[:, 0].tolist()) == {query for query, _ in places(match)}


def places(match: Match) -> set[tuple[int, int]]:
    """(query, key) of the first example."""
    batch, query, key = match.indices(0)
    return {(i, j) for b, i, j in zip(batch.tolist(), query.tolist(), key.tolist(), strict=True) if b == 0}


def test_the_drawing_in_the_docstring():
    ids = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]])
    duplicate, induction = token_matches(ids, torch.ones_like(ids, dtype=torch.bool))
    assert places(duplicate) == {(3, 0), (4, 1)}
    assert places(induction) == {(3, 1), (4, 2)}
    assert duplicate.indices(0)[0].tolist() == [0, 0]


class Unlike(HeadReadings):
    """Layers of unlike heads and widths."""

    name = "unlike"
    extra_dims = {"x": ("width",)}

    def measure(self, call: Any) -> dict[str, torch.Tensor]:
        return {"x": torch.full((2, *call.shape), float(call.layer))}


def test_layers_of_unlike_shape():
    reading = Unlike()
    card = SimpleNamespace(layers=3, heads=4)
    reading.setup(SimpleNamespace(card=card), ExitStack())  # type: ignore[arg-type]
    with pytest.raises(SeamError, match="Unlike has no readings yet"):
        reading.result()
    context: Any = SimpleNamespace(cached=0)
    reading.on_forward_start(context)
    for layer, shape in ((0, (4, 2)), (2, (3, 5))):
        reading.on_layer(SimpleNamespace(layer=layer, shape=shape))  # type: ignore[arg-type]
    reading.on_forward_end(context)
    x = reading.result().x
    assert x.sizes == {"example": 2, "layer": 3, "head": 4, "width": 5}
    expected = np.full((2, 3, 4, 5), np.nan)
    expected[:, 0, :, :2], expected[:, 2, :3] = 0, 2
    np.testing.assert_array_equal(x.values, expected)
