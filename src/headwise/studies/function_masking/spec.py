"""Study `function_masking`: does the model need a function's heads, and for that function only?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
from headwise.studies.functions.spec import QUESTION_TOKENS, STEP_TOKENS, FunctionsOptions
from headwise.studies.spec import (
    DatasetSpec,
    FigureOption,
    FigureVariant,
    Method,
    Renames,
    StudyOptions,
    StudySpec,
    Variable,
    option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class FunctionMaskingOptions(StudyOptions):
    """Options of the study `function_masking`: does the model need the heads that carry a function?

    Examples:
        >>> FunctionMaskingOptions(heads=(2, 8), size=8, factor=0.0, chains=0).heads
        (2, 8)
        >>> FunctionMaskingOptions(heads=(2, 8))
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: function_masking.size must be one of function_masking.heads (2, 8), not 32.
    """

    study = "function_masking"
    heads: tuple[int, ...] = option((32,), "numbers of heads that are masked, increasing")
    size: int = option(
        32,
        "number of heads that are masked or augmented in the other experiments; must be one of function_masking.heads",
    )
    factor: float = option(1e-3, "factor that scales masked heads")
    where: str = option(
        "answer",
        "where masking acts: from the last prompt token on (answer), at decode steps only (decode), or everywhere",
        choices=("answer", "decode", "everywhere"),
    )
    draws: int = option(20, "number of control sets, matched by layer and norm", minimum=20)
    solved_steps: int = option(
        50, "maximum number of held-out steps per function, solved by the intact model, that are masked", minimum=15
    )
    min_solved_steps: int = option(
        15, "minimum number of such steps; a function with fewer is not tested by masking", minimum=15
    )
    failed_steps: int = option(
        2,
        "maximum number of held-out steps per function, failed by the intact model, on which `size` heads are masked",
        minimum=0,
    )
    augmented_steps: int = option(
        4, "maximum number of held-out steps per function, solved or failed, that are augmented; 0: none", minimum=0
    )
    amounts: tuple[float, ...] = option((1.0, 2.0, 4.0), "lengths of the added direction, in standard deviations")
    random_directions: int = option(2, "number of random directions, the control of augmenting", minimum=1)
    chains: int = option(6, "number of whole questions for the hierarchy; 0: no hierarchy", minimum=0)
    chain_draws: int = option(2, "number of control sets per low-order function in the hierarchy", minimum=2)
    low_order: tuple[str, ...] | None = option(None, "low-order functions; None: the four published ones")
    high_order: tuple[str, ...] | None = option(None, "high-order functions; None: the four published ones")
    batch: int = option(256, "rows per batch", minimum=1)
    seed: int = option(0, "seed of the control sets and random directions")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("heads", int), ("amounts", float)):
            given = _increasing(getattr(self, name), kind)
            if not given or given[0] <= 0:
                raise StudyError(
                    f"function_masking.{name} must be increasing numbers above 0, not {getattr(self, name)}."
                )
            object.__setattr__(self, name, given)
        if self.size not in self.heads:
            raise StudyError(
                f"function_masking.size must be one of function_masking.heads {self.heads}, not {self.size}."
            )


def _increasing(values: Sequence[Any], kind: type) -> tuple[Any, ...]:
    """The values as numbers (from a command line they are text); empty where they do not increase."""
    try:
        found = tuple(kind(value) for value in values)
    except ValueError:
        return ()
    return found if list(found) == sorted(set(found)) else ()


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    repetitions = 900  # answers per function with changed heads
    texts = [QUESTION_TOKENS // 2] * (inputs.functions * 60) + [STEP_TOKENS] * (inputs.functions * repetitions)
    return StudyCost(
        inputs.functions, sum(texts), forward_flops(card, texts), 64 * STEP_TOKENS, inputs.functions * repetitions * 8,
        slowdown=1.4, unit="functions, and whole questions", passes_per_batch=FunctionsOptions().max_new_tokens + 1, shard=1,
    )  # fmt: skip


def _curve(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (FUNCTION, REMOVED), long_name, dtype="float32", **more)


def _by_amount(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (FUNCTION, AMOUNT), long_name, dtype="float32", **more)


def _matrix(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (MASKED, FUNCTION), long_name, dtype="float32", **more)


def _per_function(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (FUNCTION,), long_name, dtype="float32", **more)


def _count(name: str, long_name: str) -> Variable:
    return Variable(name, (FUNCTION,), long_name, dtype="int64", unit="steps", coordinate=True)


FUNCTION_MASKING = DatasetSpec(
    name="function_masking",
    question="Does the model need a function’s heads, and for that function only?",
    method=Method(
        "The most important heads of a function, by their importance on training steps, are scaled to almost zero while the "
        "model answers held-out steps that it solves when intact. The controls are sets with as many heads in every layer, "
        "near in the norm of what they write; the function's own set is ranked among them. Steps of the other functions show "
        "whether the loss is specific to the function.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
    variables=(
        _curve(
            "own",
            "accuracy on steps that the intact model solves, with the function's most important heads masked",
            interval=True,
        ),
        _curve("random", "accuracy on the same steps with a control set masked, mean over the sets", interval=True),
        _curve("effect", "accuracy lost beyond control sets (random - own)", interval=True),
        _curve(
            "rank_p",
            "rank of the own set among its control sets: (1 + controls that cost at least as much) / (1 + controls)",
            required=False,
        ),
        Variable(
            "control_sets",
            (FUNCTION, REMOVED),
            "number of different control sets, matched by layer and norm",
            dtype="int64",
            unit="sets",
            required=False,
        ),
        _curve(
            "norm_ratio",
            "norm of what the control sets write over that of what the own set writes, mean over sets",
            required=False,
        ),
        _per_function(
            "mean_rank_p",
            "rank of the own set among its control sets, by the mean over numbers of heads",
            required=False,
        ),
        _per_function("mean_rank_q", "the same, Benjamini-Hochberg over functions", required=False),
        Variable(
            "pooled_rank_p",
            (),
            "rank of the own sets of all functions together among their control sets",
            dtype="float32",
            required=False,
        ),
        _per_function("intact", "accuracy of the intact model on all held-out steps of the function", interval=True),
        _per_function(
            "mean_effect", "accuracy lost beyond control sets, mean over all numbers of heads", interval=True
        ),
        _per_function(
            "spill",
            "accuracy that other functions' steps lose beyond control sets with this function's heads masked",
            interval=True,
        ),
        _per_function(
            "chain_effect",
            "accuracy that high-order steps in whole questions lose beyond control sets with this function's masked",
            interval=True,
        ),
        _per_function(
            "recovered_own",
            "share of steps failed by the intact model that are correct with the function's heads masked",
        ),
        _per_function(
            "recovered_random", "share of steps failed by the intact model that are correct with control sets masked"
        ),
        _per_function("all_own", "accuracy over all held-out steps with the function's heads masked"),
        _per_function("all_random", "accuracy over all held-out steps with control sets masked"),
        _per_function("chain_intact", "accuracy of the intact model on this function's steps in whole questions"),
        _per_function(
            "chain_high_own",
            "accuracy on high-order steps in whole questions with this function's heads masked; NaN if it is not low-order",
        ),
        _per_function("chain_high_random", "accuracy on high-order steps in whole questions with control sets masked"),
        _matrix("cross", "accuracy on the column's steps with the heads of the row's function masked", interval=True),
        _matrix(
            "cross_effect",
            "accuracy that the column's steps lose beyond control sets with the row's heads masked",
            interval=True,
        ),
        _matrix(
            "chain",
            "accuracy on the column's steps in whole questions with the row's heads masked; NaN: not tested",
            interval=True,
        ),
        _by_amount("augmented", "accuracy with the function's direction added to its heads", interval=True),
        _by_amount(
            "augmented_random",
            "accuracy with random directions of the same length added to the same heads, mean over draws",
            interval=True,
        ),
        _by_amount("gain", "accuracy gained over adding nothing", interval=True),
        _by_amount("gain_over_random", "accuracy gained over adding random directions", interval=True),
        Variable(
            "random_draws",
            (FUNCTION, DRAW, REMOVED),
            "accuracy on the same steps with control sets masked, per draw",
            dtype="float32",
        ),
        Variable(
            "pooled_effect",
            (REMOVED,),
            "accuracy lost beyond control sets, over the steps of all functions together",
            interval=True,
        ),
        Variable(
            "pooled_mean_effect",
            (),
            "accuracy lost beyond control sets, over all functions' steps, mean over all numbers of heads",
            interval=True,
        ),
        _per_function(
            "cross_random", "accuracy on the function's steps with control sets masked, the control of the matrix"
        ),
        _matrix("overlap", "share of the row's heads that are among the column's"),
        Variable("heads", (FUNCTION, REMOVED), "names of the masked heads, most important first", dtype=TEXT),
        Variable("reason", (FUNCTION,), "why the function was not masked; empty where it was", dtype=TEXT),
        Variable("augment_reason", (FUNCTION,), "why the function was not augmented; empty where it was", dtype=TEXT),
        Variable("function", (FUNCTION,), dtype=TEXT, coordinate=True),
        Variable("order", (FUNCTION,), "low-order or high-order function, or empty", dtype=TEXT, coordinate=True),
        Variable("masked", (MASKED,), dtype=TEXT, coordinate=True),
        Variable("removed", (REMOVED,), dtype="int64", coordinate=True),
        Variable("amount", (AMOUNT,), dtype="float32", coordinate=True),
        _count("held_out_steps", "held-out steps of the function"),
        _count("solved_steps", "held-out steps that the intact model solves"),
        _count("masked_steps", "solved steps that were answered again with heads masked"),
        _count("failed_steps", "failed steps that were answered again with heads masked"),
        _count("augmented_steps", "held-out steps that were answered with directions added"),
        _count("train_right", "correct training steps behind the directions"),
        _count("train_wrong", "wrong training steps behind the directions"),
        _count("chain_steps", "steps of the function in the whole questions"),
        Variable("chain_random", None, "accuracy in whole questions with control sets masked", required=False),
    ),
    attrs=("record", "title", "size", "factor", "positions", "chains", "chain_reason"),
    examples="functions",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "masking": "accuracy with a function's heads masked",
                "effects": "accuracy drop beyond that of masking control sets",
                "cross": "accuracy drop in steps of one function with the heads of another masked",
                "augment": "accuracy with a direction added to the heads' outputs",
                "hierarchy": "accuracy on whole questions of several steps",
            },
            example="cross",
        ),
        "functions": FigureOption(
            "Functions to show, comma-separated, in this order; all by default.", "Retrieval,Inference"
        ),
    },
    variants=(
        FigureVariant("masking", "Masking", {"kind": "masking"}),
        FigureVariant("effects", "Effects", {"kind": "effects"}),
        FigureVariant("cross", "Cross-masking", {"kind": "cross"}),
        FigureVariant("augment", "Augmenting", {"kind": "augment"}),
        FigureVariant("hierarchy", "Hierarchy", {"kind": "hierarchy"}),
    ),
    words="words:describe",
    made_from="functions",
    on_own_answers=True,
    renames={
        1: Renames(
            variables={
                "whole": "intact",
                "whole_low": "intact_low",
                "whole_high": "intact_high",
                "chain_whole": "chain_intact",
                "tried": "held_out_steps",
                "right": "solved_steps",
                "asked": "masked_steps",
                "wrong_asked": "failed_steps",
                "augment_asked": "augmented_steps",
            },
            parameters={
                "items": "solved_steps",
                "least": "min_solved_steps",
                "failed": "failed_steps",
                "mixed": "augmented_steps",
                "turned": "random_directions",
                "low": "low_order",
                "high": "high_order",
            },
        )
    },
    readable_since=1,  # control heads are then of any layer, heads are ranked on the masked steps, and nothing is ranked
)

SPEC = StudySpec(
    name="function_masking",
    package=__package__,
    version=3,
    options=FunctionMaskingOptions,
    produces=(FUNCTION_MASKING,),
    inputs=("steps",),
    depends_on=("functions",),
    quick=False,
    cost=_cost,
)
