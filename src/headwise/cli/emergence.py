"""`headwise emergence`: when did heads emerge in training?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import JsonOption, split
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError, translate_content_errors

FIGURES = (".png", ".pdf", ".svg")
SHOWN = ["column", "first", "last", "after", "by", "by_low", "by_high"]


def emergence(
    training: Annotated[
        Path, typer.Argument(metavar="TRAINING", help="The atlas over training that headwise build --checkpoints wrote.")
    ],
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Columns of the head table, comma-separated, such as profile.induction,profile.sink. Default: attention to "
            "the previous token, induction, duplicate tokens and the first token.",
            show_default=False,
        ),
    ] = None,
    frames: Annotated[
        str | None,
        typer.Option(
            "--frames", help="With -o FILE.png: the steps whose maps are drawn, such as 0,512,1024.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output",
            help="A figure (.png, .pdf, .svg), the head table of all checkpoints (.csv, .parquet), or everything (.json).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Report which heads emerged during training, from which step on, and in which order.

    Build the atlas over training first: headwise build RUN --checkpoints 'step-*' -o TRAINING. Every checkpoint has an
    ordinary atlas in it, such as TRAINING/step-512, for all other commands.
    """
    from headwise.analysis import describe_emergence, emergence_figure
    from headwise.analysis import emergence as emerged
    from headwise.atlas import TrainingAtlas
    from headwise.cli.tables import print_table, table_writers, write_file

    if frames is not None and (output is None or output.suffix not in FIGURES):
        raise DataError("--frames is for the figure; add -o FILE.png, or omit it.")
    opened = TrainingAtlas.open(training)
    with translate_content_errors(f"The atlas over training {training}"):
        found = emerged(opened, columns=split(columns))
        words = describe_emergence(found)

    def drawn(suffix: str) -> bytes:
        from headwise.figures.drawing import render

        return render(emergence_figure(found, steps=_steps(frames)).with_alt(words.short()), suffix)

    if output is not None:
        figures = {suffix: partial(drawn, suffix) for suffix in FIGURES}
        tables = table_writers(opened.heads()) if output.suffix in (".csv", ".parquet") else {}
        everything = {".json": lambda: json.dumps(found.to_dict(), ensure_ascii=False)}
        write_file(output, {**figures, ".csv": str, ".parquet": str, **tables, **everything})
        echo(output)
    elif as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        echo(words.text())
        if len(found.table):
            print_table(found.table[SHOWN])


def _steps(frames: str | None) -> list[int] | None:
    """The steps of ``--frames``."""
    names = split(frames)
    if names is None:
        return None
    if not names or not all(name.isdigit() for name in names):
        raise DataError(f"--frames takes steps, such as 0,512,1024, not {frames!r}.")
    return [int(name) for name in names]


emergence.examples = examples(  # type: ignore[attr-defined]
    "headwise emergence training-atlas",
    ("headwise emergence training-atlas -o training.png", "curves, and maps at some steps"),
    ("headwise emergence training-atlas --columns profile.induction -o induction.pdf", "one statistic"),
    ("headwise emergence training-atlas -o heads.csv", "every number of every head at every checkpoint"),
)
