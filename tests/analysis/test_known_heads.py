"""Published lists of heads against the maps of an atlas."""

import json

import numpy as np
import pytest
import xarray as xr
from synthetic.atlas import RECORD, synthetic_atlas
from synthetic.profile import PLANTED, profile_dataset

from headwise.analysis.known_heads import compare_known, known_heads
from headwise.atlas import Atlas
from headwise.core.dims import head_name
from headwise.core.errors import DataError

INDUCTION = [head_name(*head) for head in PLANTED["induction"]]
MAP = {"study": "profile", "variable": "value", "at": {"statistic": "induction"}}


def lists(folder, *parts, models=(), layers=30, heads=9):
    path = folder / "known.json"
    path.write_text(json.dumps({"models": models, "layers": layers, "heads": heads, "lists": list(parts)}))
    return path


def one(map=MAP, **fields):
    return {"label": "heads", "source": "a paper", "map": map, **fields}


@pytest.fixture
def atlas(tmp_path):
    return synthetic_atlas(tmp_path / "atlas", 30, 9, ("profile",))


def test_planted_heads_are_found(atlas, tmp_path):
    found = compare_known(atlas, known_heads(lists(tmp_path, one(heads=INDUCTION))), permutations=200).lists[0]
    assert found.precision == 1 and found.auroc == 1
    assert set(found.heads) == set(INDUCTION) and sorted(found.heads.values()) == [1, 2]
    assert found.expected < 0.2 and found.p == found.p_smallest == found.q < 0.05


def test_other_heads_are_not(atlas, tmp_path):
    others = ["L3H3", "L12H8", "L14H0"]
    report = compare_known(atlas, known_heads(lists(tmp_path, one(heads=others))), permutations=200)
    found = report.lists[0]
    assert found.precision == 0 and found.p > 0.05 > found.p_smallest
    assert "0 of the 3 highest of 270 heads are listed" in report.text()


def test_scores_per_group_and_a_map_that_should_be_low(atlas, tmp_path):
    value = atlas["profile"]["value"].sel(statistic="induction").values
    of_groups = (-value).reshape(30, 3, 3).mean(axis=-1)
    scores = (of_groups > np.quantile(of_groups, 0.9)).astype(float).tolist()
    known = known_heads(lists(tmp_path, one(scores=scores, larger=False)))
    found = compare_known(atlas, known, permutations=200).lists[0]
    assert found.auroc > 0.8 and found.measured == 270


def test_the_null_keeps_its_level(tmp_path):
    """Lists drawn by dice: p < .05 for about one in twenty, correlation and precision."""
    random = np.random.default_rng(0)
    atlas = synthetic_atlas(tmp_path / "null", 30, 9, ("profile",))
    drawn = [
        one(heads=[head_name(int(head) // 9, int(head) % 9) for head in random.choice(270, 30, replace=False)])
        for _ in range(80)
    ]
    found = compare_known(atlas, known_heads(lists(tmp_path, *drawn)), permutations=100).lists
    for p in ("p", "correlation_p"):
        rate = np.mean([getattr(result, p) < 0.05 for result in found])
        assert rate < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 80)
    assert min(result.q for result in found) > 0.01


def test_a_list_too_small_to_be_distinguished_from_chance_says_so(atlas, tmp_path):
    report = compare_known(atlas, known_heads(lists(tmp_path, one(heads=INDUCTION[:1]))), permutations=200)
    assert "too few heads for a test" in report.text()
    report = compare_known(
        atlas, known_heads(lists(tmp_path, one(heads=[head_name(0, head) for head in range(9)]))), permutations=200
    )
    assert np.isnan(report.lists[0].p) and "no test: no permutation within layers changes it" in report.text()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"heads": ["L40H0"]}, "L40H0 is not in a model of 30 layers x 9 heads"),
        ({}, "needs either heads or scores"),
        ({"scores": [[1.0, 2.0]] * 30}, "must be 30 rows of 9 heads"),
        ({"heads": ["five"]}, "five"),
        ({"heads": ["L1H1"], "map": {"study": 5}}, "Expected `str`"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, fields, sentence):
    with pytest.raises(DataError, match="does not hold lists of heads") as caught:
        known_heads(lists(tmp_path, one(**fields)))
    assert sentence in str(caught.value) and "docs/guide/known-heads.md" in str(caught.value)


@pytest.mark.parametrize(
    ("map", "options", "sentence"),
    [
        ({"study": "profile", "variable": "values"}, {}, "Did you mean 'value'"),
        ({**MAP, "at": {"statistic": "inducton"}}, {}, "Did you mean 'induction'"),
        ({"study": "profile", "variable": "value"}, {}, "name one of each with 'at'"),
        ({"study": "relations", "variable": "score"}, {}, "headwise build --studies relations"),
        (MAP, {"models": ["gpt2"]}, "these lists are of gpt2"),
        (MAP, {"layers": 40}, "the atlas has 30 x 9"),
    ],
)
def test_an_atlas_that_does_not_fit(atlas, tmp_path, map, options, sentence):
    with pytest.raises(DataError, match=sentence):
        compare_known(atlas, known_heads(lists(tmp_path, one(map, heads=["L1H1"]), **options)))


def test_packaged_lists():
    with pytest.raises(DataError, match="Known: gpt2, llama"):
        known_heads("gpt-2-small")
    assert {len(known_heads(name).lists) for name in ("gpt2", "llama-3.1-8b-instruct")} == {6, 2}


def test_nan_heads_are_left_out(tmp_path):
    dataset = profile_dataset()
    dataset["value"] = xr.where(dataset["layer"] == 4, np.nan, dataset["value"]).transpose(*dataset["value"].dims)
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("profile", dataset.assign_attrs(record=json.dumps(RECORD["profile"])))
    found = compare_known(atlas, known_heads(lists(tmp_path, one(heads=[*INDUCTION, "L4H1"]))), permutations=100)
    assert found.lists[0].measured == 261 and "L4H1" not in found.lists[0].heads
