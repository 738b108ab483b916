"""`headwise detect`: score answers with the hallucination detector of an atlas."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import AtlasArgument, AtOption, OneMeansOption, RiskOption, parse_rate
from headwise.cli.preflight import refuse_missing_file
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError

if TYPE_CHECKING:
    from headwise.corpora.evaluation_logs import EvaluationLog
    from headwise.watching.scoring import AnswerScorer, Score


def detect(
    atlas: AtlasArgument,
    ask: Annotated[
        str | None, typer.Option("--ask", help="A question; the model answers it, and the answer is scored.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option("--answer", help="With --ask: score this answer instead of the model's.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="A file with fields question and response (.jsonl, .csv, .parquet), or - for JSON lines on standard input.",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            help="A log of answers that the same model gave elsewhere: samples_*.jsonl of lm_eval --log_samples, .eval or "
            ".json of Inspect, or rows with question and response.",
        ),
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option(
            "--verdict",
            metavar="NAME",
            help="With --log: the metric or scorer to take the labels from, such as exact_match. Default: the first that says "
            "right or wrong.",
        ),
    ] = None,
    one_means: OneMeansOption = None,
    score: Annotated[
        str | None,
        typer.Option(
            "--score",
            help='Which of the atlas\'s scores, such as "Heads + log-probability"; by default the one that its study streaming '
            "chose.",
        ),
    ] = None,
    at: AtOption = None,
    risk: RiskOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A hub id or folder of the model, if it is not at the id stored in the atlas."),
    ] = None,
) -> None:
    """Score answers: JSON lines with the probability that each is wrong, and the heads that contribute most.

    `heads`: what the five most important heads add to the log-odds of "wrong". `others`: what each group of features adds in
    total. `unusual`: groups of features outside the range of the training answers; do not trust the probability if one is
    listed. The detector was trained on the model's own answers: score those, or full sentences like them.

    With --log, each line has the log's own id and, where the log judges the answer, a `label`; how well the scores separate
    wrong answers from correct ones (AUROC) is printed at the end, on standard error. The prompt of the log is not used: each
    question is asked again in the format of the atlas, which the detector was fitted with, and only the answer is taken.
    """
    inputs = {"--ask": ask, "--data": data, "--log": log}
    _refuse_misfits(inputs, answer, verdict, one_means)
    if data != "-":
        refuse_missing_file("--data", data)
    refuse_missing_file("--log", log)
    if at is not None and risk is not None:
        raise DataError("--at and --risk both set the threshold; give one of them.")
    rates = {"at": parse_rate("--at", at), "risk": parse_rate("--risk", risk)}
    from headwise.atlas import Atlas

    opened = Atlas.open(atlas)  # reports a missing atlas before anything heavier is loaded
    from headwise.corpora import Question
    from headwise.corpora.evaluation_logs import read_evaluation_log
    from headwise.corpora.questions import parse_question_line, read_questions

    read = None if log is None else read_evaluation_log(log, verdict=verdict, one_means=one_means)
    if read is not None:
        items = [one.question for one in read.answers]
    elif ask is not None:
        items = [Question("asked", ask, (), response=answer)]
    elif data == "-":
        lines = ((number, line) for number, line in enumerate(_standard_input(), start=1) if line.strip())
        items = [parse_question_line(line, number, f"line {number} of standard input") for number, line in lines]
    else:
        items = list(read_questions(str(data), one_means=one_means, judged=False).items)
    from headwise.watching.scoring import AnswerScorer

    scorer = AnswerScorer.open(atlas, model, score=score, at=rates["at"], risk=rates["risk"])
    echo(f"scored by {scorer.note}", err=True)
    if read is not None:
        _note_differences(read, scorer, opened.provenance("answers").model["id"])
    scores = scorer.scores(items)
    labels: dict[str, Any] = {} if read is None else {one.question.id: one.question.label for one in read.answers}
    for one in scores:
        label = labels.get(one.id)
        echo(json.dumps(one.to_dict() | ({"label": label} if label else {}), ensure_ascii=False))
    if read is not None:
        echo(_agreement(read, scores), err=True)


def _refuse_misfits(
    inputs: dict[str, str | None], answer: str | None, verdict: str | None, one_means: str | None
) -> None:
    """Refuse options that say two things, or that nothing reads."""
    if answer is not None and inputs["--ask"] is None:
        raise DataError('--answer needs the question it answers; add --ask "...".')
    named = [option for option, value in inputs.items() if value is not None]
    if not named:
        raise DataError('detect needs a question or answers to score; add --ask "...", --data FILE or --log FILE.')
    if len(named) > 1:
        what = {"--ask": "--ask scores one question", "--data": "--data a file", "--log": "--log a log"}
        raise DataError(f"{' and '.join(what[option] for option in named)}; give one of them.")
    if verdict is not None and inputs["--log"] is None:
        raise DataError("--verdict chooses among the verdicts of a log; add --log FILE, or omit it.")
    if one_means is not None and inputs["--data"] in (None, "-") and inputs["--log"] is None:
        raise DataError("--one-means is for the labels of a file; add --data FILE or --log FILE, or omit it.")


def _note_differences(log: EvaluationLog, scorer: AnswerScorer, name: str) -> None:
    """Say, once each, what differs between the log and what the detector was fitted on."""
    from headwise.corpora.evaluation_logs import asked_alike
    from headwise.corpora.prompts import default_few_shot, has_chat_template

    left_out = [f"{count} {what}" for what, count in log.left_out.items()]
    if left_out:
        echo(f"not scored: samples {', '.join(left_out)}.", err=True)
    if log.model and log.model.rpartition("/")[2].lower() != name.rpartition("/")[2].lower():
        echo(
            f"the log names its model {log.model!r}, the atlas {name!r}: the scores hold if both are the same model.",
            err=True,
        )
    options = scorer.options
    chat = has_chat_template(scorer.model) if options.chat is None else options.chat
    shots = default_few_shot(chat) if options.few_shot is None else options.few_shot
    tokenizer = scorer.model.tokenizer
    alike = sum(asked_alike(one, tokenizer, few_shot=shots, chat=chat) for one in log.answers)
    if alike < len(log.answers):
        echo(
            f"{len(log.answers) - alike} of {len(log.answers)} prompts in the log differ from those the detector was fitted "
            "with: each question is asked again in the format of the atlas, and only the answer is taken from the log. Under "
            "other instructions the model may have answered otherwise, so probabilities may be off.",
            err=True,
        )


def _agreement(log: EvaluationLog, scores: Sequence[Score]) -> str:
    """How well the scores separate the answers that the log calls wrong from those it calls correct."""
    import numpy as np

    from headwise.corpora.matching import CORRECT, WRONG
    from headwise.stats import auroc

    count = f"{len(scores)} answers scored"
    if not log.verdict:
        return f"{count}; the log does not say which are wrong, so there is no AUROC."
    label_of = {one.question.id: one.question.label for one in log.answers}
    judged = [score for score in scores if label_of[score.id] in (CORRECT, WRONG) and not np.isnan(score.value)]
    wrong = np.array([label_of[score.id] == WRONG for score in judged], dtype=bool)
    others = [name for name in log.verdicts if name != log.verdict]
    choice = f"{log.verdict} (--verdict takes {', '.join(others)} instead)" if others else log.verdict
    said = f"{count}, {int(wrong.sum())} wrong and {int((~wrong).sum())} correct according to {choice}"
    if any(score.alarm is not None for score in judged):
        alarms = np.array([bool(score.alarm) for score in judged])
        said += (
            f"; alarms for {int((alarms & wrong).sum())} of the wrong and {int((alarms & ~wrong).sum())} of the correct"
        )
    if wrong.all() or not wrong.any():
        return f"{said}; an AUROC needs wrong and correct answers."
    texts = np.array([score.question for score in judged])
    groups = np.unique(texts, return_inverse=True)[1].astype(np.int64)  # answers to one question are not independent
    found = auroc([score.value for score in judged], wrong, groups=groups)
    return f"{said}. AUROC {float(found.value):.2f} (95% interval {float(found.low):.2f} to {float(found.high):.2f})."


def _standard_input() -> list[str]:
    try:
        return list(sys.stdin)
    except UnicodeDecodeError as error:
        raise DataError(f"standard input is not UTF-8 text ({error.reason}); convert it first.") from error


detect.examples = examples(  # type: ignore[attr-defined]
    ('headwise detect atlas --ask "What is the capital of Norway?"', "score the model's answer"),
    ('headwise detect atlas --ask "What is the capital of Norway?" --answer "Oslo."', "score a given answer"),
    "headwise detect atlas --data answers.jsonl > scores.jsonl",
    (
        'headwise detect atlas --ask "What is the capital of Norway?" --at 10%',
        "an alarm for at most 10 % of correct answers",
    ),
    ("headwise detect atlas --log samples_triviaqa.jsonl > scores.jsonl", "answers that lm-eval logged"),
)
