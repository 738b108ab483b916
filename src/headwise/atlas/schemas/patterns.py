"""The Schema of the patterns: numbers of every head's map, the maps themselves, and what all heads have together.

With a second subject there are further variables, which `BETWEEN` names: what changed, and how alike the maps are.
This file does not know how any of it is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import (
    EXAMPLE,
    FEATURE,
    HEAD,
    KEY,
    LAYER,
    POOLED_KEY,
    POOLED_QUERY,
    QUERY,
    STATISTIC,
    SUBJECT,
    TOKEN,
)

__all__ = ["BETWEEN", "PATTERNS"]

_MAP = (STATISTIC, LAYER, HEAD)
_ENDS = ("", "_low", "_high")
_HEADS = tuple(f"{name}{end}" for name in ("similarity", "other", "elsewhere", "dropped", "gained") for end in _ENDS)
_OVERALL = ("similarity", "other", "elsewhere", "dropped", "gained", "kl")

BETWEEN: Mapping[str, tuple[str, ...]] = (  # variables of two subjects -> dims
    dict.fromkeys(("change", "change_low", "change_high", "p", "q"), _MAP)
    | dict.fromkeys(_HEADS, (LAYER, HEAD))
    | dict.fromkeys(("whole_change", "whole_change_low", "whole_change_high", "whole_p"), (FEATURE,))
    | dict.fromkeys((f"whole_{name}{end}" for name in _OVERALL for end in _ENDS), ())
    | dict.fromkeys((f"{name}_of_prompt" for name in _OVERALL), (EXAMPLE,))
)

_VALUES = {
    "value": (SUBJECT, *_MAP),  # mean over prompts
    "low": (SUBJECT, *_MAP),  # ends of the interval of that mean
    "high": (SUBJECT, *_MAP),
    "uniform": _MAP,  # what a head that looks evenly at all it can see would get
    "per_example": (SUBJECT, EXAMPLE, *_MAP),
    "peaked": (SUBJECT, LAYER, HEAD),  # share of the prompts in which the head has an off-diagonal peak
    "loss": (SUBJECT, EXAMPLE),
    "whole": (SUBJECT, FEATURE),  # over all heads
    "whole_low": (SUBJECT, FEATURE),
    "whole_high": (SUBJECT, FEATURE),
}
_MAPS = {
    "average": (SUBJECT, LAYER, HEAD, POOLED_QUERY, POOLED_KEY),  # over prompts; NaN: the mask
    "shown": (SUBJECT, LAYER, HEAD, QUERY, KEY),  # of one prompt
}
_TEXTS = {
    SUBJECT: (SUBJECT,),
    "name": (SUBJECT,),
    STATISTIC: (STATISTIC,),
    "label": (STATISTIC,),
    "definition": (STATISTIC,),
    FEATURE: (FEATURE,),
    "feature_definition": (FEATURE,),
    "token_text": (TOKEN,),  # of the shown prompt, one string a token
    EXAMPLE: (EXAMPLE,),
    "register": (EXAMPLE,),
}

PATTERNS = Schema(
    study="patterns",
    version=1,
    variables=_VALUES | _MAPS,
    coords=_TEXTS | {QUERY: (QUERY,), KEY: (KEY,)},  # the position of the first token of a row, and of a column
    dtypes=dict.fromkeys(_VALUES, "float32") | dict.fromkeys(_MAPS, "float16") | dict.fromkeys(_TEXTS, TEXT),
    attrs=("record", "title"),
)
