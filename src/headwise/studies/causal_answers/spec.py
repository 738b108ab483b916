"""The spec of the study `causal_answers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.core.dims import HEAD, HEAD_SET, LAYER, MEASURE
from headwise.core.schema import TEXT
from headwise.studies.cost import ANSWER_TOKENS, PROMPT_TOKENS, PlannedInputs, StudyCost, forward_flops
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

MAP, SETS = (MEASURE, LAYER, HEAD), (MEASURE, HEAD_SET)
SHARES = ("correct", "refused")  # of the questions
AUROCS = ("detector", "detector_reading", "detector_refitted", "probe", "probe_refitted")
REASONS = ("needed", "detector")  # why heads are chosen; as a set, too


@dataclass(frozen=True)
class CausalAnswersOptions(StudyOptions):
    """Options of the study `causal_answers`: what do answers, and detectors of wrong answers, lose without a head?

    Examples:
        >>> CausalAnswersOptions(heads=2, answers=60).controls
        2
    """

    study = "causal_answers"
    heads: int = option(
        4, "number of heads that the loss needs most, and of heads with the largest weight in the detector", minimum=1,
        quick=2,
    )  # fmt: skip
    controls: int = option(2, "heads of the same layer, near in norm, that each is compared with", minimum=1, quick=1)
    questions: int = option(60, "maximum number of questions that are answered again; 0: none", minimum=0, quick=24)
    answers: int = option(
        120, "maximum number of answers, half of them wrong, on which detectors are tested", minimum=40, quick=60
    )
    where: str = option(
        "answer",
        "where heads are ablated while questions are answered: from the last prompt token on, or everywhere",
        choices=("answer", "everywhere"),
    )
    batch: int = option(64, "rows per batch of answers", minimum=1)
    batch_tokens: int = option(2048, "tokens per batch, padding included", minimum=1)
    shard: int = option(8, "ablated heads and sets between saves; a killed build loses at most these", minimum=1)
    seed: int = option(0, "seed of the questions, the answers and the control heads")


def condition_count(options: CausalAnswersOptions) -> int:
    """Nothing ablated, single heads and sets, each with its controls: at most."""
    return 1 + len(REASONS) * (options.heads + 1) * (1 + options.controls)


def _cost(card: ModelCard, inputs: PlannedInputs) -> StudyCost:
    """Passes from the ablated layer on (half of the layers) over the answers; questions from the last prompt token on."""
    options = CausalAnswersOptions()
    conditions, read = condition_count(options), PROMPT_TOKENS + ANSWER_TOKENS
    asked, judged = min(options.questions, inputs.questions), min(options.answers, inputs.questions)
    texts = [read] * (inputs.questions + judged * conditions // 2) + [ANSWER_TOKENS] * (asked * conditions)
    return StudyCost(
        conditions, sum(texts), forward_flops(card, texts), options.batch_tokens,
        len((*SHARES, *AUROCS)) * (card.layers * card.heads * 10 + 40), slowdown=2.0, unit="ablations",
        shard=options.shard, stored_per_example=asked + len(AUROCS) * judged,
    )  # fmt: skip


CAUSAL_ANSWERS = DatasetSpec(
    name="causal_answers",
    question="Does the model still answer, and can its errors still be detected, without a head?",
    method=Method(
        "Heads that the loss needs most, and heads with the largest weight in a detector of wrong answers, are replaced by "
        "their mean output: one at a time, and all of a kind together. The model answers the same questions again, and a "
        "detector on attention and a probe on the hidden state score the same answers, read without the head. Both are "
        "fitted on the intact model and applied to answers of other questions; or fitted again without the head. Changes "
        "are paired by question and by answer, and compared with those of heads of the same layers that write about as "
        "much. As many answers are wrong as correct in every stratum of similar questions."
    ),
    variables=(
        Variable(
            "change", MAP, "change without the head: share of the questions, or AUROC", dtype="float32", interval=True
        ),
        Variable("p", MAP, "p-value of that change, two-sided", dtype="float32"),
        Variable("q", MAP, "the same after Benjamini and Hochberg, over the heads chosen", dtype="float32"),
        Variable("matched", MAP, "the same change without its control heads, their mean", dtype="float32", interval=True),
        Variable(
            "excess", MAP, "change without the head minus that without its control heads", dtype="float32", interval=True
        ),
        Variable("excess_p", MAP, "p-value of that difference, two-sided", dtype="float32"),
        Variable("excess_q", MAP, "the same after Benjamini and Hochberg, over the heads chosen", dtype="float32"),
        Variable(
            "role", (LAYER, HEAD), "why the head was ablated: needed, detector, both, control; empty: it was not", dtype=TEXT
        ),
        Variable("controls", (LAYER, HEAD), "the heads that it is compared with", dtype=TEXT),
        Variable(
            "weight", (LAYER, HEAD), "deviation over answers of what the head adds to the detector", dtype="float32",
            unit="log-odds",
        ),
        Variable("set_change", SETS, "change with all heads of the set ablated", dtype="float32", interval=True),
        Variable("set_p", SETS, "p-value of that change, two-sided", dtype="float32"),
        Variable("set_matched", SETS, "the same change without control sets, their mean", dtype="float32", interval=True),
        Variable(
            "set_excess", SETS, "change without the set minus that without its control sets", dtype="float32", interval=True
        ),
        Variable("set_excess_p", SETS, "p-value of that difference, two-sided", dtype="float32"),
        Variable(
            "set_excess_q", SETS, "the same after Benjamini and Hochberg, over sets and measures", dtype="float32"
        ),
        Variable("intact", (MEASURE,), "the share or AUROC of the unchanged model", dtype="float32", interval=True),
        Variable(
            "detectable", (MEASURE,), "smallest change without a head that is found with 80 % power, over the heads chosen",
            dtype="float32",
        ),
        Variable("n", (MEASURE,), "questions or answers", dtype="int64"),
        Variable("measure", (MEASURE,), dtype=TEXT, coordinate=True),
        Variable("label", (MEASURE,), dtype=TEXT, coordinate=True),
        Variable("definition", (MEASURE,), dtype=TEXT, coordinate=True),
        Variable("head_set", (HEAD_SET,), dtype=TEXT, coordinate=True),
        Variable("heads", (HEAD_SET,), "the heads of the set", dtype=TEXT, coordinate=True),
    ),
    attrs=("record", "title", "strata", "n_strata", "site", "layer", "where", "not_asked"),
    examples="questions",
    figure="figure:figure",
    figure_options={
        "kind": FigureOption(
            choices={"all": "both of the others", "answers": "shares of the questions", "detectors": "AUROCs"},
            example="detectors",
        ),
    },
    variants=(
        FigureVariant("all", "Answers and detectors"),
        FigureVariant("answers", "Answers", {"kind": "answers"}),
        FigureVariant("detectors", "Detectors", {"kind": "detectors"}),
    ),
    words="words:describe",
    head_columns=(
        HeadColumn(
            "change", p="p", q="q", level=0.0, baseline_name="no change",
            label="Change without it, {}",
        ),
        HeadColumn(
            "excess", p="excess_p", q="excess_q", level=0.0,
            baseline_name="heads of its layer that write as much", label="Change beyond matched heads, {}",
        ),
    ),
    made_from="answers",
    on_own_answers=True,
)  # fmt: skip

SPEC = StudySpec(
    name="causal_answers",
    package=__package__,
    version=1,
    options=CausalAnswersOptions,
    produces=(CAUSAL_ANSWERS,),
    inputs=("questions",),
    depends_on=("answers", "causal", "spectral", "probing"),
    opt_in=True,
    quick=False,
    cost=_cost,
)
