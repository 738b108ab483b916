"""Maps made small: by the largest weight, so that no weight is lost; a mask stays a mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.instruments import Patterns, PooledMaps
from headwise.instruments.patterns import pooled
from headwise.model import load
from headwise.seam import observe


@pytest.mark.parametrize(("tokens", "size"), [(8, 4), (13, 5), (128, 64), (100, 64), (5, 8)])
def test_each_pixel_is_the_largest_of_its_rectangle(tokens: int, size: int) -> None:
    maps = torch.rand(2, tokens, tokens, generator=torch.Generator().manual_seed(0))
    small = pooled(maps, size)
    side = min(size, tokens)
    edges = [k * tokens // side for k in range(side)] + [tokens]
    for row in range(side):
        for column in range(side):
            block = maps[:, edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
            assert torch.equal(small[:, row, column], block.amax(dim=(1, 2)))


@pytest.mark.parametrize("tokens", [100, 128])
def test_a_single_bright_pixel_is_kept_wherever_it_is(tokens: int) -> None:
    for place in range(0, tokens * tokens, 997):
        one = torch.zeros(1, tokens, tokens)
        one.view(-1)[place] = 0.7
        assert float(pooled(one, 64).max()) == pytest.approx(0.7)


@pytest.mark.parametrize("size", [64, 5])
def test_maps_are_those_of_patterns_and_the_mask_is_nan(size: int) -> None:
    model = load(*tiny_model(layers=2))
    with observe(model, PooledMaps(size), Patterns()) as seen:
        model(input_ids=torch.arange(10, 24)[None])
    small = seen["pooled_maps"]["maps"].values[0]  # (layer, head, query, key)
    whole = seen["patterns"]["weights"].values[0].reshape(2, 4, 14, 14)
    side = min(size, 14)
    assert small.shape == (2, 4, side, side)
    edges = [k * 14 // side for k in range(side)] + [14]
    for row in range(side):
        for column in range(side):
            block = whole[..., edges[row] : edges[row + 1], edges[column] : edges[column + 1]].reshape(2, 4, -1)
            if np.isnan(block).all():
                assert np.isnan(small[..., row, column]).all()
            else:
                np.testing.assert_allclose(small[..., row, column], np.nanmax(block, axis=-1), atol=1e-6)
