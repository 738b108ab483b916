"""The spec of the study `relation_validation`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import CONTROL, DRAW, HEAD, LAYER, RELATION, REMOVED, TASK
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
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
class RelationValidationOptions(StudyOptions):
    """Options of the study `relation_validation`: do heads do in texts what their weights say?

    Examples:
        >>> RelationValidationOptions(tasks=("country-capital",), removed=(1, 4, 16), same_layers=False).removed
        (1, 4, 16)
        >>> RelationValidationOptions(removed=(4, 2))
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: relation_validation.removed must increase from at least 1, such as 1, 2, 4, not (4, 2).
    """

    study = "relation_validation"
    prompts: int = option(30, "number of prompts per relation, around its source words", minimum=2)
    tasks: tuple[str, ...] | None = option(
        None, "relations whose heads are ablated in few-shot tasks; None: six well-known ones, or the first six"
    )
    tried: int = option(40, "number of few-shot prompts per task, for the whole model", minimum=2)
    solved: int = option(25, "maximum number of correctly completed prompts on which heads are ablated", minimum=2)
    least_solved: int = option(
        15, "minimum number of correctly completed prompts; tasks with fewer are left out", minimum=2
    )
    shots: int = option(5, "worked examples before each prompt", minimum=0)
    removed: tuple[int, ...] = option((1, 4, 16, 32), "numbers of heads that are ablated")
    draws: int = option(20, "number of draws of control heads", minimum=20)
    same_layers: bool = option(True, "draw control heads from the same layers as the heads that they replace")
    batch_tokens: int = option(4096, "tokens per batch, padding included", minimum=1)
    shard: int = option(
        64, "number of examples (relations) between saves; a killed build loses at most these", minimum=1
    )
    seed: int = option(0, "seed of prompts and random heads")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.removed or min(self.removed) < 1 or list(self.removed) != sorted(set(self.removed)):
            raise StudyError(
                f"relation_validation.removed must increase from at least 1, such as 1, 2, 4, not {self.removed}."
            )


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    relations = 25
    tokens = relations * 30 * 12 + 6 * 25 * 4 * 26  # prompts; tasks x prompts x numbers of heads x head sets
    return StudyCost(
        relations, tokens, forward_flops(card, [1] * tokens), 2048, card.layers * card.heads * relations * 4,
        slowdown=1.5, unit="relations",
    )  # fmt: skip


RELATION_VALIDATION = DatasetSpec(
    name="relation_validation",
    question="Do heads do in texts what their weights say?",
    method=Method(
        "Two tests of the scores from weights. In prompts that contain a relation's source word, does the "
        "head really write the target, with its attention as it is and with all of it on the source? And "
        "when a relation's heads are ablated, does the model lose accuracy on that task: more than without as many "
        "other heads of the same layers, and more than on other tasks?",
        "Elhelo and Geva, Inferring Functionality of Attention Heads from their Parameters",
        "https://arxiv.org/abs/2412.11965",
    ),
    variables=(
        Variable("score", (RELATION, LAYER, HEAD), "score of the head from its weights alone", dtype="float32"),
        Variable(
            "natural",
            (RELATION, LAYER, HEAD),
            "share of prompts in which the head's output, with the attention as it is, promotes the target",
            dtype="float32",
        ),
        Variable(
            "forced",
            (RELATION, LAYER, HEAD),
            "share of prompts in which the head's output, with all attention forced onto the source, promotes "
            "the target",
            dtype="float32",
        ),
        Variable(
            "pearson_natural",
            (RELATION,),
            "correlation over heads of the score from weights with the share found with the attention as it is",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "other_natural",
            (RELATION,),
            "control: as pearson_natural, with the scores of the other relations",
            dtype="float32",
        ),
        Variable(
            "pearson_forced",
            (RELATION,),
            "correlation over heads of the score from weights with the share found with attention forced onto "
            "the source",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "other_forced",
            (RELATION,),
            "control: as pearson_forced, with the scores of the other relations",
            dtype="float32",
        ),
        Variable(
            "own",
            (TASK, REMOVED),
            "accuracy with the relation's highest-scored heads ablated",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "random",
            (TASK, REMOVED),
            "accuracy with as many control heads ablated, mean over draws",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "effect",
            (TASK,),
            "accuracy lost beyond random heads, mean over all numbers of heads",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "rank_p",
            (TASK,),
            "rank of the relation's heads among the draws of control heads, by the mean over all numbers of heads: (1 + draws "
            "that cost at least as much) / (1 + draws)",
            dtype="float32",
            required=False,
        ),
        Variable("rank_q", (TASK,), "the same, Benjamini-Hochberg over tasks", dtype="float32", required=False),
        Variable(
            "spill",
            (TASK,),
            "accuracy that the other tasks lose beyond random heads, mean over all numbers of heads",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "random_draws", (TASK, DRAW, REMOVED), "accuracy with random heads ablated, per draw", dtype="float32"
        ),
        Variable(
            "others",
            (TASK, CONTROL, REMOVED),
            "accuracy on another task's prompts with this task's heads ablated",
            dtype="float32",
        ),
        Variable("relation", (RELATION,), dtype=TEXT, coordinate=True),
        Variable("category_of", (RELATION,), "category of the relation", dtype=TEXT, coordinate=True),
        Variable("prompts", (RELATION,), "prompts of the relation", dtype="int64", unit="prompts", coordinate=True),
        Variable("task", (TASK,), dtype=TEXT, coordinate=True),
        Variable("control", (CONTROL,), dtype=TEXT, coordinate=True),
        Variable("removed", (REMOVED,), dtype="int64", coordinate=True),
        Variable("tried", (TASK,), "prompts of the task", dtype="int64", unit="prompts", coordinate=True),
        Variable(
            "right",
            (TASK,),
            "of these, completed correctly by the whole model",
            dtype="int64",
            unit="prompts",
            coordinate=True,
        ),
        Variable("asked", (TASK,), "of these, used for ablations", dtype="int64", unit="prompts", coordinate=True),
    ),
    attrs=("record", "title", "unsolved", "least_solved"),
    examples="relations",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "outputs": "scores from weights against outputs in texts",
                "scatter": "the same, one point per head",
                "removal": "accuracy of tasks without a relation's heads",
            },
            example="removal",
        ),
        "relations": FigureOption(
            "Which relations, comma-separated, in this order; all by default.", "copying", needs={"kind": ("scatter",)}
        ),
    },
    variants=(
        FigureVariant("outputs", "Correlations", {"kind": "outputs"}),
        FigureVariant("scatter", "Each relation", {"kind": "scatter"}),
        FigureVariant("removal", "Without these heads", {"kind": "removal"}),
    ),
    words="words:describe",
    made_from="relations",
)

SPEC = StudySpec(
    name="relation_validation",
    package=__package__,
    version=1,
    options=RelationValidationOptions,
    produces=(RELATION_VALIDATION,),
    inputs=("relations",),
    depends_on=("relations",),
    quick=False,
    cost=_cost,
)
