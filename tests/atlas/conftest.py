"""A small profile, whose every number is the version it was made with: a mixture of two versions is seen at once."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from headwise.core.provenance import Provenance
from headwise.studies.registry import dataset_spec

SCHEMA = dataset_spec("profile").schema
STATISTICS = ["entropy", "induction"]


def make_provenance(**changes: object) -> Provenance:
    parts: dict = {
        "study": "profile",
        "study_version": SCHEMA.version,
        "model": {"id": "tiny", "revision": "main", "digest": "d1", "layers": 3, "heads": 2, "dtype": "float32"},
        "data": {"name": "packaged-passages", "digest": "p1", "size": 4},
        "parameters": {"block": 64, "offsets": [1, 2]},
        "seed": 0,
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Provenance(**(parts | changes))


def make_profile(version: float = 0.0, *, layers: int = 3, heads: int = 2, **changes: object) -> xr.Dataset:
    shape = (len(STATISTICS), layers, heads)
    maps = {name: np.full(shape, version, "float32") for name in ("value", "low", "high", "uniform")}
    dataset = xr.Dataset(
        {name: (("statistic", "layer", "head"), array) for name, array in maps.items()},
        coords={
            "statistic": STATISTICS,
            "label": ("statistic", ["Entropy", "Induction – λ"]),
            "definition": ("statistic", ["spread", "mass on the token after the previous occurrence"]),
            "unit": ("statistic", ["", "mass"]),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "example": ["a", "b", "c", "d"],
            "register": ("example", ["prose", "code", "code", "table"]),
        },
    )
    dataset["per_example"] = (("example", "statistic", "layer", "head"), np.full((4, *shape), version, "float32"))
    provenance = make_provenance(**({"parameters": {"version": version}} | changes))
    dataset.attrs = {"title": "Profile", "record": json.dumps(["value"])} | provenance.to_attrs()
    return dataset


@pytest.fixture
def provenance() -> Callable[..., Provenance]:
    return make_provenance


@pytest.fixture
def profile() -> Callable[..., xr.Dataset]:
    return make_profile
