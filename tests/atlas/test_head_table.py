import json

import numpy as np
import pytest
import xarray as xr

from headwise.atlas import Atlas
from headwise.atlas.head_table import heads
from headwise.core.errors import AtlasError


def numbered(profile, **changes) -> xr.Dataset:
    dataset = profile(**changes)
    dataset["value"][:] = np.arange(dataset.value.size).reshape(dataset.value.shape)
    return dataset


def test_one_row_a_head(profile):
    frame = heads({"profile": numbered(profile)})
    assert frame.index.name == "name"
    assert list(frame.index) == ["L0H0", "L0H1", "L1H0", "L1H1", "L2H0", "L2H1"]
    assert list(frame.columns) == ["layer", "head", "profile.entropy", "profile.induction"]
    assert frame.loc["L2H1"].tolist() == [2, 1, 5, 11]
    assert frame["profile.entropy"].dtype == "float32"


def test_more_than_ten_layers_stay_in_order(profile):
    frame = heads({"profile": profile(layers=12)})
    assert list(frame.index[-2:]) == ["L11H0", "L11H1"]
    assert list(frame.index[2:4]) == ["L1H0", "L1H1"]


def test_studies_are_joined(profile):
    toy = xr.Dataset(
        {
            "p": (("head", "layer"), np.arange(4.0).reshape(2, 2)),
            "best": (("layer", "head"), [["a", "b"], ["c", "d"]]),
            "value": (("function", "layer", "head"), np.zeros((2, 2, 2))),
            "q": (("rank", "layer", "head"), np.ones((1, 2, 2))),
        },
        coords={"layer": [0, 1], "head": [0, 1], "function": ["Knowledge Recall", "maths"], "rank": [0]},
        attrs=profile(study="toy").attrs | {"record": json.dumps(["p", "best", "value", "q"])},
    )
    frame = heads({"profile": profile(1.0).assign_attrs(record='["value", "low"]'), "toy": toy})
    assert list(frame.columns) == [
        "layer", "head", "profile.entropy", "profile.induction", "profile.entropy.low", "profile.induction.low",
        "toy.p", "toy.best", "toy.Knowledge_Recall", "toy.maths", "toy.rank_0.q",
    ]  # fmt: skip
    assert frame.loc["L1H0", "toy.p"] == 1
    assert frame.loc["L0H1", "toy.best"] == "b"
    assert np.isnan(frame.loc["L2H0", "toy.p"])  # the toy has two layers


def test_a_tree_will_do(tmp_path, profile):
    atlas = Atlas.create(tmp_path)
    atlas.add("profile", numbered(profile))
    assert heads(atlas.tree()).equals(atlas.heads())


def test_nothing_gives_an_empty_table():
    frame = heads({})
    assert frame.empty
    assert list(frame.columns) == ["layer", "head"]


def test_other_weights_are_not_joined(profile):
    other = profile(study="toy", model={"id": "large", "digest": "d2"})
    with pytest.raises(AtlasError, match=r"not of the same weights.*profile of tiny \(d1\); toy of large \(d2\)"):
        heads({"profile": profile(), "toy": other})


def test_what_cannot_be_a_column(profile):
    wide = profile().assign_attrs(record='["per_example"]')
    with pytest.raises(AtlasError, match=r"'per_example' with dims \(example, statistic, layer, head\) cannot go into"):
        heads({"profile": wide})
    same = profile().assign_coords(statistic=["a b", "a-b"])
    with pytest.raises(AtlasError, match=r"want the column 'profile.a_b'"):
        heads({"profile": same})
