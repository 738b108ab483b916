"""Atlases of version 1 open under the names of version 2."""

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
from headwise.studies.building import _is_there
from headwise.studies.registry import dataset_spec


@pytest.mark.parametrize(
    ("study", "make"), [("functions", functions_dataset), ("function_masking", function_masking_dataset)]
)
def test_version_1_opens_with_the_new_names(study: str, make: Callable[..., xr.Dataset], tmp_path, monkeypatch) -> None:
    spec = dataset_spec(study)
    assert spec is not None and spec.version == 2
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
    assert set(json.loads(found.attrs["provenance"])["parameters"]) == set(renames.parameters.values())


def test_a_map_made_from_a_map_of_version_1_is_not_made_again(tmp_path, monkeypatch) -> None:
    """Masking names the functions map by its key, which changes with the version."""
    atlas = hw.Atlas.create(tmp_path / "atlas")
    monkeypatch.setattr("headwise.atlas.atlas.check", lambda *_: None)
    maps, masking = functions_dataset(layers=4, heads=3), function_masking_dataset(layers=4, heads=3)
    first = replace(Provenance.from_attrs(maps.attrs), study_version=1, parameters={"most_epochs": 20})
    atlas.add("functions", maps.assign_attrs(first.to_attrs()))
    second = replace(Provenance.from_attrs(masking.attrs), study_version=1, parameters={"items": 5})
    second = replace(second, data=second.data | {"digest": first.key()})
    atlas.add("function_masking", masking.assign_attrs(second.to_attrs()))
    now = replace(first, study_version=2, parameters={"max_epochs": 20})
    data = second.data | {"digest": now.key()}
    assert now.key() != first.key() and _is_there(atlas, now)
    assert _is_there(atlas, replace(second, study_version=2, parameters={"solved_steps": 5}, data=data))
    with pytest.raises(AtlasError, match="another origin"):
        _is_there(atlas, replace(second, study_version=2, parameters={"solved_steps": 6}, data=data))
