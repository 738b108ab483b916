"""The spec of the study `function_masking`."""

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
    StudyOptions,
    StudySpec,
    Variable,
    option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class FunctionMaskingOptions(StudyOptions):
    """What can be chosen about the study `function_masking`: does the model need the heads that carry a function?

    Examples:
        >>> FunctionMaskingOptions(heads=(2, 8), size=8, factor=0.0, chains=0).heads
        (2, 8)
        >>> FunctionMaskingOptions(heads=(2, 8))
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: size=32 is none of heads=(2, 8); choose one of them
    """

    study = "function_masking"
    heads: tuple[int, ...] = option((4, 8, 16, 32, 64), "how many are masked")
    size: int = option(32, "one of these: how many in cross-masking, augmenting and hierarchy")
    factor: float = option(1e-3, "what masked heads are multiplied by")
    where: str = option(
        "answer",
        'from the last prompt token on; "decode": on decode steps alone; "everywhere"',
        choices=("answer", "decode", "everywhere"),
    )
    draws: int = option(5, "of random heads", minimum=2)
    items: int = option(5, "held-out steps of a function that the whole model does, asked again, at most", minimum=2)
    least: int = option(3, "a function of which the whole model does fewer is not judged by masking", minimum=2)
    failed: int = option(2, "held-out steps that it fails, asked again at `size`, at most", minimum=0)
    mixed: int = option(4, "held-out steps, done or failed, that are augmented, at most; 0: no augmenting", minimum=0)
    amounts: tuple[float, ...] = option((1.0, 2.0, 4.0), "in standard deviations along the direction")
    turned: int = option(2, "random directions", minimum=1)
    chains: int = option(6, "whole questions for the hierarchy; 0: no hierarchy", minimum=0)
    chain_draws: int = option(2, "of random heads", minimum=2)
    low: tuple[str, ...] | None = option(None, "low-order functions; None: the four known ones")
    high: tuple[str, ...] | None = option(None, "high-order functions; None: the four known ones")
    batch: int = option(64, "rows at a time", minimum=1)
    seed: int = option(0, "of random heads and directions")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("heads", int), ("amounts", float)):
            given = _rising(getattr(self, name), kind)
            if not given or given[0] <= 0:
                raise StudyError(f"{name}={getattr(self, name)} do not rise from above 0; give such as 4, 8, 16")
            object.__setattr__(self, name, given)
        if self.size not in self.heads:
            raise StudyError(f"size={self.size} is none of heads={self.heads}; choose one of them")


def _rising(values: Sequence[Any], kind: type) -> tuple[Any, ...]:
    """The values as numbers (from a command line they are text); empty where they do not rise."""
    try:
        found = tuple(kind(value) for value in values)
    except ValueError:
        return ()
    return found if list(found) == sorted(set(found)) else ()


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    repetitions = 180  # how often the steps of a function are answered again with changed heads
    texts = [QUESTION_TOKENS // 2] * (inputs.functions * 12) + [STEP_TOKENS] * (inputs.functions * repetitions)
    return StudyCost(
        inputs.functions, sum(texts), forward_flops(card, texts), 64 * STEP_TOKENS, inputs.functions * repetitions * 8,
        slowdown=1.4, unit="functions, and whole chains", passes_per_batch=FunctionsOptions().max_new_tokens + 1, shard=1,
    )  # fmt: skip


FUNCTION_MASKING = DatasetSpec(
    name="function_masking",
    question="Does the model need a function’s heads, and for that function only?",
    method=Method(
        "The most important heads of a function are scaled to nearly nothing while the model answers steps "
        "it can do; as many random heads outside the set are the control, drawn several times. Steps of the"
        " other functions show whether the loss is that function's own.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
    variables=(
        Variable(
            "own",
            (FUNCTION, REMOVED),
            "accuracy on steps that the whole model does, with the function's most important heads masked",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "random",
            (FUNCTION, REMOVED),
            "accuracy on the same steps with as many random heads masked, mean over draws",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "effect",
            (FUNCTION, REMOVED),
            "accuracy lost beyond random heads (random less own)",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "whole",
            (FUNCTION,),
            "accuracy of the whole model on all held-out steps of the function",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "mean_effect",
            (FUNCTION,),
            "accuracy lost beyond random heads, mean over all numbers of heads",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "spill",
            (FUNCTION,),
            "accuracy that the steps of other functions lose beyond random heads with this function's heads masked",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "chain_effect",
            (FUNCTION,),
            "accuracy that high-order steps in whole chains lose beyond random heads with this function's masked",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "recovered_own",
            (FUNCTION,),
            "share of steps that the whole model fails which come out right with the function's heads masked",
            dtype="float32",
        ),
        Variable(
            "recovered_random",
            (FUNCTION,),
            "share of steps that the whole model fails which come out right with random heads masked",
            dtype="float32",
        ),
        Variable(
            "all_own", (FUNCTION,), "accuracy over all held-out steps with the function's heads masked", dtype="float32"
        ),
        Variable(
            "all_random", (FUNCTION,), "accuracy over all held-out steps with random heads masked", dtype="float32"
        ),
        Variable(
            "chain_whole",
            (FUNCTION,),
            "accuracy of the whole model on this function's steps in whole chains",
            dtype="float32",
        ),
        Variable(
            "chain_high_own",
            (FUNCTION,),
            "accuracy on high-order steps in whole chains with this function's heads masked; NaN if it is not "
            "low-order",
            dtype="float32",
        ),
        Variable(
            "chain_high_random",
            (FUNCTION,),
            "accuracy on high-order steps in whole chains with random heads masked",
            dtype="float32",
        ),
        Variable(
            "cross",
            (MASKED, FUNCTION),
            "accuracy on the column's steps with the heads of the row's function masked",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "cross_effect",
            (MASKED, FUNCTION),
            "accuracy that the column's steps lose beyond random heads with the row's heads masked",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "chain",
            (MASKED, FUNCTION),
            "accuracy on the column's steps in whole chains with the row's heads masked; NaN: not tried",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "augmented",
            (FUNCTION, AMOUNT),
            "accuracy with the function's direction added to its heads",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "augmented_random",
            (FUNCTION, AMOUNT),
            "accuracy with random directions of the same length added to the same heads, mean over draws",
            dtype="float32",
            interval=True,
        ),
        Variable("gain", (FUNCTION, AMOUNT), "accuracy gained over adding nothing", dtype="float32", interval=True),
        Variable(
            "gain_over_random",
            (FUNCTION, AMOUNT),
            "accuracy gained over adding random directions",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "random_draws",
            (FUNCTION, DRAW, REMOVED),
            "accuracy on the same steps with random heads masked, each draw",
            dtype="float32",
        ),
        Variable(
            "pooled_effect",
            (REMOVED,),
            "accuracy lost beyond random heads, over the steps of all functions together",
            interval=True,
        ),
        Variable(
            "pooled_mean_effect",
            (),
            "accuracy lost beyond random heads, over all functions' steps, mean over all numbers of heads",
            interval=True,
        ),
        Variable(
            "cross_random",
            (FUNCTION,),
            "accuracy on the function's steps with random heads masked, for the matrix",
            dtype="float32",
        ),
        Variable(
            "overlap", (MASKED, FUNCTION), "share of the row's heads that are among the column's", dtype="float32"
        ),
        Variable("heads", (FUNCTION, REMOVED), "names of the masked heads, most important first", dtype=TEXT),
        Variable("reason", (FUNCTION,), "why the function was not masked; else empty", dtype=TEXT),
        Variable("augment_reason", (FUNCTION,), "why the function was not augmented; else empty", dtype=TEXT),
        Variable("function", (FUNCTION,), dtype=TEXT, coordinate=True),
        Variable("order", (FUNCTION,), "low-order or high-order function, or empty", dtype=TEXT, coordinate=True),
        Variable("masked", (MASKED,), dtype=TEXT, coordinate=True),
        Variable("removed", (REMOVED,), dtype="int64", coordinate=True),
        Variable("amount", (AMOUNT,), dtype="float32", coordinate=True),
        Variable("tried", (FUNCTION,), "held-out steps of the function", dtype="int64", unit="steps", coordinate=True),
        Variable(
            "right", (FUNCTION,), "of these, done by the whole model", dtype="int64", unit="steps", coordinate=True
        ),
        Variable(
            "asked",
            (FUNCTION,),
            "of these, asked again with heads masked",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable(
            "wrong_asked",
            (FUNCTION,),
            "failed steps that were asked again with heads masked",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable(
            "augment_asked",
            (FUNCTION,),
            "held-out steps asked with directions added",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable(
            "train_right",
            (FUNCTION,),
            "right training steps that the directions were made from",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable(
            "train_wrong",
            (FUNCTION,),
            "wrong training steps that the directions were made from",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable(
            "chain_steps",
            (FUNCTION,),
            "steps of the function in the whole chains",
            dtype="int64",
            unit="steps",
            coordinate=True,
        ),
        Variable("chain_random", None, "accuracy in whole chains with random heads masked", required=False),
    ),
    attrs=("record", "title", "size", "factor", "positions", "chains", "chain_reason"),
    examples="functions",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            "masking: accuracy without a function's heads; effects: what that costs beyond random heads; cross:"
            " heads of one function, steps of another; augment: heads strengthened; hierarchy: whole chains.",
            "cross",
        ),
        "functions": FigureOption(
            "Which functions, comma-separated, in this order; all by default.", "Retrieval,Inference"
        ),
    },
    variants=(
        FigureVariant("masking", "Masked", {"kind": "masking"}),
        FigureVariant("effects", "Effects", {"kind": "effects"}),
        FigureVariant("cross", "Crossed", {"kind": "cross"}),
        FigureVariant("augment", "Strengthened", {"kind": "augment"}),
        FigureVariant("hierarchy", "Chains", {"kind": "hierarchy"}),
    ),
    words="words:describe",
    made_from="functions",
    on_own_answers=True,
)

SPEC = StudySpec(
    name="function_masking",
    package=__package__,
    version=1,
    options=FunctionMaskingOptions,
    produces=(FUNCTION_MASKING,),
    inputs=("steps",),
    depends_on=("functions",),
    cost=_cost,
)
