"""An atlas explains itself: every variable of every study says in a phrase what it is, also to plain xarray."""

from __future__ import annotations

import pytest
import xarray as xr
from synthetic.atlas import MAKERS, synthetic_atlas

from headwise.atlas.long_names import LONG_NAMES, explained_in, with_long_names
from headwise.atlas.long_names.coordinates import COORDINATES
from headwise.atlas.schemas import SCHEMAS
from headwise.atlas.schemas.patterns import BETWEEN
from headwise.core.dims import DIMS


@pytest.mark.parametrize("study", SCHEMAS)
def test_every_variable_of_every_schema_has_a_long_name(study):
    schema = SCHEMAS[study]
    names = {*schema.variables, *schema.coords} | (set(BETWEEN) if study == "patterns" else set())
    assert not [name for name in sorted(names) if not explained_in(study, name).get("long_name")]


def test_every_table_is_of_a_study_and_every_phrase_is_one():
    assert set(LONG_NAMES) == set(SCHEMAS)
    for phrase in [*COORDINATES.values(), *(text for table in LONG_NAMES.values() for text in table.values())]:
        assert phrase.strip() == phrase and not phrase.endswith(".") and phrase.count("[") == phrase.count("]") <= 1
        assert "[" not in phrase or phrase.endswith("]")
    assert set(COORDINATES) - {"label", "definition", "register"} <= DIMS


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
    assert explained_in("relations", "score_low")["long_name"].startswith("lower end of the 95 % interval of: share of")
    assert "largest score of all shuffles" in explained_in("relations", "score_null_high")["long_name"]
    assert explained_in("probing", "head_low")["long_name"] == "lower end of the 95 % interval of head_auroc"
    assert explained_in("sparsity", "rise_high")["units"] == "nats"
    assert explained_in("mine", "anything") == {} == explained_in("profile", "layer_low")


def test_numbers_and_the_given_object_are_untouched(profile):
    given = profile(1.0)
    named = with_long_names("profile", given)
    assert not any("long_name" in one.attrs for one in given.variables.values())
    assert named.drop_attrs().identical(given.drop_attrs()) and named.attrs == given.attrs
    assert named.layer.attrs["long_name"].startswith("layer, 0")
