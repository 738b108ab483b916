"""An atlas explains itself: every variable of every study says in a phrase what it is, also to plain xarray."""

from __future__ import annotations

import pytest
import xarray as xr
from synthetic.atlas import MAKERS, synthetic_atlas

from headwise.core.dims import DIMS
from headwise.core.schema import SHARED_COORDINATES, Schema, annotate
from headwise.studies.registry import dataset_spec, datasets


@pytest.mark.parametrize("name", datasets())
def test_every_variable_of_every_schema_has_a_long_name(name):
    known = dataset_spec(name).schema.expanded()
    assert not [one.name for one in known.values() if not one.long_name and one.name not in SHARED_COORDINATES]
    for one in known.values():
        assert one.long_name.strip() == one.long_name and not one.long_name.endswith(".") and "[" not in one.long_name


def test_shared_coordinates_are_dims():
    assert set(SHARED_COORDINATES) - {"label", "definition", "register"} <= DIMS


def test_plain_xarray_sees_what_each_variable_is(tmp_path):
    studies = [*MAKERS, "salience"]
    atlas = synthetic_atlas(tmp_path / "atlas", 4, 3, studies)
    with xr.open_datatree(atlas.path, engine="zarr") as tree:
        found = {study: tree[study].to_dataset().load() for study in studies}
    for study, dataset in found.items():
        assert not [name for name, one in dataset.variables.items() if not one.attrs.get("long_name")], study
    assert "promotion only" in found["relations"].member.attrs["long_name"]
    assert "both signs" in found["relations"].member_beyond_null.attrs["long_name"]
    assert found["patterns"].loss.attrs["units"] == "nats"


def test_ends_of_intervals_follow_from_what_they_end():
    relations = dataset_spec("relations").schema
    assert relations["score_low"].long_name.startswith("lower end of the 95 % confidence interval of: share of")
    assert "largest score of all shuffles" in relations["score_null_high"].long_name
    assert dataset_spec("sparsity").schema["rise_high"].unit == "nats"


def test_numbers_and_the_given_object_are_untouched(profile):
    given = profile(1.0)
    named = annotate(given, dataset_spec("profile").schema)
    assert not any("long_name" in one.attrs for one in given.variables.values())
    assert named.drop_attrs().identical(given.drop_attrs()) and named.attrs == given.attrs
    assert named.layer.attrs["long_name"].startswith("layer, 0")
    assert "long_name" in annotate(given, Schema("mine", 1)).layer.attrs  # shared coordinates mean the same everywhere
