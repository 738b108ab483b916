"""Atlases of version 1 open under the names of version 2."""

import json
from collections.abc import Callable

import pytest
import xarray as xr
from synthetic.function_masking import function_masking_dataset
from synthetic.functions import functions_dataset

import headwise as hw
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
