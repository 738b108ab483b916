"""The spec of the study `transfer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import DETECTOR, EXAMPLE, TESTED_ON, TRAINED_ON
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
from headwise.studies.spec import DatasetSpec, FigureVariant, Method, StudyOptions, StudySpec, Variable, option

if TYPE_CHECKING:
    from headwise.model.card import ModelCard


@dataclass(frozen=True)
class TransferOptions(StudyOptions):
    """Options of the study `transfer`: does a detector of wrong answers carry over to another question set?

    Examples:
        >>> TransferOptions(sets=("triviaqa.jsonl", "nq_open.jsonl", "packaged"), limit=1000).sets
        ('triviaqa.jsonl', 'nq_open.jsonl', 'packaged')
    """

    study = "transfer"
    sets: tuple[str, ...] = option(
        (), "question sets, at least two: files, known names such as triviaqa, NAME=FOLDER, or packaged"
    )
    limit: int = option(500, "number of questions per set, evenly over its topics", minimum=1)
    k: int = option(10, "eigenvalues per head for the detectors", minimum=1)
    refits: int = option(
        10, "detectors refitted without a part of their training answers, for the intervals", minimum=2
    )
    batch_tokens: int = option(4096, "tokens per batch, padding included", minimum=1)
    shard: int = option(64, "questions per commit", minimum=1)
    seed: int = option(0, "random seed of the questions drawn and of the folds")


PLANNED_SETS = 3  # a plan does not know how many will be given


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    count = PLANNED_SETS * TransferOptions().limit
    texts = [2 * (PROMPT_TOKENS + ANSWER_TOKENS)] * count  # answered, then read
    numbers = card.layers * (card.heads * (2 * TransferOptions().k + 12) + card.hidden_size)
    return StudyCost(
        count, sum(texts), forward_flops(card, texts), min(4096, sum(texts)), 20 * count,
        fitting=0.04 * count * card.layers * card.heads / 270, slowdown=2.0, unit="questions", stored_per_example=numbers,
    )  # fmt: skip


TRANSFER = DatasetSpec(
    name="transfer",
    question="Do detectors of wrong answers carry over to other questions?",
    method=Method(
        "The model answers questions of several sets. On each set detectors of wrong answers are fitted on the features of "
        "all heads (logistic regression) and tested on the answers to every other set; on their own set they are "
        "cross-validated. Detectors that see only the words of the question, or lengths, are in the same table. "
        "Intervals cover the tested answers (DeLong) and, off the diagonal, the choice of training answers (jackknife).",
        "Binkowski et al., Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
        "https://arxiv.org/abs/2502.17598",
    ),
    variables=(
        Variable(
            "auroc",
            (DETECTOR, TRAINED_ON, TESTED_ON),
            "AUROC of wrong against correct answers of a set by a detector fitted on another, or cross-validated on the same",
            dtype="float32",
            interval=True,
        ),
        Variable("accuracy", (TESTED_ON,), "share of questions answered correctly", dtype="float32", interval=True),
        Variable("set_of", (EXAMPLE,), "question set of the answer", dtype=TEXT),
        Variable("question", (EXAMPLE,), "question asked", dtype=TEXT),
        Variable("answer", (EXAMPLE,), "model's answer", dtype=TEXT),
        Variable("gold", (EXAMPLE,), "first accepted answer", dtype=TEXT),
        Variable("label", (EXAMPLE,), "correct, wrong or refused", dtype=TEXT),
        Variable("example", (EXAMPLE,), dtype=TEXT, coordinate=True),
        Variable("detector", (DETECTOR,), dtype=TEXT, coordinate=True),
        Variable(
            "kind",
            (DETECTOR,),
            "what the detector sees: heads (or the hidden state), the question alone, or a score that is not fitted",
            dtype=TEXT,
            coordinate=True,
        ),
        Variable("trained_on", (TRAINED_ON,), dtype=TEXT, coordinate=True),
        Variable("tested_on", (TESTED_ON,), "set of questions that is tested on", dtype=TEXT, coordinate=True),
        Variable("n_wrong", (TESTED_ON,), "number of wrong answers that are tested on", dtype="int64", coordinate=True),
        Variable(
            "n_right", (TESTED_ON,), "number of correct answers that are tested on", dtype="int64", coordinate=True
        ),
    ),
    attrs=("record", "title", "k", "refits"),
    examples="questions",
    figure="figure:figure",
    variants=(FigureVariant("all", "Detectors"),),
    words="words:describe",
    on_own_answers=True,
)

SPEC = StudySpec(
    name="transfer",
    package=__package__,
    version=1,
    options=TransferOptions,
    produces=(TRANSFER,),
    opt_in=True,
    cost=_cost,
)
