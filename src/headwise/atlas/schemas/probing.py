"""The shape of a probing study's Dataset. This file does not know how it is measured."""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER, SITE, TOKEN

__all__ = ["PROBING"]

_CELLS = (SITE, LAYER, TOKEN)
_MAPS = ("auroc", "low", "high", "p", "q", "null_high")  # AUROC, its interval, and against shuffled labels
_SITE_NUMBERS = (
    "best_high",  # 95 % of the best cells of maps with shuffled labels lie below
    "best_p",  # share of them as good as this map's best cell
    "nested",  # AUROC of the best cell, chosen on other folds than it is judged on
    "nested_low",
    "nested_high",
)
_HEADS = ("head_auroc", "head_low", "head_high", "head_p", "head_q", "head_null_high")
_TABLE = ("table_auroc", "table_low", "table_high")
_EXAMPLES = {
    "wrong": "bool",
    "fold_of": "int64",
    "exact_first": "int64",
    "exact_last": "int64",
    "answer_tokens": "int64",
}

PROBING = Schema(
    study="probing",
    version=1,
    variables=dict.fromkeys(_MAPS, _CELLS)
    | {"chosen": _CELLS}  # in how many folds this was the cell chosen
    | dict.fromkeys((*_SITE_NUMBERS, "frame_first", "frame_last"), (SITE,))  # framed layers; -1: none
    | dict.fromkeys(_HEADS, (LAYER, HEAD))
    | dict.fromkeys(("head_best_high", "head_best_p"), ())
    | {
        "published": (LAYER, TOKEN),  # AUROC of the first site with published spans; NaN at tokens without a span
        "received": (LAYER, TOKEN),  # attention from later tokens, mean over heads and examples
        "in_prompt": (TOKEN,),  # examples in which this token of the answer's end stands in the prompt
        "moved": (TOKEN,),  # examples in which there is no such token and the nearest end was taken
        "exact": (EXAMPLE,),  # the exact answer's text
        "topic_of": (EXAMPLE,),
        "p_true": (EXAMPLE,),
    }
    | dict.fromkeys(_TABLE, (DETECTOR,))
    | dict.fromkeys(_EXAMPLES, (EXAMPLE,)),  # `paper` and the cross-topic matrix are there where they were made
    coords={SITE: (SITE,), TOKEN: (TOKEN,), EXAMPLE: (EXAMPLE,), DETECTOR: (DETECTOR,), "kind": (DETECTOR,)},
    dtypes=dict.fromkeys((*_MAPS, *_SITE_NUMBERS, *_HEADS, *_TABLE, "published", "received", "p_true"), "float32")
    | dict.fromkeys((SITE, TOKEN, EXAMPLE, DETECTOR, "kind", "exact", "topic_of"), TEXT)
    | _EXAMPLES,
    attrs=("record", "title", "counts", "leak", "spans"),
)
