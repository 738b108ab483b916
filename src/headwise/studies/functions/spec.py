"""Study `functions`: which heads carry which cognitive function?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, PREDICTED, RANK, SEED, WIDTH
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


QUESTION_TOKENS, STEP_TOKENS = 170, 24  # of a question with its steps; of a step's answer, generated and read again
KEY_TOKEN_RULES = {
    "content": "the tokens of content words",
    "all": "all tokens",
    "first": "the first token",
    "last": "the last token with a letter or a digit",
}


@dataclass(frozen=True)
class FunctionsOptions(StudyOptions):
    """Options of the study `functions`: which heads carry which cognitive function?

    Examples:
        All packaged steps, read at every token of the answer.

        >>> FunctionsOptions(steps=None, key_tokens="all").seeds
        5
    """

    study = "functions"
    steps: int | None = option(
        360, "approximate number of steps, in whole questions and balanced over functions; None: all", quick=200
    )
    max_new_tokens: int = option(8, "maximum number of tokens in an answer", minimum=1)
    key_tokens: str = option(
        "content",
        "tokens of an answer at which heads are read: content words, all, first or last",
        choices=tuple(KEY_TOKEN_RULES),
    )
    layer_mean: bool = option(
        True,
        "whether the joint probe also sees, next to each head, the mean over the heads of its layer, as published; without, "
        "a head that knows nothing cannot say what its neighbours know",
    )
    seeds: int = option(5, "number of joint probes, each with its own initialisation", minimum=2, quick=2)
    shuffles: int = option(
        20,
        "number of joint probes fitted on permuted labels, for the null; no q is below 1 / (1 + shuffles)",
        minimum=20,
    )
    max_epochs: int = option(
        20,
        "maximum number of training epochs; fewer are used where the loss on steps held out of training stops falling",
        minimum=1,
        quick=10,
    )
    batch: int = option(32, "questions per batch", minimum=1)
    shard: int = option(32, "number of examples between saves; a killed build loses at most these", minimum=1)
    seed: int = option(0, "random seed of the sample of steps and of the probes, which use seed, seed + 1, ...")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    options, heads = FunctionsOptions(), card.layers * card.heads
    texts = [QUESTION_TOKENS] * inputs.step_questions + [STEP_TOKENS] * inputs.steps
    return StudyCost(
        inputs.step_questions, sum(texts), forward_flops(card, texts), min(32 * QUESTION_TOKENS, sum(texts)),
        heads * inputs.steps * card.per_layer[0].value_dim, fitting=25.0 * (heads / 270) * (inputs.steps / 360),
        slowdown=1.0, unit=f"questions of {inputs.steps:,} steps", passes_per_batch=options.max_new_tokens + 1,
        shard=options.shard,
    )  # fmt: skip


def _head_map(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (FUNCTION, LAYER, HEAD), long_name, dtype="float32", **more)


def _per_function(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (FUNCTION,), long_name, dtype="float32", **more)


def _per_step(name: str, long_name: str) -> Variable:
    return Variable(name, (EXAMPLE,), long_name, dtype=TEXT)


def _overall(name: str, long_name: str, **more: Any) -> Variable:
    return Variable(name, (), long_name, dtype="float32", **more)


FUNCTIONS = DatasetSpec(
    name="functions",
    question="Which heads carry which cognitive function?",
    method=Method(
        "Questions are split into steps, each labelled with the cognitive function that it requires. One probe over the "
        "outputs of all heads predicts the function of a step; a head's importance is gradient times activation of that "
        "function's logit, on held-out steps, averaged over seeds. A function that the probe does not distinguish from the "
        "others has no map. Probes on single heads are an independent check.",
        "Ma et al., Cognitive Mirrors",
        "https://arxiv.org/abs/2512.10978",
    ),
    variables=(
        _head_map(
            "importance",
            "importance of the head for the function (gradient x activation, signed), mean over seeds; NaN where refused",
            interval=True,
        ),
        _head_map("importance_sd", "standard deviation of the importance over seeds"),
        _head_map("magnitude", "absolute value of the importance: what is drawn and ranked"),
        _head_map(
            "train_importance",
            "importance of the head for the function on training steps, mean over seeds: the ranking for masking",
            required=False,
        ),
        _head_map("null_high", "95th percentile of this head's magnitude under permuted labels"),
        _head_map("p", "p-value of the importance against permuted labels, two-sided"),
        _head_map(
            "q",
            "q-value of the importance (Benjamini-Hochberg over the heads of a function, and nowhere below map_p)",
        ),
        _head_map(
            "own_q",
            "q-value, against permuted labels, of mattering more to this function than to each of the others (the largest)",
            required=False,
        ),
        _head_map(
            "single_head_auroc", "AUROC of this function against the others, from this head alone, cross-validated"
        ),
        _head_map("single_head_p", "p-value of single_head_auroc against permuted labels"),
        _head_map("single_head_q", "q-value of single_head_auroc (Benjamini-Hochberg)"),
        Variable("beyond_null", (FUNCTION, LAYER, HEAD), "whether q of the importance is below 0.05", dtype="bool"),
        Variable(
            "chosen",
            (FUNCTION, LAYER, HEAD),
            "whether the head is among the function's heads: those up to the elbow",
            dtype="bool",
        ),
        _per_function("accuracy", "share of the function's steps that the model answers correctly", interval=True),
        _per_function(
            "recall",
            "share of the function's held-out steps that the probe predicts correctly, mean over seeds",
            interval=True,
        ),
        _per_function("recall_chance", "expected recall of guessing by the training shares"),
        _per_function("auroc", "AUROC of this function against the others on held-out steps", interval=True),
        _per_function(
            "map_p",
            "p-value of the function's map as a whole: its rank among the maps of permuted labels",
            required=False,
        ),
        Variable(
            "function_by_layer",
            (FUNCTION, LAYER),
            "AUROC of the function against as many other steps, from one head alone, mean over the layer's heads",
            dtype="float32",
            required=False,
        ),
        Variable(
            "wording_by_layer",
            (FUNCTION, LAYER),
            "AUROC, within the function, of steps that begin with its most frequent first word against its other steps, "
            "from one head alone, mean over the layer's heads: a label that is no function",
            dtype="float32",
            required=False,
        ),
        Variable(
            "first_word", (FUNCTION,), "the word that most steps of the function begin with", dtype=TEXT, required=False
        ),
        Variable(
            "with_first_word",
            (FUNCTION,),
            "steps that begin with that word",
            dtype="int64",
            unit="steps",
            required=False,
        ),
        Variable(
            "without_first_word", (FUNCTION,), "steps that begin otherwise", dtype="int64", unit="steps", required=False
        ),
        Variable(
            "output_norm",
            (LAYER, HEAD),
            "norm of what the head writes into the residual stream at the key tokens, mean over training steps",
            dtype="float32",
            required=False,
        ),
        _per_function("agreement", "rank correlation of the magnitude maps of two seeds, mean over pairs"),
        _per_function(
            "rank_correlation", "Spearman correlation, over heads, of magnitude with single_head_auroc", interval=True
        ),
        _per_function(
            "confound_recall", "recall of a probe that sees only the answer's length and the kind of its first token"
        ),
        _per_function(
            "confound_auroc",
            "AUROC of a probe that sees only the answer's length and the kind of its first token",
            interval=True,
        ),
        _overall("probe_accuracy", "accuracy of the joint probe on held-out steps, mean over seeds", interval=True),
        _overall("majority", "accuracy on held-out steps of always predicting the most frequent training function"),
        _overall("permuted", "mean accuracy on held-out steps of probes fitted on permuted labels"),
        _overall("permuted_high", "highest accuracy on held-out steps of probes fitted on permuted labels"),
        _overall(
            "confound_accuracy",
            "accuracy of a probe that sees only the answer's length and the kind of its first token",
            interval=True,
        ),
        Variable(
            "single_head_accuracy",
            (LAYER, HEAD),
            "accuracy of predicting the function from this head alone, cross-validated",
            dtype="float32",
            interval=True,
        ),
        _per_step("function_of", "function of the step"),
        _per_step("split_of", "train or held-out"),
        _per_step("chain", "question that the step belongs to"),
        _per_step("question", "the whole question"),
        _per_step("subquestion", "subquestion of the step"),
        _per_step("answer", "answer of the model"),
        _per_step("gold", "correct answer"),
        _per_step("rule", "rule that judged the answer"),
        _per_step("key_text", "the answer's key tokens, joined by |"),
        Variable("number", (EXAMPLE,), "index of the step in its question, from 1", dtype="int64"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", dtype="int64", unit="tokens"),
        Variable("key_tokens", (EXAMPLE,), "number of key tokens", dtype="int64", unit="tokens"),
        Variable("right", (EXAMPLE,), "whether the answer is correct", dtype="bool"),
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
            "share of the function's held-out steps that the probe predicts as this function",
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
            "whether the function has no map because the probe does not distinguish it from the others",
            dtype="bool",
        ),
        Variable("reason", (FUNCTION,), "why the map is refused; empty where it is not", dtype=TEXT),
        Variable(
            "direction",
            (FUNCTION, LAYER, HEAD, WIDTH),
            "direction from wrong to correct training answers in the head's output, one standard deviation long",
            dtype="float32",
        ),
        Variable(
            "train_right", (FUNCTION,), "correct training steps behind the direction", dtype="int64", unit="steps"
        ),
        Variable("train_wrong", (FUNCTION,), "wrong training steps behind the direction", dtype="int64", unit="steps"),
        Variable(
            "best",
            (LAYER, HEAD),
            "function that the head matters most for, among those with q < 0.05; empty if none",
            dtype=TEXT,
        ),
        Variable("function", (FUNCTION,), dtype=TEXT, coordinate=True),
        Variable(
            "order", (FUNCTION,), "low-order or high-order function; empty where unknown", dtype=TEXT, coordinate=True
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
            choices={
                "maps": "importance of every head",
                "sorted": "the same, largest first",
                "layers": "heads per layer",
                "similarity": "correlation of the maps",
                "depth": "functions and wording by layer",
                "probe": "quality of the probe",
                "confusion": "its confusion matrix",
            },
            example="sorted",
        ),
        "value": FigureOption(
            choices={
                "magnitude": "absolute importance",
                "importance": "signed",
                "single_head_auroc": "AUROC of a probe on the head alone",
            },
            example="single_head_auroc",
            needs={"kind": ("maps",)},
        ),
        "functions": FigureOption(
            "Functions to show, comma-separated, in this order; all by default.", "Retrieval,Inference"
        ),
        "cap": FigureOption("Upper end of the colour scale.", "0.004", needs={"kind": ("maps",)}),
        "style": style_option(
            "two rows of four maps with one colour bar, without what is written over them", needs={"kind": ("maps",)}
        ),
    },
    variants=(
        FigureVariant("maps", "Importance"),
        FigureVariant("signed", "Signed", {"value": "importance"}),
        FigureVariant("single-heads", "Single heads", {"value": "single_head_auroc"}),
        FigureVariant("sorted", "Sorted", {"kind": "sorted"}),
        FigureVariant("layers", "By layer", {"kind": "layers"}),
        FigureVariant("similarity", "Similarity", {"kind": "similarity"}),
        FigureVariant("depth", "Function and wording", {"kind": "depth"}),
        FigureVariant("probe", "Probe", {"kind": "probe"}),
        FigureVariant("confusion", "Confusion", {"kind": "confusion"}),
    ),
    words="words:describe",
    head_sets="heads:head_sets",
    head_facts=True,
    head_columns=(
        HeadColumn(
            "importance",
            p="p",
            q="q",
            level=0.0,
            baseline_name="no importance",
            definition="gradient x activation in the joint probe, signed",
        ),
    ),
    default_columns=("functions.best",),
    on_own_answers=True,
    renames={
        1: Renames(
            variables={
                "alone": "single_head_auroc",
                "alone_p": "single_head_p",
                "alone_q": "single_head_q",
                "alone_accuracy": "single_head_accuracy",
                "alone_accuracy_low": "single_head_accuracy_low",
                "alone_accuracy_high": "single_head_accuracy_high",
            },
            parameters={"most_epochs": "max_epochs"},
        )
    },
    readable_since=1,  # before 3, p and q are of an easier null; before 4, there is no own_q
)

SPEC = StudySpec(
    name="functions",
    package=__package__,
    version=4,
    options=FunctionsOptions,
    produces=(FUNCTIONS,),
    inputs=("steps",),
    cost=_cost,
)
