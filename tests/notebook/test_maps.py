"""The maps behind the pattern view: which heads, in which order, as which bytes."""

from __future__ import annotations

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.notebook.pattern_view import HeadMaps


def test_a_whole_model_stands_in_a_grid_with_the_longer_side_across(reading):
    tall = HeadMaps.of_reading(reading(3, 2), list("abcde"))
    assert tall.names == ("L0H0", "L1H0", "L2H0", "L0H1", "L1H1", "L2H1")
    assert (tall.columns, tall.grid) == (3, ("Head", "Layer"))
    wide = HeadMaps.of_reading(reading(2, 3), list("abcde"))
    assert wide.names == ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2")
    assert (wide.columns, wide.grid) == (3, ("Layer", "Head"))


def test_every_name_has_its_own_map(reading):
    maps = HeadMaps.of_reading(reading(3, 2, examples=2), list("abcde"), example=1)
    for layer in range(3):
        for head in range(2):
            own = maps.whole(f"L{layer}H{head}")
            assert np.nanmax(own) == pytest.approx(0.01 * (2 * layer + head + 1) + 0.001)
            assert np.array_equal(np.isnan(own), np.triu(np.ones((5, 5), bool), 1))


def test_chosen_heads_stand_one_after_the_other(reading):
    maps = HeadMaps.of_reading(reading(3, 2).isel(place=[5, 0, 3]), list("abcde"))
    assert maps.names == ("L0H0", "L1H1", "L2H1") and maps.grid == ("", "")


def test_a_head_that_the_model_does_not_have_is_left_out(reading):
    dataset = reading(3, 2)
    dataset["weights"][0, 1] = np.nan
    assert "L0H1" not in HeadMaps.of_reading(dataset, list("abcde")).names


def test_tiles_are_levels_of_the_scale_and_hidden_pixels(reading):
    maps = HeadMaps.of_reading(reading(3, 2), list("abcde"))
    high = maps.high()
    tiles = maps.tiles(high)
    assert high == 0.2 and tiles.shape == (6, 5, 5)
    for place, name in enumerate(maps.names):
        expected = np.rint(np.nan_to_num(maps.whole(name)) / high * 254)
        assert np.array_equal(tiles[place], np.where(np.isnan(maps.whole(name)), 255, expected))


def test_long_texts_are_pooled_and_padding_is_left_out(reading):
    maps = HeadMaps.of_reading(reading(1, 2, tokens=300), [f"t{i}" for i in range(290)])
    assert maps.tiles(0.2).shape == (2, 64, 64) and maps.whole("L0H0").shape == (290, 290)


def test_an_atlas_gives_its_shown_prompt(atlas):
    maps = HeadMaps.of_atlas(atlas, condition=1)
    dataset = atlas["patterns"]
    assert maps.labels == tuple(str(token) for token in dataset["token_text"].values)
    expected = dataset["shown"].isel(condition=1, layer=2, head=1).values.astype(np.float32)
    assert np.array_equal(maps.whole("L2H1"), expected, equal_nan=True)


def test_what_does_not_fit_is_refused(atlas, reading):
    with pytest.raises(DataError, match="2 conditions, 0 to 1; there is no condition 2"):
        HeadMaps.of_atlas(atlas, condition=2)
    with pytest.raises(DataError, match="6 tokens for maps of 5 x 5"):
        HeadMaps.of_reading(reading(), list("abcdef"))
    with pytest.raises(DataError, match="1 examples; there is no example 3"):
        HeadMaps.of_reading(reading(), list("abcde"), example=3)
    with pytest.raises(DataError, match="These are not attention maps"):
        HeadMaps.of_reading(atlas["profile"], ["a"])
