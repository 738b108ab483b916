"""`headwise detect`: score answers with the hallucination detector of an atlas."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument
from headwise.cli.preflight import refuse_missing_file
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError


def detect(
    atlas: AtlasArgument,
    ask: Annotated[
        str | None,
        typer.Option("--ask", help="A question; the model answers it, and the answer is scored.", show_default=False),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option("--answer", help="With --ask: score this answer instead of the model's.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="A file with fields question and response (.jsonl, .csv, .parquet), or - for JSON lines on standard input.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="A hub id or folder of the model, if it is not at the id stored in the atlas.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Score answers: JSON lines with the probability that each is wrong, and the heads that contribute most.

    `heads`: what the five most important heads add to the log-odds of "wrong". `others`: what each group of features adds in
    total. `unusual`: groups of features outside the range of the training answers; do not trust the probability if one is
    listed. The detector was trained on the model's own answers: score those, or full sentences like them.
    """
    if answer is not None and ask is None:
        raise DataError('--answer needs the question it answers; add --ask "...".')
    if ask is None and data is None:
        raise DataError('detect needs a question or answers to score; add --ask "..." or --data FILE.')
    if ask is not None and data is not None:
        raise DataError("--ask scores one question and --data a file; omit one of them.")
    if data != "-":
        refuse_missing_file("--data", data)
    from headwise.atlas import Atlas

    Atlas.open(atlas)  # reports a missing atlas before anything heavier is loaded
    from headwise.corpora import Question
    from headwise.corpora.questions import parse_question_line, read_questions

    if ask is not None:
        items = [Question("asked", ask, (), response=answer)]
    elif data == "-":
        lines = ((number, line) for number, line in enumerate(_standard_input(), start=1) if line.strip())
        items = [parse_question_line(line, number, f"line {number} of standard input") for number, line in lines]
    else:
        items = list(read_questions(str(data)).items)
    from headwise.studies.spectral.scoring import AnswerScorer

    for score in AnswerScorer.open(atlas, model).scores(items):
        echo(json.dumps(score.to_dict(), ensure_ascii=False))


def _standard_input() -> list[str]:
    try:
        return list(sys.stdin)
    except UnicodeDecodeError as error:
        raise DataError(f"standard input is not UTF-8 text ({error.reason}); convert it first.") from error


detect.examples = examples(  # type: ignore[attr-defined]
    ('headwise detect atlas --ask "What is the capital of Norway?"', "score the model's answer"),
    ('headwise detect atlas --ask "What is the capital of Norway?" --answer "Oslo."', "score a given answer"),
    "headwise detect atlas --data answers.jsonl > scores.jsonl",
)
