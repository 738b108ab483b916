"""The Schema of circuits: what tasks ask of heads and edges, of one model or of two.

This file does not know how any of it is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import HEAD, KEPT, LAYER, RANK, SUBJECT, TASK, UNIT

__all__ = ["CIRCUITS"]

_MAPS = ("effect", "effect_low", "effect_high")  # of a head, in shares of the clean-corrupt difference
_NUMBERS = (
    "accuracy", "accuracy_low", "accuracy_high",
    "clean", "corrupt",  # mean scores
    "gap", "gap_low", "gap_high",  # clean less corrupt
    "agreement", "checked",  # of effects by gradient and by patching; heads it was checked on
)  # fmt: skip
_CURVES = (
    "size", "share", "share_low", "share_high",  # of the highest ranked heads or edges
    "random_size", "random", "random_low", "random_high",
)  # fmt: skip
_NEEDED = ("needed", "needed_low", "needed_high")  # the size that explains the goal

CIRCUITS = Schema(
    study="circuits",
    version=1,
    variables=dict.fromkeys(_MAPS, (TASK, LAYER, HEAD))
    | dict.fromkeys(_NUMBERS, (SUBJECT, TASK))
    | dict.fromkeys(_CURVES, (SUBJECT, TASK, UNIT, KEPT))
    | dict.fromkeys(_NEEDED, (SUBJECT, TASK, UNIT))
    | {"edge": (SUBJECT, TASK, RANK), "edge_effect": (SUBJECT, TASK, RANK)},  # with two models also against*, ratio*
    coords={
        SUBJECT: (SUBJECT,),
        "name": (SUBJECT,),
        TASK: (TASK,),
        "label": (TASK,),
        "shown": (TASK,),  # one of the prompts
        "expected": (TASK,),  # what is right after it
        UNIT: (UNIT,),
    },
    dtypes=dict.fromkeys((*_MAPS, *_NUMBERS, *_CURVES, *_NEEDED, "edge_effect"), "float32")
    | dict.fromkeys((SUBJECT, "name", TASK, "label", "shown", "expected", UNIT, "edge"), TEXT),
    attrs=("record", "title", "goal", "refused", "refused_beside", "no_edges", "prompts"),
)
