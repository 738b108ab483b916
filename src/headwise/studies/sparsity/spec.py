"""The spec of the study `sparsity`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import HEAD, LAYER, RULE
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import (
    DatasetSpec,
    FigureOption,
    FigureVariant,
    HeadColumn,
    Method,
    StudyOptions,
    StudySpec,
    Variable,
    option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


RULE_PATTERN = re.compile(r"(top|over|window|entmax|random) ([\d.]+)(?: \+ (\d+))?")
DEFAULT_RULES = (
    "top 2", "top 6", "top 16",
    "over 0.1", "over 0.02", "over 0.005",
    "window 4 + 1", "window 12 + 1", "window 28 + 1",
    "entmax 2", "entmax 1.5", "entmax 1.25",
    "random 6", "random 16",
)  # fmt: skip


@dataclass(frozen=True)
class SparsityOptions(StudyOptions):
    """What can be chosen about the study `sparsity`: what does a model lose when weights are dropped, without training?

    Examples:
        >>> SparsityOptions(rules=("half",))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: 'half' is not a rule for dropping attention weights; ...
    """

    study = "sparsity"
    rules: tuple[str, ...] = option(
        DEFAULT_RULES,
        'rules for dropping weights, such as "top 8", "over 0.01", "window 16 + 4", "entmax 1.5", "random 8"',
    )
    renormalise: bool = option(True, "rescale the remaining weights so that a row keeps its sum")
    prompts: int = option(30, "number of prompts", minimum=4)
    tokens: int = option(64, "tokens per prompt", minimum=8)
    batch_tokens: int = option(512, "tokens in a batch, padding included", minimum=1)
    shard: int = option(10, "number of examples between saves; a killed build loses at most these", minimum=1)
    seed: int = option(0, "seed of the rule random")

    def __post_init__(self) -> None:
        super().__post_init__()
        for rule in self.rules:
            if RULE_PATTERN.fullmatch(rule.strip()) is None:
                raise StudyError(
                    f"{rule!r} is not a rule for dropping attention weights; write it as 'top 8', 'over 0.01', "
                    "'window 16 + 4', 'entmax 1.5' or 'random 8'."
                )
        if not self.rules or len(set(self.rules)) < len(self.rules):
            raise StudyError(f"sparsity.rules must list at least one rule, each once, not {self.rules}.")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    options = SparsityOptions()
    texts = [options.tokens] * options.prompts * (1 + len(options.rules))
    return StudyCost(
        options.prompts, sum(texts), 1.5 * forward_flops(card, texts), options.batch_tokens,
        card.layers * card.heads * (3 + 5 * len(options.rules)), unit="prompts", shard=options.shard,
    )  # fmt: skip


SPARSITY = DatasetSpec(
    name="sparsity",
    question="What does dropping attention weights cost?",
    method=Method(
        "Attention weights are dropped at inference by several rules (the largest of a row, those over a "
        "threshold, a window, entmax), and as a control at random; the cost is the rise of the loss against "
        "a dense pass over the same text. Each head is also sparsified alone, with everything before it "
        "unchanged."
    ),
    variables=(
        Variable(
            "rise",
            (RULE,),
            "rise of the loss with the rule on all heads at once",
            dtype="float32",
            unit="nats",
            interval=True,
        ),
        Variable(
            "kl",
            (RULE,),
            "divergence KL(dense || sparse) of the next-token distributions",
            dtype="float32",
            unit="nats",
            interval=True,
        ),
        Variable("kept_mean", (RULE,), "share of visible edges kept, mean over heads", dtype="float32"),
        Variable("mass_mean", (RULE,), "share of attention weight dropped, mean over heads", dtype="float32"),
        Variable("change_mean", (RULE,), "relative change of a head's output, mean over heads", dtype="float32"),
        Variable(
            "change",
            (RULE, LAYER, HEAD),
            "relative change of the head's output, |z' - z| / |z|",
            dtype="float32",
            interval=True,
        ),
        Variable("kept", (RULE, LAYER, HEAD), "share of the head's visible edges kept", dtype="float32"),
        Variable("mass", (RULE, LAYER, HEAD), "share of the head's attention weight dropped", dtype="float32"),
        Variable(
            "needed",
            (LAYER, HEAD),
            "number of keys that hold 99 % of a row's weight",
            dtype="float32",
            unit="keys",
            interval=True,
        ),
        Variable("dense", (), "loss with nothing dropped", unit="nats", interval=True),
        Variable("rule", (RULE,), dtype=TEXT, coordinate=True),
        Variable("kind", (RULE,), "kind of rule", dtype=TEXT, coordinate=True),
        Variable("strength", (RULE,), "strength of the rule", dtype="float64", coordinate=True),
    ),
    attrs=("record", "title", "renormalised", "tokens", "prompts"),
    examples="prompts",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={
                "costs": "the cost of dropping weights",
                "maps": "which heads tolerate it",
            },
            example="maps",
        ),
        "rules": FigureOption(
            "Which rules, comma-separated; one setting of each by default.", "'top 8'", needs={"kind": ("maps",)}
        ),
    },
    variants=(FigureVariant("costs", "Costs", {"kind": "costs"}), FigureVariant("maps", "Heads", {"kind": "maps"})),
    words="words:describe",
    head_columns=(
        HeadColumn("needed", label="Keys that hold 99 % of a row"),
        HeadColumn(
            "change",
            definition="change of the head's output when weights are dropped by this rule",
        ),
    ),
)

SPEC = StudySpec(
    name="sparsity",
    package=__package__,
    version=1,
    options=SparsityOptions,
    produces=(SPARSITY,),
    inputs=("passages",),
    opt_in=True,
    cost=_cost,
)
