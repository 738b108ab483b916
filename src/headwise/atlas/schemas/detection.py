"""The Schema of the detection: one row a detector, with its AUROC by fold and its scores.

This file does not know how they are measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import DETECTOR, EXAMPLE, FOLD

__all__ = ["DETECTION"]

DETECTION = Schema(
    study="detection",
    version=1,
    variables={
        "auroc": (DETECTOR,),  # mean over folds
        "auroc_low": (DETECTOR,),  # ends of its interval
        "auroc_high": (DETECTOR,),
        "pooled": (DETECTOR,),  # over all answers at once
        "fold_auroc": (DETECTOR, FOLD),
        "score": (DETECTOR, EXAMPLE),  # out of fold; larger is more likely wrong
    },  # the sweeps (over rank, layer, size, topics) are there for the detectors that have them
    coords={
        DETECTOR: (DETECTOR,),
        "kind": (DETECTOR,),  # supervised, combined or score
        "label": (DETECTOR,),
        "wrong": (EXAMPLE,),
        "fold_of": (EXAMPLE,),
    },
    dtypes=dict.fromkeys((DETECTOR, "kind", "label"), TEXT) | {"wrong": "bool"},
    attrs=("title", "reference"),
)
