"""Atlases of older versions open under the names of today."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import xarray as xr
from synthetic.function_masking import function_masking_dataset
from synthetic.functions import functions_dataset

import headwise as hw
from headwise.atlas import Provenance
from headwise.core.errors import AtlasError
from headwise.studies.building import _is_stored
from headwise.studies.registry import dataset_spec


@pytest.mark.parametrize(
    ("study", "make"), [("functions", functions_dataset), ("function_masking", function_masking_dataset)]
)
def test_version_1_opens_with_the_new_names(study: str, make: Callable[..., xr.Dataset], tmp_path, monkeypatch) -> None:
    spec = dataset_spec(study)
    assert spec is not None
    new = make(layers=4, heads=3)
    renames = spec.renames[1]
    old = new.rename({now: before for before, now in renames.variables.items()})
    origin = json.loads(new.attrs["provenance"])
    parameters = dict.fromkeys(renames.parameters, 1)
    old.attrs["provenance"] = json.dumps(origin | {"study_version": 1, "parameters": parameters})
    with monkeypatch.context() as patch:
        patch.setattr("headwise.atlas.atlas.check", lambda *_: None)  # as version 1 wrote it
        hw.Atlas.create(tmp_path / "atlas").add(study, old)
    found = hw.Atlas.open(tmp_path / "atlas")[study]
    for name, values in new.data_vars.items():
        xr.testing.assert_equal(found[name], values)
    assert json.loads(found.attrs["provenance"])["study_version"] == 1  # its numbers are not those of today


def test_a_map_of_an_older_version_is_not_taken_for_one_of_today(tmp_path, monkeypatch) -> None:
    """Its null was easier: a build with the same options asks for --redo."""
    atlas = hw.Atlas.create(tmp_path / "atlas")
    monkeypatch.setattr("headwise.atlas.atlas.check", lambda *_: None)
    maps = functions_dataset(layers=4, heads=3)
    now = Provenance.from_attrs(maps.attrs)
    atlas.add("functions", maps.assign_attrs(replace(now, study_version=2).to_attrs()))
    with pytest.raises(AtlasError, match=r"\(study version: 2 against 4\).*--redo functions"):
        _is_stored(atlas, now)
