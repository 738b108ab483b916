"""The spec of the study `samples`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, STRATEGY
from headwise.core.errors import StudyError
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, DECODE_PASSES, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import DatasetSpec, FigureVariant, Method, StudyOptions, StudySpec, Variable, option

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class SamplingOptions(StudyOptions):
    """Options of the study `samples`: what does the model answer when it is asked many times?

    Examples:
        >>> SamplingOptions(samples=10, questions=50, temperature=0.7)
        SamplingOptions(samples=10, questions=50, temperature=0.7, layer=None, site=None, folds=5, shard=8, seed=0)
        >>> SamplingOptions(temperature=0)
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: at temperature 0 all samples are equal; give more than 0
    """

    study = "samples"
    samples: int = option(10, "number of samples per question; 30 as published", minimum=2)
    questions: int = option(500, "number of questions, of those answered, balanced over topics", minimum=1)
    temperature: float = option(1.0, "sampling temperature, above 0")
    layer: int | None = option(None, "layer of the probe; None: where the probing map is best at the exact answer")
    site: str | None = option(None, "hook point of the probe; None: the first of the probing map")
    folds: int = option(5, "number of cross-validation folds", minimum=2)
    shard: int = option(8, "number of examples between saves; a killed build loses at most these", minimum=1)
    seed: int = option(0, "random seed of the samples")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise StudyError(f"at temperature {self.temperature} all samples are equal; give more than 0")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    defaults = SamplingOptions()
    questions = min(defaults.questions, inputs.questions)
    count = questions * defaults.samples
    texts = [2 * ANSWER_TOKENS] * count + [2 * PROMPT_TOKENS] * questions  # generated, then read again
    return StudyCost(
        count, sum(texts), forward_flops(card, texts), min(64 * PROMPT_TOKENS, sum(texts)), 100 * count, slowdown=2.25,
        unit="answers", passes_per_batch=DECODE_PASSES,
    )  # fmt: skip


SAMPLES = DatasetSpec(
    name="samples",
    question="If a question is sampled many times, which answer is best?",
    method=Method(
        "Each question is answered many times by sampling. The number of correct answers, and how far the "
        "wrong ones agree, define types of error; strategies choose one of the samples, among them a "
        "probe of the model's own activations.",
        "Orgad et al., LLMs Know More Than They Show",
        "https://arxiv.org/abs/2410.02707",
    ),
    variables=(
        Variable("answer", (EXAMPLE, DRAW), "sampled answer", dtype=TEXT),
        Variable("label", (EXAMPLE, DRAW), "correct, wrong or refused", dtype=TEXT),
        Variable("exact", (EXAMPLE, DRAW), "exact answer in the sample", dtype=TEXT),
        Variable("group", (EXAMPLE, DRAW), "number that equal answers to a question share", dtype="int64"),
        Variable("answer_tokens", (EXAMPLE, DRAW), "length of the sample", dtype="int64", unit="tokens"),
        Variable(
            "logprob_mean", (EXAMPLE, DRAW), "mean log-probability of the sample's tokens", dtype="float32", unit="nats"
        ),
        Variable(
            "score",
            (EXAMPLE, DRAW),
            "probability of wrong, from a probe that saw no answer to this question",
            dtype="float32",
        ),
        Variable("question", (EXAMPLE,), "question asked", dtype=TEXT),
        Variable("topic", (EXAMPLE,), "topic of the question", dtype=TEXT),
        Variable("fold_of", (EXAMPLE,), "fold of the question", dtype="int64"),
        Variable("greedy_correct", (EXAMPLE,), "whether the greedy answer is correct", dtype="bool"),
        Variable("correct", (EXAMPLE,), "number of correct samples", dtype="int64", unit="samples"),
        Variable(
            "largest_wrong",
            (EXAMPLE,),
            "number of samples that share the most frequent wrong answer",
            dtype="int64",
            unit="samples",
        ),
        Variable("wrong_answers", (EXAMPLE,), "number of different wrong answers", dtype="int64"),
        Variable("refused", (EXAMPLE,), "number of samples that refuse", dtype="int64", unit="samples"),
        Variable("is_type", (EXAMPLE, ERROR_TYPE), "whether the question is of this type of error", dtype="bool"),
        Variable("picked", (STRATEGY, EXAMPLE), "share of the strategy's choices that are correct", dtype="float32"),
        Variable(
            "accuracy",
            (STRATEGY,),
            "share of questions where the chosen sample is correct",
            dtype="float32",
            interval=True,
        ),
        Variable("gain", (STRATEGY,), "accuracy minus that of the greedy answer", dtype="float32", interval=True),
        Variable(
            "type_accuracy",
            (ERROR_TYPE, STRATEGY),
            "share of questions where the chosen sample is correct, on questions of this type",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "type_gain",
            (ERROR_TYPE, STRATEGY),
            "accuracy minus that of the greedy answer, on questions of this type",
            dtype="float32",
            interval=True,
        ),
        Variable(
            "type_auroc",
            (ERROR_TYPE,),
            "AUROC of a probe for this type of error; NaN where too few questions are of it",
            dtype="float32",
        ),
        Variable("type_low", (ERROR_TYPE,), "lower end of the 95 % interval of type_auroc", dtype="float32"),
        Variable("type_high", (ERROR_TYPE,), "upper end of the 95 % interval of type_auroc", dtype="float32"),
        Variable(
            "type_null_high",
            (ERROR_TYPE,),
            "95th percentile of the AUROC of such probes with permuted labels",
            dtype="float32",
        ),
        Variable("probe_auroc", (), "AUROC, over samples, of the probe that selects", dtype="float32", interval=True),
        Variable(
            "within_auroc",
            (),
            "AUROC of the probe that selects, over pairs of samples of the same question",
            dtype="float32",
            interval=True,
            required=False,
        ),
        Variable(
            "fit_questions",
            (),
            "questions whose answers the probe was fitted on",
            dtype="int64",
            unit="questions",
            required=False,
        ),
        Variable(
            "fit_answers",
            (),
            "greedy answers and samples the probe was fitted on",
            dtype="int64",
            unit="answers",
            required=False,
        ),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("strategy", (STRATEGY,), dtype=TEXT, coordinate=True),
        Variable("error_type", (ERROR_TYPE,), dtype=TEXT, coordinate=True),
        Variable("type_name", (ERROR_TYPE,), "name of the type of error", dtype=TEXT, coordinate=True),
    ),
    attrs=("record", "title", "site", "layer"),
    examples="questions",
    figure="figure:figure",
    variants=(FigureVariant("all", "Strategies"),),
    words="words:describe",
    on_own_answers=True,
    readable_since=1,
)

SPEC = StudySpec(
    name="samples",
    package=__package__,
    version=2,
    options=SamplingOptions,
    produces=(SAMPLES,),
    inputs=("questions", "responses"),
    depends_on=("answers", "probing"),
    opt_in=True,
    cost=_cost,
)
