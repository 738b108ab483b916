"""The spec of the study `circuits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import CIRCUIT_SIZE, CONDITION, HEAD, LAYER, RANK, TASK, UNIT
from headwise.core.errors import StudyError, did_you_mean
from headwise.core.schema import TEXT
from headwise.corpora.circuit_tasks import CIRCUIT_TASKS
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
from headwise.studies.head_sets import StrongestHeads
from headwise.studies.spec import (
    DatasetSpec,
    FigureOption,
    FigureVariant,
    HeadColumn,
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
class CircuitsOptions(StudyOptions):
    """Options of the study `circuits`: which heads and edges does a task need, and how few?

    Examples:
        >>> from headwise.corpora import CIRCUIT_TASKS
        >>> list(CIRCUIT_TASKS)
        ['induction', 'indirect_object', 'greater_than', 'successor', 'agreement']
        >>> CircuitsOptions(tasks=("greater_than",), edges=False).chosen
        ('greater_than',)
    """

    study = "circuits"
    tasks: tuple[str, ...] | None = option(None, "tasks to measure; None: all")
    ranking: int = option(8, "pairs of prompts on which heads and edges are ranked", minimum=2)
    measuring: int = option(12, "other pairs of prompts, on which circuits are measured", minimum=4)
    steps: int = option(3, "steps of the integrated gradients between clean and corrupt prompt", minimum=1)
    checked: int = option(12, "heads whose effects are checked by exact patching", minimum=4)
    edges: bool = option(True, "also rank and patch edges; without them it takes half the time")
    goal: float = option(0.9, "share of the clean-corrupt difference that a circuit has to explain")
    batch_tokens: int = option(2048, "tokens per batch, padding included", minimum=1)
    seed: int = option(0, "seed of the pairs of prompts and of random circuits")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.goal <= 1:
            raise StudyError(f"circuits.goal must be a share above 0 and at most 1, such as 0.9, not {self.goal}.")
        for name in self.tasks or ():
            if name not in CIRCUIT_TASKS:
                raise StudyError(f"there is no circuit task {name!r}. {did_you_mean(name, CIRCUIT_TASKS)}")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The tasks by name, in their own order."""
        return tuple(name for name in CIRCUIT_TASKS if self.tasks is None or name in self.tasks)


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    """Plain passes, and passes with one input per head, which take three times as long."""
    options, task_tokens = CircuitsOptions(), (8, 11, 11, 6, 5)
    plain = (18 * options.measuring + options.checked * options.ranking) * sum(task_tokens)
    wide = (17 * options.measuring + (2 + 3 * options.steps) * options.ranking) * sum(task_tokens)
    tokens = plain + 3 * wide
    return StudyCost(
        len(task_tokens), tokens, forward_flops(card, [1] * tokens), min(options.batch_tokens, tokens),
        card.layers * card.heads * len(task_tokens) * 3, unit="tasks", shard=1,
    )  # fmt: skip


CIRCUITS = DatasetSpec(
    name="circuits",
    question="Which heads does a task need?",
    method=Method(
        "Clean and corrupted prompts of a task differ in one fact. Heads and edges between them are ranked "
        "by a first-order estimate of what patching them does to the answer; circuits of the highest ranked are then "
        "measured by exact patching, with all else corrupted, next to random circuits of the same size.",
        "Draye, Lei et al., Sparse Attention Post-Training for Mechanistic Interpretability",
        "https://arxiv.org/abs/2512.05865",
    ),
    variables=(
        Variable(
            "effect",
            (TASK, LAYER, HEAD),
            "effect of the head on the task, as a share of the clean-corrupt difference",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "accuracy",
            (CONDITION, TASK),
            "share of the task's prompts that the model completes correctly",
            dtype="float32",
            interval=True,
        ),
        Variable("clean", (CONDITION, TASK), "mean score on the clean prompts", dtype="float32"),
        Variable("corrupt", (CONDITION, TASK), "mean score on the corrupt prompts", dtype="float32"),
        Variable("gap", (CONDITION, TASK), "clean minus corrupt score", dtype="float32", interval=True),
        Variable(
            "agreement",
            (CONDITION, TASK),
            "rank correlation of the effects by gradient with those by exact patching",
            dtype="float32",
        ),
        Variable(
            "checked",
            (CONDITION, TASK),
            "number of heads that the agreement was checked on",
            dtype="float32",
            unit="heads",
        ),
        Variable(
            "size",
            (CONDITION, TASK, UNIT, CIRCUIT_SIZE),
            "number of the highest-ranked heads or edges in the circuit",
            dtype="float32",
        ),
        Variable(
            "share",
            (CONDITION, TASK, UNIT, CIRCUIT_SIZE),
            "share of the clean-corrupt difference that this circuit explains",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "random_size",
            (CONDITION, TASK, UNIT, CIRCUIT_SIZE),
            "number of random heads or edges in the control",
            dtype="float32",
        ),
        Variable(
            "random",
            (CONDITION, TASK, UNIT, CIRCUIT_SIZE),
            "share of the clean-corrupt difference that random heads or edges explain",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "needed",
            (CONDITION, TASK, UNIT),
            "size from which on the share stays at the goal",
            dtype="float32",
            interval=True,
        ),
        Variable("edge", (CONDITION, TASK, RANK), "name of the edge at this rank", dtype=TEXT),
        Variable(
            "edge_effect",
            (CONDITION, TASK, RANK),
            "effect of this edge, as a share of the clean-corrupt difference",
            dtype="float32",
        ),
        Variable("condition", (CONDITION,), dtype=TEXT, coordinate=True),
        Variable("name", (CONDITION,), "name of the model", dtype=TEXT, coordinate=True),
        Variable("task", (TASK,), dtype=TEXT, coordinate=True),
        Variable("label", (TASK,), dtype=TEXT, coordinate=True),
        Variable("shown", (TASK,), "one of the task's prompts", dtype=TEXT, coordinate=True),
        Variable("expected", (TASK,), "the expected completion", dtype=TEXT, coordinate=True),
        Variable("unit", (UNIT,), dtype=TEXT, coordinate=True),
        Variable(
            "reference_effect",
            None,
            "effect of the head in the reference model, as a share of the clean-corrupt difference",
            required=False,
        ),
        Variable("ratio", None, "size needed by the model over size needed by the reference model", required=False),
    ),
    attrs=("record", "title", "goal", "refused", "refused_by_reference", "no_edges", "prompts"),
    examples="pairs of prompts",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "curves": "what growing circuits explain",
                "maps": "the effect of every head",
            },
            example="maps",
        ),
        "tasks": FigureOption("Which tasks, comma-separated, in this order; all by default.", "induction,greater_than"),
    },
    variants=(
        FigureVariant("curves", "Circuits", {"kind": "curves"}),
        FigureVariant("maps", "Heads", {"kind": "maps"}),
    ),
    words="words:describe",
    renames={
        1: Renames(
            {
                "subject": CONDITION,
                "kept": CIRCUIT_SIZE,
                "against": "reference_effect",
                "against_low": "reference_effect_low",
                "against_high": "reference_effect_high",
                "refused_beside": "refused_by_reference",
            },
            {CONDITION: {"against": "reference"}},
            {"against": "reference"},
        )
    },
    head_sets=StrongestHeads(
        "circuits",
        "the strongest tenth by effect, with the interval off 0",
        ("effect", "effect_low", "effect_high"),
        lambda effect, low, high: (low > 0) | (high < 0),
        strength=lambda effect, low, high: abs(effect),
        per=TASK,
    ),
    head_columns=(
        HeadColumn(
            "effect",
            level=0.0,
            baseline_name="no effect",
            definition="what patching the head does, as a share of the clean-corrupt difference",
        ),
    ),
)

SPEC = StudySpec(
    name="circuits",
    package=__package__,
    version=2,
    options=CircuitsOptions,
    produces=(CIRCUITS,),
    inputs=("reference",),
    opt_in=True,
    cost=_cost,
)
