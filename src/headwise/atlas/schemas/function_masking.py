"""The shape of a function_masking study's Dataset: what the model still answers without, or with stronger, heads of a function.

All accuracies are shares of answers that match the right answer; none is "same as before". This file does not know how
anything is measured. ``chain_random`` (function), accuracy in whole chains with random heads masked, is not in atlases of
before it was kept, and is not asked for.
"""

from __future__ import annotations

from headwise.atlas.schema import TEXT, Schema
from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED

__all__ = ["FUNCTION_MASKING"]


def _with_ends(*names: str) -> tuple[str, ...]:
    """Each name with the ends of its 95 % interval."""
    return tuple(f"{name}{end}" for name in names for end in ("", "_low", "_high"))


_CURVES = _with_ends(
    "own",  # accuracy with the function's n most important heads masked, on `asked` held-out steps that the whole model does
    "random",  # the same with n random heads that are not among them, mean over draws; interval over draws
    "effect",  # random - own; interval over steps and draws
)
_BY_FUNCTION = (
    *_with_ends(
        "whole",  # accuracy of the whole model on all held-out steps of the function
        "mean_effect",  # the effect, mean over all numbers of heads
        "spill",  # mean effect of this function's heads on the steps of the other functions, at `size` heads
        "chain_effect",  # hierarchy: accuracy on high-order steps with random heads masked - with this function's masked
    ),
    "recovered_own",  # of `wrong_asked` held-out steps that the whole model fails, share done at `size` heads masked
    "recovered_random",
    "all_own",  # accuracy over all held-out steps at `size` heads masked, put together from the done and the failed ones
    "all_random",
    "chain_whole",  # hierarchy: accuracy of the whole model on the steps of this function in whole chains
    "chain_high_own",  # hierarchy: accuracy on high-order steps with this function's heads masked; NaN if it is not low-order
    "chain_high_random",
)
_MATRICES = _with_ends(
    "cross",  # accuracy on the column's `asked` steps with `size` heads of the row's function masked
    "cross_effect",  # accuracy with random heads masked - cross; above 0 the heads matter to the column's function
    "chain",  # hierarchy: accuracy on the column's steps in whole chains with the row's heads masked; NaN: not tried
)
_AMOUNTS = _with_ends(
    "augmented",  # accuracy on `augment_asked` held-out steps with amount x direction added to the function's heads
    "augmented_random",  # the same along random directions of the same length in the same heads, mean over draws
    "gain",  # augmented - accuracy at amount 0, on the same steps
    "gain_over_random",  # augmented - augmented_random; interval over steps and draws
)
_COUNTS = (
    "tried",  # held-out steps of the function
    "right",  # of these, done by the whole model
    "asked",  # of these, asked again with heads masked
    "wrong_asked",  # failed ones asked again at `size` heads
    "augment_asked",
    "train_right",  # training steps that the directions were made from
    "train_wrong",
    "chain_steps",  # steps of the function in the chains
)

FUNCTION_MASKING = Schema(
    study="function_masking",
    version=1,
    variables=dict.fromkeys(_CURVES, (FUNCTION, REMOVED))
    | dict.fromkeys(_BY_FUNCTION, (FUNCTION,))
    | dict.fromkeys(_MATRICES, (MASKED, FUNCTION))
    | dict.fromkeys(_AMOUNTS, (FUNCTION, AMOUNT))
    | {
        "random_draws": (FUNCTION, DRAW, REMOVED),
        "pooled_effect": (REMOVED,),  # the effect over the steps of all functions together
        "pooled_effect_low": (REMOVED,),
        "pooled_effect_high": (REMOVED,),
        "pooled_mean_effect": (),  # the same, mean over all numbers of heads
        "pooled_mean_effect_low": (),
        "pooled_mean_effect_high": (),
        "cross_random": (FUNCTION,),  # accuracy with `size` random heads masked
        "overlap": (MASKED, FUNCTION),  # share of the row's `size` heads that are among the column's
        "heads": (FUNCTION, REMOVED),  # the masked heads by name, "L3H7, L4H0", most important first
        "reason": (FUNCTION,),  # why a function was not masked (its map is refused, too few steps done); else empty
        "augment_reason": (FUNCTION,),  # why it was not augmented; else empty
    },
    coords={
        FUNCTION: (FUNCTION,),
        "order": (FUNCTION,),  # "low", "high", or empty
        MASKED: (MASKED,),  # the same names as function
        REMOVED: (REMOVED,),  # how many heads
        AMOUNT: (AMOUNT,),  # alpha, in standard deviations along the direction; the first is 0
    }
    | dict.fromkeys(_COUNTS, (FUNCTION,)),
    dtypes=dict.fromkeys((*_CURVES, *_BY_FUNCTION, *_MATRICES, *_AMOUNTS), "float32")
    | dict.fromkeys(("random_draws", "cross_random", "overlap", AMOUNT), "float32")
    | dict.fromkeys((*_COUNTS, REMOVED), "int64")
    | dict.fromkeys((FUNCTION, "order", MASKED, "heads", "reason", "augment_reason"), TEXT),
    # size: heads of the matrices; factor: what masked heads are multiplied by; positions: where; chains: how many were
    # run; chain_reason: why none was, or empty
    attrs=("record", "title", "size", "factor", "positions", "chains", "chain_reason"),
)
