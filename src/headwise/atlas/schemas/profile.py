"""The Schema of the profile: one number a statistic and head, with its interval, overall and by example.

This file does not know how it is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import EXAMPLE, HEAD, LAYER, STATISTIC

__all__ = ["PROFILE"]

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
