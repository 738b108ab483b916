"""The Schema of the relation validation: heads in texts against their weights, and tasks without a relation's heads.

This file does not know how either is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import CONTROL, DRAW, HEAD, LAYER, RELATION, REMOVED, TASK

__all__ = ["RELATION_VALIDATION"]

_MAPS = ("score", "natural", "forced")  # from weights; in texts; with all attention on the source
_CORRELATIONS = tuple(
    f"{name}_{kind}{end}"
    for kind in ("natural", "forced")
    for name, ends in (
        ("pearson", ("", "_low", "_high")),
        ("other", ("",)),
    )  # with its own score; with the other relations'
    for end in ends
)
_CURVES = tuple(f"{name}{end}" for name in ("own", "random") for end in ("", "_low", "_high"))
_EFFECTS = tuple(f"{name}{end}" for name in ("effect", "spill") for end in ("", "_low", "_high"))

RELATION_VALIDATION = Schema(
    study="relation_validation",
    version=1,
    variables=dict.fromkeys(_MAPS, (RELATION, LAYER, HEAD))
    | dict.fromkeys(_CORRELATIONS, (RELATION,))
    | dict.fromkeys(_CURVES, (TASK, REMOVED))
    | dict.fromkeys(_EFFECTS, (TASK,))
    | {
        "random_draws": (TASK, DRAW, REMOVED),
        "others": (TASK, CONTROL, REMOVED),  # accuracy on the control's prompts, without the task's heads
    },
    coords={
        RELATION: (RELATION,),
        "category_of": (RELATION,),
        "prompts": (RELATION,),
        TASK: (TASK,),
        CONTROL: (CONTROL,),
        REMOVED: (REMOVED,),
        "tried": (TASK,),  # prompts
        "right": (TASK,),  # of these, completed right by the whole model
        "asked": (TASK,),  # of these, asked again without heads
    },
    dtypes=dict.fromkeys((*_MAPS, *_CORRELATIONS, *_CURVES, *_EFFECTS, "random_draws", "others"), "float32")
    | dict.fromkeys(("prompts", REMOVED, "tried", "right", "asked"), "int64")
    | dict.fromkeys((RELATION, "category_of", TASK, CONTROL), TEXT),
    attrs=("record", "title", "unsolved", "least_solved"),
)
