"""`headwise drift`: has a log of scored answers drifted from its reference?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import JsonOption
from headwise.cli.preflight import refuse_missing_file
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError


def drift(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Scored answers, as headwise detect and the server write them: JSON lines, in order."
        ),
    ],
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            help="What to compare with: the atlas whose score it is (its held-out answers), or another log of the same score. "
            "Default: the first half of LOG.",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--first", min=1, help="Compare with this many answers at the beginning of LOG instead."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a log of scored answers with a reference: score, alarms, unusual answers and length, and where a change began.

    A threshold holds for answers like those it was set on. Drift is found without knowing which answers are wrong; the exit
    code is 0 with drift and without, and --json says which.
    """
    if reference is not None and first is not None:
        raise DataError("--reference and --first both say what to compare with; omit one of them.")
    refuse_missing_file("LOG", log)
    if reference is None or not reference.is_dir():
        refuse_missing_file("--reference", reference)
    from headwise.analysis.drift import describe_drift, drift_report
    from headwise.analysis.drift_log import read_log, reference_of

    new = read_log(log)
    if reference is not None:
        before = reference_of(reference, new.score)
    else:
        size = len(new) // 2 if first is None else first
        if size >= len(new):
            raise DataError(f"--first {size} leaves no new answers: {log} has {len(new)}; give a smaller number.")
        before = new.part(f"its first {size}", slice(size))
        new = new.part(f"{new.name} from answer {size + 1} on", slice(size, None))
    report = drift_report(new, before)
    echo(json.dumps(report.to_dict(), ensure_ascii=False) if as_json else describe_drift(report).text().rstrip("\n"))


drift.examples = examples(  # type: ignore[attr-defined]
    ("headwise drift answers.jsonl --reference atlas", "new answers against those that the atlas held out"),
    ("headwise drift answers.jsonl --reference last-week.jsonl", "against those of another log"),
    ("headwise drift answers.jsonl", "the second half of a log against the first"),
    ("headwise drift answers.jsonl --first 500 --json", "all after the first 500, for a program"),
)
