"""`headwise compare`: what changed between two atlases."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import JsonOption
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import DataError, translate_content_errors

FIGURES = (".png", ".pdf", ".svg")


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The atlas before the change, such as that of the dense model.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The atlas after the change, such as that of the sparse model.")],
    study: Annotated[
        str | None,
        typer.Option("--study", help="Only these studies, comma-separated. Default: all that both have.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="With -o FILE.png: columns to draw, such as profile.sink,profile.entropy. Default: those that changed most."
        )
    ] = None,
    top: Annotated[int, typer.Option("--top", help="Number of heads in the table.", min=1)] = 10,
    different_data: Annotated[
        bool, typer.Option("--different-data", help="Also compare studies that were measured on different data.")
    ] = False,
    unlike: Annotated[bool, typer.Option("--unlike", hidden=True)] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output",
            help="A figure (.png, .pdf, .svg), the table of heads (.csv, .parquet), or everything (.json)."
        )
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Compare two atlases: how much each head changed from A to B.

    Each change is printed with the change to expect if A were measured on other texts of the same kind.

    Use it for dense and sparse, base and chat, or full-precision and quantised models. Models of different shape are compared
    by relative depth.
    """
    from headwise.analysis.comparison import compare as compared
    from headwise.analysis.comparison_display import comparison_figure, describe_comparison
    from headwise.atlas import Atlas
    from headwise.cli.options import split
    from headwise.cli.tables import print_table, table_writers, write_file

    if columns is not None and (output is None or output.suffix not in FIGURES):
        raise DataError("--columns is for the figure; add -o FILE.png, or omit it.")
    before, after = Atlas.open(a), Atlas.open(b)
    with translate_content_errors(f"One of the atlases {a} and {b}"):
        found = compared(before, after, studies=split(study), different_data=different_data or unlike)
        words = describe_comparison(found)

    def drawn(suffix: str) -> bytes:
        from headwise.figures.drawing import render

        return render(comparison_figure(found, columns=split(columns)).with_alt(words.short()), suffix)

    if output is not None:
        figures = {suffix: partial(drawn, suffix) for suffix in FIGURES}
        tables = table_writers(found.heads)
        everything = {".json": lambda: json.dumps(found.to_dict(), ensure_ascii=False)}
        write_file(output, {**figures, **tables, **everything})
        echo(output)
    elif as_json:
        echo(json.dumps(found.to_dict(top=top), ensure_ascii=False))
    else:
        echo(words.text())
        if found.same_shape and not found.within_noise:
            shown = found.heads.head(top).drop(columns=["layer", "head"]).dropna(axis=1, how="all")
            print_table(shown)
            if len(found.heads) > top:
                echo(f"{top} of {len(found.heads)} heads; --top shows more, -o heads.csv writes all.")
        elif found.within_noise and not found.same:
            echo("No table of heads, since all changes are within noise; -o heads.csv writes it anyway.")


compare.examples = examples(  # type: ignore[attr-defined]
    "headwise compare dense sparse",
    (
        "headwise compare dense sparse --study profile -o changes.png",
        "maps of the change, and scatter plots of B against A",
    ),
    ("headwise compare base chat --columns profile.sink -o sink.pdf", "one column"),
    ("headwise compare base chat -o heads.csv", "all heads, the most changed first"),
)
