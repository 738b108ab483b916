"""The Schemas of the studies Headwise knows, by name. A study that is not here is held only to what holds for all.

This file does not know how any study is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from headwise.atlas.probing_schema import PROBING
from headwise.atlas.provenance import Provenance
from headwise.atlas.relation_validation_schema import RELATION_VALIDATION
from headwise.atlas.relations_schema import RELATIONS, SALIENCE
from headwise.atlas.samples_schema import SAMPLES
from headwise.atlas.schema import TEXT, Schema
from headwise.dims import DETECTOR, EXAMPLE, FEATURE, FOLD, HEAD, LAYER, PART, STATISTIC

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

_ANSWER_TEXTS = (
    "question",
    "answer",
    "gold",  # the right answer to show
    "golds",  # all that count as right, a JSON list
    "label",  # correct, wrong or refused
    "rule",  # what decided the label
    "matched",  # the right answer that the rule found
    "topic",
    "prompt_ids",  # token ids, decimal, separated by blanks
    "answer_ids",
)
_ANSWER_NUMBERS = {
    "difficulty": "int64",
    "prompt_tokens": "int64",
    "answer_tokens": "int64",
    "finished": "bool",  # ended by itself rather than cut
    "logprob_mean": "float32",  # of the answer's tokens; NaN where there are none
    "logprob_min": "float32",
}

ANSWERS = Schema(
    study="answers",
    version=1,
    variables=dict.fromkeys((*_ANSWER_TEXTS, *_ANSWER_NUMBERS), (EXAMPLE,)),
    coords={EXAMPLE: (EXAMPLE,)},
    dtypes=dict.fromkeys((*_ANSWER_TEXTS, EXAMPLE), TEXT) | _ANSWER_NUMBERS,
    attrs=("record", "title"),
)

_TESTS = (PART, FEATURE, LAYER, HEAD)
_TEST_MAPS = ("p", "q", "effect", "effect_low", "effect_high", "p_matched", "q_matched")
_TEST_LEVELS = ("share", "share_matched", "null_mean", "null_high", "null_p")  # a number a map

SPECTRAL = Schema(
    study="spectral",
    version=1,
    variables=dict.fromkeys(_TEST_MAPS, _TESTS)  # effect: AUROC of the single feature, over 0.5 larger in wrong answers
    | dict.fromkeys(_TEST_LEVELS, (PART, FEATURE))
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
    dtypes=dict.fromkeys((*_TEST_MAPS, "per_example"), "float32")
    | dict.fromkeys((PART, FEATURE, "label", "definition", EXAMPLE, "topic"), TEXT)
    | {"wrong": "bool"},
    attrs=("record", "title", "counts"),
)

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

SCHEMAS: Mapping[str, Schema] = {
    schema.study: schema
    for schema in (PROFILE, ANSWERS, SPECTRAL, DETECTION, PROBING, RELATIONS, SALIENCE, RELATION_VALIDATION, SAMPLES)
}


def schema_of(study: str, dataset: xr.Dataset) -> Schema:
    """The Schema to hold a Dataset to: the study's own, or for a study not listed here one without demands."""
    known = SCHEMAS.get(study)
    return known or Schema(study, version=Provenance.from_attrs(dataset.attrs).study_version, variables={})
