"""The comparison of two atlases finds exactly what was planted in the second."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_atlases.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_atlases", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_atlases"] = module
    spec.loader.exec_module(module)
    return module


def dataset() -> xr.Dataset:
    value = np.linspace(0, 1, 12, dtype=np.float32).reshape(2, 2, 3)
    value[0, 0, 0] = np.nan
    provenance = {"created": "2026-01-01", "environment": {"torch": "2.0"}, "seed": 0, "data": {"name": "x"}}
    return xr.Dataset(
        {
            "value": (("statistic", "layer", "head"), value, {"long_name": "share of attention"}),
            "few_laplacian": (("layer", "head"), np.ones((2, 3))),
            "definition": (("statistic",), np.array(["to the first token", "output over residual"], dtype=object)),
        },
        coords={"statistic": np.array(["sink", "moved"], dtype=object), "layer": [0, 1], "head": [0, 1, 2]},
        attrs={"title": "Where each head attends", "record": '["value"]', "provenance": json.dumps(provenance)},
    )


def write(path: Path, **studies: xr.Dataset) -> Path:
    for name, one in studies.items():
        one.to_zarr(path / name, zarr_format=3, consolidated=False)
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    path = write(tmp_path / "before", profile=dataset(), other=dataset())
    (path / "detector.json").write_text("{}")
    return path


@pytest.fixture
def after(before: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(before, tmp_path / "after"))


def replaced(path: Path, study: str, one: xr.Dataset) -> None:
    shutil.rmtree(path / study)
    write(path, **{study: one})


def wrong(script: ModuleType, a: Path, b: Path, tolerance: float = 0.0) -> set[tuple[str, str, str]]:
    return {tuple(row)[:3] for row in script.compare(a, b, tolerance) if row.verdict in script.WRONG}


def test_a_copy_is_the_same(script: ModuleType, before: Path, after: Path):
    assert {row.verdict for row in script.compare(before, after)} == {script.SAME}


def test_renames_times_and_prose_are_no_difference(script: ModuleType, before: Path, after: Path):
    new = dataset().rename(few_laplacian="laplacian_mean")
    new["statistic"] = np.array(["sink", "output_norm_ratio"], dtype=object)
    new["definition"] = ("statistic", np.array(["to the first token", "output norm / residual norm"], dtype=object))
    new["value"].attrs["long_name"] = "attention mass"
    new.attrs["provenance"] = new.attrs["provenance"].replace("2026-01-01", "2026-02-02").replace("2.0", "2.1")
    replaced(after, "profile", new)
    rows = script.compare(before, after)
    assert not wrong(script, before, after)
    assert {row.name for row in rows if row.verdict == script.WORDED} == {"definition", "value.@long_name"}
    assert any(row.note.startswith("now laplacian_mean") for row in rows)


def test_numbers_are_compared_to_the_last_bit(script: ModuleType, before: Path, after: Path):
    new = dataset()
    new["value"][1, 1, 2] += 1e-6
    replaced(after, "profile", new)
    assert wrong(script, before, after) == {("profile", "value", script.DIFFERENT)}
    assert not wrong(script, before, after, tolerance=1e-5)
    [note] = [row.note for row in script.compare(before, after) if row.verdict == script.DIFFERENT]
    assert "9.54e-07 (1 of 12 values" in note


def test_what_is_missing_reshaped_or_of_other_data_is_found(script: ModuleType, before: Path, after: Path):
    new = dataset().drop_vars("few_laplacian").assign(extra=("layer", [1, 2]))
    new["value"][0, 0, 0] = 0.5
    new.attrs["provenance"] = new.attrs["provenance"].replace('"name": "x"', '"name": "y"')
    replaced(after, "profile", new)
    replaced(after, "other", dataset().isel(head=[0, 1]))
    (after / "detector.json").write_text("[]")
    write(after, third=dataset())
    found = wrong(script, before, after, tolerance=1.0)
    assert found == {
        ("profile", "value", script.DIFFERENT),  # a NaN has become a number
        ("profile", "few_laplacian", script.MISSING),
        ("profile", "extra", script.ADDED),
        ("profile", "@provenance", script.DIFFERENT),
        ("other", "value", script.DIFFERENT),
        ("other", "few_laplacian", script.DIFFERENT),
        ("other", "head", script.DIFFERENT),
        ("third", "(study)", script.ADDED),
        ("(files)", "detector.json", script.DIFFERENT),
    }


def test_the_exit_code_says_it(before: Path, after: Path, tmp_path: Path):
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), str(before), str(after), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    same = run()
    assert same.returncode == 0 and "The same numbers." in same.stdout
    replaced(after, "profile", dataset().rename(value="number"))
    assert run().returncode == 1
    renames = tmp_path / "renames.json"
    renames.write_text(json.dumps({"variables": {"profile/value": "number"}}))
    other = run("--renames", str(renames))
    assert "| profile | value | same bits | now number. |" in other.stdout
    assert other.returncode == 1  # `record` still names value: it is renamed with the variable, and B's was not
