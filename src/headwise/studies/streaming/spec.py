"""The spec of the study `streaming`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER, PREFIX, SHARE, STATISTIC
from headwise.core.options import batch_tokens_option, shard_option
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import (
    Claim,
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

STATISTIC_LABELS = {
    "self_log": "Own token (log weight)",
    "entropy": "Entropy",
    "sink": "First token (sink)",
    "previous": "Previous token",
    "lookback": "Lookback",
}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of an answer's tokens, rounded up; 0.0: the first token alone


@dataclass(frozen=True)
class StreamingOptions(StudyOptions):
    """Options of the study `streaming`: how early in an answer can one tell that it is wrong?

    Examples:
        >>> StreamingOptions(folds=10).calibration
        3
    """

    study = "streaming"
    folds: int = option(5, "folds of the cross-validation", minimum=2)
    calibration: int = option(
        3, "one answer in this many is held out of the fitted detector, for thresholds and the reliability", minimum=2
    )
    batch_tokens: int | None = batch_tokens_option(4_096)  # tokens per batch, padding included; None: by the device
    shard: int | None = shard_option(64)  # examples between saves; None: by the device
    seed: int = option(0, "random seed of the folds and of the answers that are held out")


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    texts = [PROMPT_TOKENS + ANSWER_TOKENS] * inputs.questions
    numbers = 5 * (len(SHARES) + 6) * card.layers * card.heads  # statistics at shares, and after 1, 2, 4 ... tokens
    return StudyCost(
        len(texts), sum(texts), forward_flops(card, texts), min(4096, sum(texts)), numbers * len(texts),
        fitting=33.0 * (inputs.questions / 500) ** 1.1 * card.layers * card.heads / 270, slowdown=1.2, unit="answers",
        stored_per_example=numbers,
    )  # fmt: skip


def _curve(name: str, long_name: str, *, interval: bool = False) -> Variable:
    return Variable(name, (DETECTOR, SHARE), long_name, interval=interval)


def _per_head(name: str, long_name: str, *, interval: bool = False) -> Variable:
    return Variable(name, (PREFIX, STATISTIC, LAYER, HEAD), long_name, dtype="float32", interval=interval)


STREAMING = DatasetSpec(
    name="streaming",
    question="How early in an answer can one tell that it is wrong?",
    method=Method(
        "Each token of an answer is emitted by one row of every head's attention map, and a score of the answer so far "
        "uses these rows, or the log-probabilities of the tokens. AUROCs are cross-validated after shares of the answer; "
        "every score is compared with the smallest log-probability and with the best prediction from the question alone. "
        "One detector is fitted on beginnings of answers of all these lengths. A part of the answers is held out of it, and of "
        "the choice between it and the smallest log-probability: thresholds for alarms (split conformal) and the "
        "reliability of the probabilities come from these alone.",
        "Vazhentsev et al., Uncertainty-Aware Attention Heads (RAUQ, one of the scores)",
        "https://arxiv.org/abs/2505.20045",
    ),
    variables=(
        _curve("auroc", "AUROC of wrong against correct answers after a share of the answer, mean over folds", interval=True),
        _curve("auroc_within", "the same over pairs of answers to similar questions", interval=True),
        _curve("gain", "AUROC minus that of the smallest log-probability at the same share, paired", interval=True),
        _curve("gain_p", "p-value of that gain (two-sided paired DeLong test)"),
        _curve("gain_question", "AUROC minus that of the best question-only row, paired", interval=True),
        _curve("gain_question_p", "p-value of that gain (two-sided paired DeLong test)"),
        Variable("score", (DETECTOR, SHARE, EXAMPLE), "out-of-fold score of the answer so far, larger: more likely wrong"),
        Variable(
            "highest", (DETECTOR, EXAMPLE),
            "largest score while the answer is written (after 1, 2, 4 ... tokens and at its end), of the answers that are held "
            "out; NaN for all others",
        ),
        Variable("probability", (DETECTOR, EXAMPLE), "probability that the whole answer is wrong; NaN as in `highest`"),
        Variable(
            "choice_gain", (),
            "AUROC of the fitted score minus that of the smallest log-probability, on the answers that are not held out: "
            "chooses the default score",
            interval=True,
        ),
        Variable("slope", (DETECTOR,), "of the calibration: log-odds of wrong = slope * score + offset"),
        Variable("offset", (DETECTOR,), "of the calibration"),
        Variable("brier", (DETECTOR,), "Brier score of the probabilities", interval=True),
        Variable("ece", (DETECTOR,), "expected calibration error of the probabilities", interval=True),
        Variable("ece_null", (DETECTOR,), "expected calibration error that perfect probabilities show with so few answers"),
        _per_head("effect", "AUROC of the statistic of one head: above 0.5 it is larger in wrong answers", interval=True),
        _per_head("p", "p-value (two-sided Mann-Whitney U) of the statistic, wrong against correct answers"),
        _per_head("q", "q-value (Benjamini-Hochberg over the map) of the statistic"),
        _per_head("effect_within", "AUROC of the statistic of one head among answers to similar questions", interval=True),
        _per_head("p_within", "p-value (van Elteren) within strata of similar questions"),
        _per_head("q_within", "q-value within strata of similar questions"),
        Variable("wrong", (EXAMPLE,), "whether the answer is wrong", dtype="bool", coordinate=True),
        Variable("fold_of", (EXAMPLE,), "fold of the answer", coordinate=True),
        Variable("held_out", (EXAMPLE,), "whether the answer is held out of the fitted detector", dtype="bool"),
        Variable("answer_tokens", (EXAMPLE,), "length of the answer", unit="tokens"),
        Variable("example", (EXAMPLE,), "name of the question, as in `answers`", dtype=TEXT, coordinate=True),
        Variable("detector", (DETECTOR,), dtype=TEXT, coordinate=True),
        Variable(
            "kind", (DETECTOR,), "fitted: on the heads; score: not fitted; question: nothing of the model", dtype=TEXT,
            coordinate=True,
        ),
        Variable("share", (SHARE,), "share of the answer's tokens that is written", coordinate=True),
        Variable("prefix", (PREFIX,), "what was written when heads were tested", dtype=TEXT, coordinate=True),
        Variable("statistic", (STATISTIC,), dtype=TEXT, coordinate=True),
        Variable("label", (STATISTIC,), "name of the statistic for readers", dtype=TEXT, coordinate=True),
    ),
    attrs=("record", "title", "default", "strata"),
    examples="answers",
    figure="figure:figure",
    figure_options={
        "heads": FigureOption("Maps of single heads instead of the curves: after the first token and at the end."),
        "within": FigureOption("Compare answers to similar questions only: within strata (topic x difficulty where known)."),
    },
    variants=(
        FigureVariant("share", "AUROC as the answer grows"),
        FigureVariant("within", "Similar questions", {"within": True}),
        FigureVariant("heads", "Single heads", {"heads": True}),
        FigureVariant("heads-within", "Single heads, similar questions", {"heads": True, "within": True}),
    ),
    words="words:describe",
    head_columns=(
        HeadColumn(
            "effect",
            p="p",
            q="q",
            within="effect_within",
            q_within="q_within",
            level=0.5,
            baseline_name="no difference",
            definition="AUROC of this statistic of the head alone",
        ),
    ),
    claims=tuple(
        Claim(sentence, variable, "AUROC", {DETECTOR: "Heads + log-probability", SHARE: 1.0})
        for variable, sentence in (
            ("gain", "heads add to what the log-probability tells while an answer is written"),
            ("gain_question", "heads and log-probability together tell more about errors than the question alone"),
        )
    ),
    on_own_answers=True,
)  # fmt: skip

SPEC = StudySpec(
    name="streaming",
    package=__package__,
    version=2,
    options=StreamingOptions,
    produces=(STREAMING,),
    depends_on=("answers",),
    shares_pass="answers",
    cost=_cost,
)
