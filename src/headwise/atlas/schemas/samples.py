"""The shape of a sampling study's Dataset. This file does not know how it is measured."""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, STRATEGY

__all__ = ["SAMPLES"]

_SAID = {"answer": TEXT, "label": TEXT, "exact": TEXT}  # a sample, how it was judged, its exact answer
_SAID |= {"group": "int64", "answer_tokens": "int64", "logprob_mean": "float32"}  # group: equal answers share a number
_SAID |= {"score": "float32"}  # log-odds of "wrong", from a probe that saw no sample of this question
_ASKED = {"question": TEXT, "topic": TEXT, "fold_of": "int64", "greedy_correct": "bool"}
_ASKED |= dict.fromkeys(("correct", "largest_wrong", "wrong_answers", "refused"), "int64")  # c, w, n, r of the sheet
_CHOSEN = tuple(f"{name}{end}" for name in ("accuracy", "gain") for end in ("", "_low", "_high"))  # gain: over greedy
_TYPE_PROBES = ("type_auroc", "type_low", "type_high", "type_null_high")  # NaN where too few questions are of a type
_PROBE = ("probe_auroc", "probe_auroc_low", "probe_auroc_high")  # of the probe that chooses, over samples

SAMPLES = Schema(
    study="samples",
    version=1,
    variables=dict.fromkeys(_SAID, (EXAMPLE, DRAW))
    | dict.fromkeys(_ASKED, (EXAMPLE,))
    | {"is_type": (EXAMPLE, ERROR_TYPE), "picked": (STRATEGY, EXAMPLE)}  # picked: how often the choice is correct
    | dict.fromkeys(_CHOSEN, (STRATEGY,))
    | {f"type_{name}": (ERROR_TYPE, STRATEGY) for name in _CHOSEN}
    | dict.fromkeys(_TYPE_PROBES, (ERROR_TYPE,))
    | dict.fromkeys(_PROBE, ()),
    coords={EXAMPLE: (EXAMPLE,), STRATEGY: (STRATEGY,), ERROR_TYPE: (ERROR_TYPE,), "type_name": (ERROR_TYPE,)},
    dtypes=_SAID
    | _ASKED
    | {"is_type": "bool", "picked": "float32"}
    | dict.fromkeys((*_CHOSEN, *(f"type_{name}" for name in _CHOSEN), *_TYPE_PROBES, *_PROBE), "float32")
    | dict.fromkeys((EXAMPLE, STRATEGY, ERROR_TYPE, "type_name"), TEXT),
    attrs=("record", "title", "site", "layer"),
)
