"""The Schemas of the studies Headwise knows, by name. A study that is not here is held only to what holds for all.

This file does not know how any study is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from headwise.atlas.provenance import Provenance
from headwise.atlas.schema import TEXT, Schema
from headwise.dims import EXAMPLE, HEAD, LAYER, STATISTIC

__all__ = ["SCHEMAS", "schema_of"]

_MAP = (STATISTIC, LAYER, HEAD)

PROFILE = Schema(
    study="profile",
    version=1,
    variables={
        "value": _MAP,  # mean over examples
        "low": _MAP,  # ends of the interval of that mean
        "high": _MAP,
        "uniform": _MAP,  # what a head that spreads its attention evenly would get; NaN where that makes no sense
        "per_example": (EXAMPLE, *_MAP),
    },
    coords={
        STATISTIC: (STATISTIC,),
        "label": (STATISTIC,),
        "definition": (STATISTIC,),
        "unit": (STATISTIC,),
        EXAMPLE: (EXAMPLE,),
        "register": (EXAMPLE,),
    },
    dtypes=dict.fromkeys(("value", "low", "high", "uniform", "per_example"), "float32")
    | dict.fromkeys((STATISTIC, "label", "definition", "unit", EXAMPLE, "register"), TEXT),
    attrs=("record", "title"),
)

SCHEMAS: Mapping[str, Schema] = {schema.study: schema for schema in (PROFILE,)}


def schema_of(study: str, dataset: xr.Dataset) -> Schema:
    """The Schema to hold a Dataset to: the study's own, or for a study not listed here one without demands."""
    known = SCHEMAS.get(study)
    return known or Schema(study, version=Provenance.from_attrs(dataset.attrs).study_version, variables={})
