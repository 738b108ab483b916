"""The Schemas of the relations study: what heads compute by their weights, and the tokens they act on most.

``copied_score`` and ``copied_suppression`` (relation), what a head would get that does nothing but copy, are not in atlases of
before they were kept, and are not asked for. This file does not know how either study is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import CATEGORY, EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET, VOCABULARY

__all__ = ["RELATIONS", "SALIENCE"]

_MAP = (RELATION, LAYER, HEAD)
_SCORES = tuple(
    f"{sign}{part}"
    for sign in ("score", "suppression")
    for part in ("", "_low", "_high", "_null", "_null_high", "_null_over")
)
_MEMBERS = ("member", "member_suppression", "member_beyond_null")
_RATES = ("score_false_positive", "suppression_false_positive")  # of the threshold, with shuffled targets
_COUNTS = ("pairs", "given", "k")

RELATIONS = Schema(
    study="relations",
    version=1,
    variables=dict.fromkeys(_SCORES, _MAP)
    | dict.fromkeys(_MEMBERS, (CATEGORY, LAYER, HEAD))
    | dict.fromkeys((*_RATES, *_COUNTS), (RELATION,))
    | dict.fromkeys(("mapped", "suppressed"), (EXAMPLE, LAYER, HEAD))  # which pairs each head maps right
    | dict.fromkeys(("categories", "best", "best_score"), (LAYER, HEAD)),
    coords={
        RELATION: (RELATION,),
        "category_of": (RELATION,),
        CATEGORY: (CATEGORY,),
        EXAMPLE: (EXAMPLE,),
        "source": (EXAMPLE,),
        "target_word": (EXAMPLE,),
        "relation_of": (EXAMPLE,),
    },
    dtypes=dict.fromkeys((*_SCORES, *_RATES, "best_score"), "float32")
    | dict.fromkeys((*_MEMBERS, "mapped", "suppressed"), "bool")
    | dict.fromkeys((*_COUNTS,), "int64")
    | dict.fromkeys((RELATION, "category_of", CATEGORY, EXAMPLE, "source", "target_word", "relation_of"), TEXT)
    | dict.fromkeys(("categories", "best"), TEXT),
    attrs=("record", "title", "threshold", "shuffles", "kept"),  # kept: what the tokenizer left of each relation
)

SALIENCE = Schema(
    study="salience",
    version=1,
    variables={
        "strength": (LAYER, HEAD, RANK),  # norm of what the head writes over norm of what it reads
        "token": (LAYER, HEAD, RANK),  # id; -1 where there is no such head
        "targets": (LAYER, HEAD, RANK, TARGET),
        "tokens": (LAYER, HEAD),  # the first few in words
        "text": (VOCABULARY,),
    },
    coords={VOCABULARY: (VOCABULARY,), RANK: (RANK,), TARGET: (TARGET,)},
    dtypes={"strength": "float32", "token": "int32", "targets": "int32", "tokens": TEXT, "text": TEXT},
    attrs=("record", "title", "left_out"),
)
