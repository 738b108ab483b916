"""The spec of the study `functions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, PREDICTED, RANK, SEED, WIDTH
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


QUESTION_TOKENS, STEP_TOKENS = 170, 24  # of a question with its steps; of a step's answer, generated and read again


@dataclass(frozen=True)
class FunctionsOptions(StudyOptions):
    """What can be chosen about the study `functions`: which heads carry which cognitive function?

    Examples:
        All packaged steps, read at every token of the answer.

        >>> FunctionsOptions(steps=None, key_tokens="all").seeds
        5
    """

    study = "functions"
    steps: int | None = option(
        360, "about so many are asked, whole questions of them, evenly over functions; None: all"
    )
    max_new_tokens: int = option(8, "of an answer", minimum=1)
    key_tokens: str = option(
        "content",
        'or "all", "first", "last": which tokens of an answer heads are read at',
        choices=("content", "all", "first", "last"),
    )
    seeds: int = option(5, "probes", minimum=2)
    shuffles: int = option(2, "probes with shuffled labels", minimum=1)
    most_epochs: int = option(20, "of training; how many are made is chosen inside the training steps", minimum=1)
    batch: int = option(32, "questions at a time", minimum=1)
    shard: int = option(32, "questions between two commits", minimum=1)
    seed: int = option(0, "of the choice of steps, and the first of the probes'")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    options, heads = FunctionsOptions(), card.layers * card.heads
    texts = [QUESTION_TOKENS] * inputs.step_questions + [STEP_TOKENS] * inputs.steps
    return StudyCost(
        inputs.step_questions, sum(texts), forward_flops(card, texts), min(32 * QUESTION_TOKENS, sum(texts)),
        heads * inputs.steps * card.per_layer[0].value_dim, fitting=15.0 * (heads / 270) * (inputs.steps / 360),
        slowdown=1.0, unit=f"questions of {inputs.steps:,} steps", passes_per_batch=options.max_new_tokens + 1,
        shard=options.shard,
    )  # fmt: skip


FUNCTIONS = DatasetSpec(
    name="functions",
    question="Which heads carry which cognitive function?",
    method=Method(
        "Questions are split into steps, each labelled with the cognitive function it asks for. One probe "
        "over the outputs of all heads together names the function of a step; a head's importance is "
        "gradient times activation of that function's logit, on held-out steps, averaged over seeds. A "
        "function the probe cannot tell has no map. A simpler probe on each head alone is the second "
        "opinion.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
    variables=(
        Variable(
            "importance",
            (FUNCTION, LAYER, HEAD),
            "importance of the head for the function (gradient x activation, signed), mean over seeds; NaN "
            "where refused",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "importance_sd", (FUNCTION, LAYER, HEAD), "standard deviation of the importance over seeds", dtype="float32"
        ),
        Variable(
            "magnitude",
            (FUNCTION, LAYER, HEAD),
            "size of the importance, without its sign: what is drawn and ranked",
            dtype="float32",
        ),
        Variable(
            "null_high",
            (FUNCTION, LAYER, HEAD),
            "magnitude that 95 % of this head's maps with shuffled labels stay below",
            dtype="float32",
        ),
        Variable(
            "p",
            (FUNCTION, LAYER, HEAD),
            "p-value of the importance against shuffled labels, two-sided",
            dtype="float32",
        ),
        Variable(
            "q",
            (FUNCTION, LAYER, HEAD),
            "q-value of the importance (Benjamini-Hochberg over the heads of a function)",
            dtype="float32",
        ),
        Variable(
            "alone",
            (FUNCTION, LAYER, HEAD),
            "AUROC of this function against the others, from this head alone, cross-validated",
            dtype="float32",
        ),
        Variable("alone_p", (FUNCTION, LAYER, HEAD), "p-value of alone against shuffled labels", dtype="float32"),
        Variable("alone_q", (FUNCTION, LAYER, HEAD), "q-value of alone (Benjamini-Hochberg)", dtype="float32"),
        Variable("beyond_null", (FUNCTION, LAYER, HEAD), "whether q of the importance is below 0.05", dtype="bool"),
        Variable(
            "chosen",
            (FUNCTION, LAYER, HEAD),
            "whether the head is among the function's heads up to the elbow",
            dtype="bool",
        ),
        Variable(
            "accuracy",
            (FUNCTION,),
            "share of the function's steps that the model answers right",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "recall",
            (FUNCTION,),
            "share of the function's held-out steps that the probe names right, mean over seeds",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "recall_chance", (FUNCTION,), "recall that guessing by the training shares would get", dtype="float32"
        ),
        Variable(
            "auroc",
            (FUNCTION,),
            "AUROC of this function against the others on held-out steps",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "agreement",
            (FUNCTION,),
            "rank correlation of the seeds' maps of magnitude, mean over pairs",
            dtype="float32",
        ),
        Variable(
            "rank_correlation",
            (FUNCTION,),
            "Spearman correlation, over heads, of magnitude with alone",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "confound_recall",
            (FUNCTION,),
            "recall of a probe that sees only the answer's length and the kind of its first token",
            dtype="float32",
        ),
        Variable(
            "confound_auroc",
            (FUNCTION,),
            "AUROC of a probe that sees only the answer's length and the kind of its first token",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "probe_accuracy",
            (),
            "accuracy of the joint probe on held-out steps, mean over seeds",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "majority",
            (),
            "accuracy on held-out steps of always naming the function that is most frequent in training",
            dtype="float32",
        ),
        Variable(
            "permuted", (), "mean accuracy on held-out steps of probes trained on shuffled labels", dtype="float32"
        ),
        Variable(
            "permuted_high",
            (),
            "highest accuracy on held-out steps of probes trained on shuffled labels",
            dtype="float32",
        ),
        Variable(
            "confound_accuracy",
            (),
            "accuracy of a probe that sees only the answer's length and the kind of its first token",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "alone_accuracy",
            (LAYER, HEAD),
            "accuracy of telling all functions apart from this head alone, cross-validated",
            dtype="float32",
            interval=True,
        ),
        Variable("function_of", (EXAMPLE,), "function of the step", dtype=TEXT),
        Variable("split_of", (EXAMPLE,), "train or held-out", dtype=TEXT),
        Variable("chain", (EXAMPLE,), "question whose step it is", dtype=TEXT),
        Variable("question", (EXAMPLE,), "the whole question", dtype=TEXT),
        Variable("subquestion", (EXAMPLE,), "what the step asks", dtype=TEXT),
        Variable("answer", (EXAMPLE,), "what the model said", dtype=TEXT),
        Variable("gold", (EXAMPLE,), "right answer", dtype=TEXT),
        Variable("rule", (EXAMPLE,), "what decided right or wrong", dtype=TEXT),
        Variable("key_text", (EXAMPLE,), "the answer's key tokens, joined by |", dtype=TEXT),
        Variable("number", (EXAMPLE,), "place of the step in its chain", dtype="int64"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", dtype="int64", unit="tokens"),
        Variable("key_tokens", (EXAMPLE,), "number of key tokens", dtype="int64", unit="tokens"),
        Variable("right", (EXAMPLE,), "whether the answer is right", dtype="bool"),
        Variable(
            "importance_seeds",
            (SEED, FUNCTION, LAYER, HEAD),
            "importance of the head for the function, by seed",
            dtype="float32",
        ),
        Variable("seed_accuracy", (SEED,), "accuracy of each seed's probe on held-out steps", dtype="float32"),
        Variable(
            "confusion",
            (FUNCTION, PREDICTED),
            "share of the function's held-out steps that the probe names so",
            dtype="float32",
        ),
        Variable("sorted", (FUNCTION, RANK), "magnitude, largest first", dtype="float32"),
        Variable("ranked", (FUNCTION, RANK), "names of the heads, largest magnitude first", dtype=TEXT),
        Variable(
            "elbow",
            (FUNCTION,),
            "number of heads up to the elbow; 0 where the map is refused",
            dtype="int64",
            unit="heads",
        ),
        Variable(
            "refused",
            (FUNCTION,),
            "whether the probe does not tell this function from the others, so that there is no map",
            dtype="bool",
        ),
        Variable("reason", (FUNCTION,), "why the map is refused; empty where it stands", dtype=TEXT),
        Variable(
            "direction",
            (FUNCTION, LAYER, HEAD, WIDTH),
            "direction from wrong to right training answers in the head's output, one standard deviation long",
            dtype="float32",
        ),
        Variable(
            "train_right",
            (FUNCTION,),
            "right training steps that the direction was made from",
            dtype="int64",
            unit="steps",
        ),
        Variable(
            "train_wrong",
            (FUNCTION,),
            "wrong training steps that the direction was made from",
            dtype="int64",
            unit="steps",
        ),
        Variable(
            "best",
            (LAYER, HEAD),
            "function for which the head matters most, among those with q < 0.05; empty if none",
            dtype=TEXT,
        ),
        Variable("function", (FUNCTION,), dtype=TEXT, coordinate=True),
        Variable(
            "order",
            (FUNCTION,),
            "low-order or high-order function; empty where it is not known",
            dtype=TEXT,
            coordinate=True,
        ),
        Variable("train", (FUNCTION,), "training steps of the function", dtype="int64", unit="steps", coordinate=True),
        Variable(
            "held_out", (FUNCTION,), "held-out steps of the function", dtype="int64", unit="steps", coordinate=True
        ),
        Variable("predicted", (PREDICTED,), dtype=TEXT, coordinate=True),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("seed", (SEED,), dtype="int64", coordinate=True),
        Variable("rank", (RANK,), dtype="int64", coordinate=True),
    ),
    attrs=("record", "title", "key_rule", "shuffles", "epochs"),
    examples="steps",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            "maps: importance of every head; sorted: the same, largest first; layers: heads by layer; "
            "similarity: which maps are alike; probe: how well functions are told apart; confusion: what is "
            "taken for what.",
            "sorted",
        ),
        "value": FigureOption(
            "magnitude: absolute importance; importance: with its sign; alone: AUROC of a probe on the head alone.",
            "alone",
            needs={"kind": ("maps",)},
        ),
        "functions": FigureOption(
            "Which functions, comma-separated, in this order; all by default.", "Retrieval,Inference"
        ),
        "cap": FigureOption("Where the colour scale ends.", "0.004", needs={"kind": ("maps",)}),
    },
    variants=(
        FigureVariant("maps", "Importance"),
        FigureVariant("signed", "With sign", {"value": "importance"}),
        FigureVariant("alone", "Each head alone", {"value": "alone"}),
        FigureVariant("sorted", "Sorted", {"kind": "sorted"}),
        FigureVariant("layers", "By layer", {"kind": "layers"}),
        FigureVariant("similarity", "Alike", {"kind": "similarity"}),
        FigureVariant("probe", "The probe", {"kind": "probe"}),
        FigureVariant("confusion", "Its confusions", {"kind": "confusion"}),
    ),
    words="words:describe",
    head_columns=(
        HeadColumn(
            "importance",
            low="importance_low",
            high="importance_high",
            p="p",
            q="q",
            level=0.0,
            baseline_name="no part in it",
            definition="gradient x activation in the joint probe, signed",
        ),
    ),
    default_columns=("functions.best",),
    on_own_answers=True,
)

SPEC = StudySpec(
    name="functions",
    package=__package__,
    version=1,
    options=FunctionsOptions,
    produces=(FUNCTIONS,),
    inputs=("steps",),
    cost=_cost,
)
