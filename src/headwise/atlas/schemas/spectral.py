"""The Schema of the spectral study: a test a feature and head, what shuffled labels give, the readings by answer.

This file does not know how it is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER, PART

__all__ = ["SPECTRAL"]

_TESTS = (PART, FEATURE, LAYER, HEAD)
_MAPS = ("p", "q", "effect", "effect_low", "effect_high", "p_matched", "q_matched")
_LEVELS = ("share", "share_matched", "null_mean", "null_high", "null_p")  # a number a map

SPECTRAL = Schema(
    study="spectral",
    version=1,
    variables=dict.fromkeys(_MAPS, _TESTS)  # effect: AUROC of the single feature, over 0.5 larger in wrong answers
    | dict.fromkeys(_LEVELS, (PART, FEATURE))
    | {
        "per_example": (EXAMPLE, *_TESTS),
        "wrong": (EXAMPLE,),
        "answer_tokens": (EXAMPLE,),
        "topic": (EXAMPLE,),
    },
    coords={
        PART: (PART,),
        FEATURE: (FEATURE,),
        "label": (FEATURE,),
        "definition": (FEATURE,),
        EXAMPLE: (EXAMPLE,),
    },
    dtypes=dict.fromkeys((*_MAPS, "per_example"), "float32")
    | dict.fromkeys((PART, FEATURE, "label", "definition", EXAMPLE, "topic"), TEXT)
    | {"wrong": "bool"},
    attrs=("record", "title", "counts"),
)
