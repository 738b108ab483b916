"""The Schema of sparsity without training: rules, what they drop, and what that costs.

This file does not know how any of it is measured.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import HEAD, LAYER, RULE

__all__ = ["SPARSITY"]

_COSTS = tuple(f"{name}{end}" for name in ("rise", "kl") for end in ("", "_low", "_high"))  # of the loss; of KL, nats
_MEANS = ("kept_mean", "mass_mean", "change_mean")  # over all heads
_MAPS = (
    "change",
    "change_low",
    "change_high",
    "kept",
    "mass",
)  # ||z' - z|| / ||z||; shares of edges, of weight dropped
_NEEDED = ("needed", "needed_low", "needed_high")  # keys that hold 99 % of a row's weight

SPARSITY = Schema(
    study="sparsity",
    version=1,
    variables=dict.fromkeys((*_COSTS, *_MEANS), (RULE,))
    | dict.fromkeys(_MAPS, (RULE, LAYER, HEAD))
    | dict.fromkeys(_NEEDED, (LAYER, HEAD))
    | dict.fromkeys(("dense", "dense_low", "dense_high"), ()),  # the loss with nothing dropped
    coords={RULE: (RULE,), "kind": (RULE,), "strength": (RULE,)},
    dtypes=dict.fromkeys((*_COSTS, *_MEANS, *_MAPS, *_NEEDED, "dense"), "float32")
    | {RULE: TEXT, "kind": TEXT, "strength": "float64"},
    attrs=("record", "title", "renormalised", "tokens", "prompts"),
)
