"""The spec of the study `uncertainty`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import COST_CLASS, COVERAGE, DETECTOR, DRAW, EXAMPLE, FOLD
from headwise.core.errors import StudyError
from headwise.core.options import batch_tokens_option, shard_option
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, DECODE_PASSES, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import (
    Claim,
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

COVERAGES = tuple(round(0.05 * step, 2) for step in range(1, 21))  # of the risk-coverage curve


@dataclass(frozen=True)
class UncertaintyOptions(StudyOptions):
    """Options of the study `uncertainty`: which published score finds wrong answers best?

    Examples:
        >>> UncertaintyOptions(samples=10).temperature
        1.0
        >>> UncertaintyOptions(samples=1)
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: one sample cannot differ from itself; give uncertainty.samples=0 for no scores that \
need samples, or at least 2
    """

    study = "uncertainty"
    samples: int = option(5, "sampled answers per question; 0: without the scores that need samples", minimum=0)
    temperature: float = option(1.0, "sampling temperature, above 0")
    layer: int | None = option(None, "layer of EigenScore and of LLM-Check; None: the middle one")
    entailment: str | None = option(
        None,
        "folder of an entailment model (a sequence classifier) that decides whether two answers say the same; None: rules",
    )
    folds: int = option(5, "folds of the cross-validation", minimum=2)
    batch_tokens: int | None = batch_tokens_option(4_096)  # tokens per batch, padding included; None: by the device
    shard: int | None = shard_option(16)  # examples between saves; None: by the device
    seed: int = option(0, "random seed of the samples and of the folds")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples == 1:
            raise StudyError(
                "one sample cannot differ from itself; give uncertainty.samples=0 for no scores that need samples, or at "
                "least 2"
            )
        if not self.temperature > 0:
            raise StudyError(f"at temperature {self.temperature} all samples are equal; give more than 0")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    draws, questions = UncertaintyOptions().samples, inputs.questions
    texts = [PROMPT_TOKENS + ANSWER_TOKENS] * (4 * questions)  # answered again to be timed, read, judged true and false
    texts += [2 * ANSWER_TOKENS] * (draws * questions)  # sampled, then read
    eigenvalues = 50
    return StudyCost(
        questions, sum(texts), forward_flops(card, texts), min(64 * PROMPT_TOKENS, sum(texts)), 60 * questions,
        fitting=20.0 * (inputs.questions / 500) ** 1.1 * card.layers * card.heads / 270, slowdown=2.25, unit="questions",
        passes_per_batch=DECODE_PASSES, shard=16,
        stored_per_example=card.layers * (card.heads * (3 * eigenvalues + 20) + 2 * card.hidden_size),
    )  # fmt: skip


def _row(name: str, long_name: str, *, interval: bool = False, required: bool = True) -> Variable:
    return Variable(name, (DETECTOR,), long_name, interval=interval, required=required)


def _gain(name: str, long_name: str, required: bool = True) -> tuple[Variable, ...]:
    """A paired difference of two AUROCs, its p and its q."""
    return (
        _row(name, long_name, interval=True, required=required),
        _row(f"{name}_p", f"p-value (two-sided paired DeLong test) of: {long_name}", required=required),
        _row(f"{name}_q", f"q-value (Benjamini-Hochberg over the scores) of: {long_name}", required=required),
    )


UNCERTAINTY = DatasetSpec(
    name="uncertainty",
    question="Which score of an answer finds wrong answers best?",
    method=Method(
        "Every question is shown with the model's answer, answered several more times by sampling, and the model is asked "
        "whether its answer is true. From these readings each published score is computed by its own definition "
        "(headwise.scores). Scores that are not fitted are taken as they are, in the direction that their paper gives; "
        "fitted ones are cross-validated, with all choices made inside the training folds. All are compared on the same "
        "answers and folds with the smallest log-probability of a token and with the best prediction from the question "
        "alone (paired DeLong tests, Benjamini-Hochberg over the scores).",
        "Vashurin et al., Benchmarking Uncertainty Quantification Methods for Large Language Models with LM-Polygraph",
        "https://arxiv.org/abs/2406.15627",
    ),
    variables=(
        _row("auroc", "AUROC of wrong against correct answers, mean over folds", interval=True),
        _row("auroc_within", "AUROC over pairs of answers to similar questions", interval=True),
        *_gain("gain", "AUROC minus that of the strongest row of the question alone, paired"),
        *_gain("gain_logprob", "AUROC minus that of the smallest log-probability, paired"),
        *_gain("added", "AUROC that the score adds to the question, stacked, paired"),
        _row("detectable", "smallest gain over the smallest log-probability that would be found with 80 % power"),
        _row("auprc", "area under the precision-recall curve (average precision) of wrong answers", interval=True),
        _row("prr", "prediction-rejection ratio: 1 is the best possible order of the answers, 0 a random one", interval=True),
        _row("aurc", "area under the risk-coverage curve: mean share of wrong answers over all coverages", interval=True),
        Variable(
            "risk", (DETECTOR, COVERAGE), "share of wrong answers among those given, the ones with the lowest scores",
            interval=True,
        ),
        _row("ece", "expected calibration error of the out-of-fold probabilities", interval=True),
        _row("ece_null", "expected calibration error that perfect probabilities show with so few answers"),
        _row("brier", "Brier score of the out-of-fold probabilities", interval=True),
        Variable("fold_auroc", (DETECTOR, FOLD), "AUROC on each fold"),
        Variable("score", (DETECTOR, EXAMPLE), "score of the answer, larger: more likely wrong; out of fold where fitted"),
        Variable("probability", (DETECTOR, EXAMPLE), "out-of-fold probability that the answer is wrong (Platt scaling)"),
        Variable("wrong", (EXAMPLE,), "whether the answer is wrong", dtype="bool", coordinate=True),
        Variable("fold_of", (EXAMPLE,), "fold of the answer", coordinate=True),
        Variable("stratum", (EXAMPLE,), "stratum of similar questions", dtype="int64"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", unit="tokens"),
        Variable("sample", (EXAMPLE, DRAW), "sampled answer", dtype=TEXT, required=False),
        Variable("group", (EXAMPLE, DRAW), "number that samples which say the same share", required=False),
        Variable("seconds", (COST_CLASS,), "seconds per answer that were measured while this study ran", unit="s"),
        Variable("example", (EXAMPLE,), "name of the question, as in `answers`", dtype=TEXT, coordinate=True),
        Variable("detector", (DETECTOR,), "name of the score", dtype=TEXT, coordinate=True),
        Variable(
            "kind", (DETECTOR,),
            "score: not fitted; supervised or combined: fitted on labels; probe: fitted without labels; "
            "question: nothing of the model", dtype=TEXT, coordinate=True,
        ),
        Variable("cost", (DETECTOR,), "what the score needs, one of cost_class", dtype=TEXT, coordinate=True),
        Variable("paper", (DETECTOR,), "where the score was published", dtype=TEXT, coordinate=True),
        Variable("link", (DETECTOR,), "address of the paper", dtype=TEXT, coordinate=True),
        Variable("coverage", (COVERAGE,), coordinate=True),
        Variable("cost_class", (COST_CLASS,), dtype=TEXT, coordinate=True),
    ),
    attrs=("record", "title", "reference", "strata"),
    examples="answers",
    figure="figure:figure",
    figure_options={
        "curves": FigureOption("Risk-coverage curves and the cost of each score, instead of the table of AUROCs."),
    },
    variants=(
        FigureVariant("auroc", "AUROC of every score"),
        FigureVariant("curves", "Risk and cost", {"curves": True}),
    ),
    words="words:describe",
    readable_since=1,  # CCS is then missing
    claims=(
        Claim(
            "semantic entropy of samples tells more about errors than the smallest log-probability",
            "gain_logprob", "AUROC", {DETECTOR: "Semantic entropy"},
        ),
    ),
    on_own_answers=True,
)  # fmt: skip

SPEC = StudySpec(
    name="uncertainty",
    package=__package__,
    version=2,
    options=UncertaintyOptions,
    produces=(UNCERTAINTY,),
    inputs=("questions",),
    depends_on=("answers",),
    opt_in=True,
    cost=_cost,
)
