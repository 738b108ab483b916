"""The spec of the study `patterns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import (
    CONDITION,
    EXAMPLE,
    FEATURE,
    HEAD,
    KEY,
    LAYER,
    POOLED_KEY,
    POOLED_QUERY,
    QUERY,
    STATISTIC,
    TOKEN,
)
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import PlannedInputs, StudyCost, forward_flops
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
    style_option,
)

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


SENTENCE = "The cat that the dog had chased slept under the table, and the dog slept beside the cat."


@dataclass(frozen=True)
class PatternsOptions(StudyOptions):
    """What can be chosen about the study `patterns`: what do the attention maps look like, of one model or of two?

    Examples:
        The model next to itself without two heads.

        >>> PatternsOptions(prompts=8, heads_off="L3H1,L5H2").active
        0.01
    """

    study = "patterns"
    prompts: int = option(32, "number of prompts that are averaged", minimum=6, quick=8)
    tokens: int | None = option(
        None, "tokens per prompt; None: 128, or fewer where the texts or the context are shorter", minimum=16
    )
    prompt: str = option(SENTENCE, "prompt whose attention maps are stored and shown")
    active: float = option(0.01, "weight above which an edge counts as active")
    peak: float = option(0.3, "weight above which an off-diagonal edge counts as a peak")
    heads_off: str | None = option(None, 'compare with the same model without these heads, such as "L3H1,L5H2"')
    batch_tokens: int = option(1024, "tokens in a batch, padding included", minimum=1)
    shard: int = option(16, "number of examples between saves; a killed build loses at most these", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("active", "peak"):
            if not 0 < getattr(self, name) < 1:
                raise StudyError(f"patterns.{name} must be between 0 and 1, not {getattr(self, name)}.")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    options, heads = PatternsOptions(), card.layers * card.heads
    models = 2 if inputs.reference else 1
    tokens = min(128, card.max_positions or 128)
    texts = [tokens] * (options.prompts * models)
    logits = 2.0 * card.hidden_size * card.vocabulary_size * sum(texts)
    pixels, numbers = 64 * 64 + 32 * 32, 8  # per head
    return StudyCost(
        options.prompts, sum(texts), forward_flops(card, texts) + logits, options.batch_tokens,
        heads * models * (pixels // 2 + numbers * (options.prompts + 8)), fitting=6.0 * models * heads / 270,
        slowdown=1.67, unit="prompts", shard=options.shard,
    )  # fmt: skip


PATTERNS = DatasetSpec(
    name="patterns",
    question="What do the attention maps look like?",
    method=Method(
        "Every head's attention map of one prompt as a small picture; what the mask hides is a texture, not"
        " zero. Maps larger than their tile keep the largest weight of each rectangle. The numbers are "
        "means over many prompts; where two models are compared they read the same tokens, and each change "
        "has a paired test over prompts.",
        "Draye, Lei et al., Sparse Attention Post-Training for Mechanistic Interpretability",
        "https://arxiv.org/abs/2512.05865",
    ),
    variables=(
        Variable(
            "value",
            (CONDITION, STATISTIC, LAYER, HEAD),
            "the statistic of the head's attention map, mean over prompts",
            dtype="float32",
        ),
        Variable(
            "low", (CONDITION, STATISTIC, LAYER, HEAD), "lower end of the 95 % interval of that mean", dtype="float32"
        ),
        Variable(
            "high", (CONDITION, STATISTIC, LAYER, HEAD), "upper end of the 95 % interval of that mean", dtype="float32"
        ),
        Variable(
            "uniform",
            (STATISTIC, LAYER, HEAD),
            "the statistic of a head with uniform attention over all keys that it can see",
            dtype="float32",
        ),
        Variable(
            "per_example",
            (CONDITION, EXAMPLE, STATISTIC, LAYER, HEAD),
            "the statistic of the head's attention map in one prompt",
            dtype="float32",
        ),
        Variable(
            "peaked",
            (CONDITION, LAYER, HEAD),
            "share of the prompts in which the head has an off-diagonal peak",
            dtype="float32",
        ),
        Variable("loss", (CONDITION, EXAMPLE), "mean next-token loss of the prompt", dtype="float32", unit="nats"),
        Variable(
            "whole",
            (CONDITION, FEATURE),
            "the feature over all heads together, mean over prompts",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "average",
            (CONDITION, LAYER, HEAD, POOLED_QUERY, POOLED_KEY),
            "attention map pooled and averaged over prompts; NaN where the mask hides it",
            dtype="float16",
        ),
        Variable("shown", (CONDITION, LAYER, HEAD, QUERY, KEY), "attention map of the shown prompt", dtype="float16"),
        Variable("condition", (CONDITION,), dtype=TEXT, coordinate=True),
        Variable("name", (CONDITION,), "name of the model or condition", dtype=TEXT, coordinate=True),
        Variable("statistic", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("label", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("definition", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("feature", (FEATURE,), dtype=TEXT, coordinate=True),
        Variable("feature_definition", (FEATURE,), "definition of the feature in words", dtype=TEXT, coordinate=True),
        Variable("token_text", (TOKEN,), "text of each token of the shown prompt", dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("register", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("query", (QUERY,), coordinate=True),
        Variable("key", (KEY,), coordinate=True),
        Variable(
            "change",
            (STATISTIC, LAYER, HEAD),
            "the statistic in the second condition minus that in the first, mean over prompts",
            required=False,
            interval=True,
        ),
        Variable("p", (STATISTIC, LAYER, HEAD), "p-value of the change, paired over prompts", required=False),
        Variable("q", (STATISTIC, LAYER, HEAD), "q-value of the change (Benjamini-Hochberg)", required=False),
        Variable(
            "whole_change",
            (FEATURE,),
            "the feature in the second condition minus that in the first, mean over prompts",
            required=False,
            interval=True,
        ),
        Variable("whole_p", (FEATURE,), "p-value of that change, paired over prompts", required=False),
        Variable(
            "similarity",
            (LAYER, HEAD),
            "1 - Jensen-Shannon divergence (bits) of the two conditions' attention rows: 1 the same, 0 disjoint",
            required=False,
            interval=True,
        ),
        Variable(
            "other",
            (LAYER, HEAD),
            "control: the same with the next head of the layer in the second condition",
            required=False,
            interval=True,
        ),
        Variable(
            "elsewhere",
            (LAYER, HEAD),
            "similarity with the weight on the first token counted as no attention",
            required=False,
            interval=True,
        ),
        Variable(
            "dropped",
            (LAYER, HEAD),
            "share of the first condition's active edges that the second does not have",
            required=False,
            interval=True,
        ),
        Variable(
            "gained",
            (LAYER, HEAD),
            "share of the second condition's active edges that the first does not have",
            required=False,
            interval=True,
        ),
        Variable(
            "kl", None, "divergence of the next-token distributions of the two conditions", required=False, unit="nats"
        ),
        Variable(
            "whole_similarity",
            (),
            "over all heads: 1 - Jensen-Shannon divergence (bits) of the two conditions' attention rows: 1 the "
            "same, 0 disjoint",
            required=False,
            interval=True,
        ),
        Variable(
            "whole_other",
            (),
            "over all heads: control: the same with the next head of the layer in the second condition",
            required=False,
            interval=True,
        ),
        Variable(
            "whole_elsewhere",
            (),
            "over all heads: similarity with the weight on the first token counted as no attention",
            required=False,
            interval=True,
        ),
        Variable(
            "whole_dropped",
            (),
            "over all heads: share of the first condition's active edges that the second does not have",
            required=False,
            interval=True,
        ),
        Variable(
            "whole_gained",
            (),
            "over all heads: share of the second condition's active edges that the first does not have",
            required=False,
            interval=True,
        ),
        Variable(
            "whole_kl",
            (),
            "over all heads: divergence of the next-token distributions of the two conditions",
            required=False,
            interval=True,
            unit="nats",
        ),
        Variable(
            "similarity_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: 1 - Jensen-Shannon divergence (bits) of the two conditions' attention"
            " rows: 1 the same, 0 disjoint",
            required=False,
        ),
        Variable(
            "other_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: control: the same with the next head of the layer in the second condition",
            required=False,
        ),
        Variable(
            "elsewhere_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: similarity with the weight on the first token counted as no attention",
            required=False,
        ),
        Variable(
            "dropped_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: share of the first condition's active edges that the second does not have",
            required=False,
        ),
        Variable(
            "gained_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: share of the second condition's active edges that the first does not have",
            required=False,
        ),
        Variable(
            "kl_of_prompt",
            (EXAMPLE,),
            "over all heads, in one prompt: divergence of the next-token distributions of the two conditions",
            required=False,
            unit="nats",
        ),
    ),
    examples="prompts",
    figure="figure:figure",
    figure_reads=("circuits",),
    figure_options={
        "heads": FigureOption(
            "Draw the maps of these heads, in this order.",
            "L3H1,L5H2",
            without=("top", "by", "head", "numbers", "statistics"),
        ),
        "top": FigureOption(
            "Draw the maps of this many heads: those with the largest value of --by.",
            "12",
            without=("reference_heads", "head", "numbers", "statistics"),
        ),
        "by": FigureOption(
            "The value by which --top selects heads: change (heads whose maps differ most between the two models), a statistic "
            "such as peak, or the change of a statistic, such as peak_change; or circuits.TASK: the heads of that task's "
            "circuit in each model.",
            "peak_change",
            without=("reference_heads", "head", "numbers", "statistics"),
        ),
        "average": FigureOption(
            "Draw the mean map over all prompts instead of the map of one prompt.",
            without=("head", "numbers", "statistics"),
        ),
        "head": FigureOption(
            "Draw one head in large, with the tokens on both axes.",
            "L5H2",
            without=("reference_heads", "grid", "style", "numbers", "statistics"),
        ),
        "numbers": FigureOption(
            "Draw layer x head maps of the statistics and of their change instead of attention maps.",
            without=("reference_heads", "grid", "style"),
        ),
        "statistics": FigureOption(
            "With --numbers, which it implies: these statistics, comma-separated, in this order.",
            "peak,open",
            without=("reference_heads", "grid", "style"),
        ),
        "reference_heads": FigureOption("Draw these heads of the second model, in this order.", "L5H2,L7H0"),
        "grid": FigureOption("Rows x columns of tiles.", "8x16"),
        "style": style_option(
            "the heads of a circuit in each model (all heads where there are no circuits), each with its name"
        ),
    },
    variants=(
        FigureVariant("grid", "Maps of one prompt"),
        FigureVariant("average", "Average over prompts", {"average": True}),
        FigureVariant("numbers", "In numbers", {"numbers": True}),
        FigureVariant("changed", "Changed most", {"top": 24, "by": "change"}),
    ),
    words="words:describe",
    renames={1: Renames({"subject": CONDITION}, {CONDITION: {"against": "reference"}}, {"against": "reference"})},
    head_columns=(
        HeadColumn(
            "value",
            low="low",
            high="high",
            baseline="uniform",
            baseline_name="a uniform head",
            only={CONDITION: "model"},
        ),
    ),
    default_columns=("patterns.similarity",),
)

SPEC = StudySpec(
    name="patterns",
    package=__package__,
    version=2,
    options=PatternsOptions,
    produces=(PATTERNS,),
    inputs=("passages", "reference"),
    cost=_cost,
)
