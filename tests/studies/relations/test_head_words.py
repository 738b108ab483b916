"""One head in words: its relations, the pairs it maps right, the tokens it acts on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from headwise.core.errors import DataError
from headwise.studies.relations.words import head_in_words


@pytest.fixture
def salience(relations: xr.Dataset) -> xr.Dataset:
    """Head h of layer l acts most on token 10 l + h, which it maps to the next ones."""
    layers, heads = relations.sizes["layer"], relations.sizes["head"]
    token = (10 * np.arange(layers)[:, None] + np.arange(heads))[..., None]
    targets = token[..., None] + np.arange(1, 6)
    ids = np.unique(np.concatenate([token.ravel(), targets.ravel()]))
    return xr.Dataset(
        {
            "strength": (("layer", "head", "rank"), np.full((layers, heads, 1), 2.5, dtype="f4")),
            "token": (("layer", "head", "rank"), token),
            "targets": (("layer", "head", "rank", "target"), targets),
            "text": ("vocabulary", np.array([f" w{i}" for i in ids], dtype=object)),
        },
        coords={"layer": np.arange(layers), "head": np.arange(heads), "vocabulary": ids},
    )


def test_a_planted_head_is_told_with_its_pairs(relations: xr.Dataset, salience: xr.Dataset) -> None:
    words = head_in_words("L3H1", relations, salience)
    assert words.overview == ("L3H1 belongs to: knowledge.",)
    assert len(words.detail) == 2
    name = words.detail[0].split(":")[0]
    assert name in ("country-capital", "product-company")
    right = relations["mapped"].sel(layer=3, head=1)
    right = right.isel(example=(right["relation_of"].values == name) & right.values)
    pair = f"{right['source'].values[0]} → {right['target_word'].values[0]}"
    assert pair in words.detail[0]
    share = 100 * float(relations["score"].sel(relation=name, layer=3, head=1))
    assert words.numbers[3].value == pytest.approx(share, rel=1e-5)
    assert "'w31' → 'w32', 'w33', 'w34'" in words.observations[0]


def test_suppression_is_told_as_such(relations: xr.Dataset) -> None:
    words = head_in_words((5, 0), relations)
    assert all(": suppresses " in line for line in words.detail)
    assert words.observations == ()


def test_a_head_without_a_category_is_told_by_what_comes_nearest(relations: xr.Dataset) -> None:
    words = head_in_words("L0H0", relations)
    assert words.overview == ("L0H0 has no category.",)
    assert len(words.detail) == 3


def test_heads_that_are_not_there(relations: xr.Dataset, make_relations: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(DataError, match="there is no head L40H0: the map has 30 layers of 9 heads"):
        head_in_words("L40H0", relations)
    assert "was not measured" in head_in_words("L2H0", make_relations(missing=2)).overview[0]
