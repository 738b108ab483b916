"""`headwise heads`: the head table, one row per head, all studies joined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption
from headwise.cli.usage import examples


def heads(
    context: typer.Context,
    atlas: AtlasArgument,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            help='A condition in quotes, such as "profile.induction > 0.3 and layer < 10".',
            show_default=False,
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="The column to sort by, in descending order.", show_default=False)
    ] = None,
    ascending: Annotated[bool, typer.Option("--ascending", help="Sort in ascending order, as for q-values.")] = False,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", help="Maximum number of rows.", show_default=False, min=1)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Comma-separated columns: profile.sink, spectral.*, or all. Default: those that fit on a line.",
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Only columns of these studies, comma-separated.", show_default=False)
    ] = None,
    percentiles: Annotated[
        bool, typer.Option("--percentiles", help="Show each value as its percentile among all heads of the atlas.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .csv, .json or .parquet file.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print, filter, sort or save the head table: one row per head, the columns of all studies.

    For a report on one head see headwise head.
    """
    from headwise.analysis import default_columns, with_percentiles
    from headwise.atlas import Atlas, select
    from headwise.cli.options import split
    from headwise.cli.preflight import refuse_missing_studies, refuse_unquoted
    from headwise.cli.tables import fitting_columns, keep_columns, print_table, save_table

    refuse_unquoted(context.args, where)
    wanted = [*(split(columns) or []), *(f"{name}.*" for name in split(study) or [])]
    opened = Atlas.open(atlas)
    every = opened.heads()
    refuse_missing_studies([*wanted, *_names(where), *_names(sort)], every, opened)
    frame = select(every, where, sort=sort, descending=not ascending, limit=limit)
    if percentiles:
        frame = with_percentiles(every).loc[frame.index]
    frame = keep_columns(frame, wanted or None)
    if output is not None:
        save_table(frame, output)
        typer.echo(output)
    elif as_json:
        typer.echo(frame.reset_index().to_json(orient="records"))
    elif not len(frame):
        typer.echo(f"none of the {len(every)} heads matches; relax the condition of --where.", err=True)
    elif wanted:
        print_table(frame)
    else:
        requested = [name for name in dict.fromkeys([*_names(sort), *_names(where)]) if name in frame]
        shown = fitting_columns(frame, requested, default_columns(frame.columns))
        print_table(shown)
        typer.echo(
            f"{shown.shape[1]} of {frame.shape[1]} columns shown; choose others with --columns (such as profile.sink, "
            "spectral.*, or all) or --study profile, or write all with -o heads.csv",
            err=True,
        )


def _names(text: str | None) -> list[str]:
    """Possible column names in a condition, ignoring quoted text."""
    return re.findall(r"[A-Za-z_][\w.]*", re.sub(r"(['\"]).*?\1", "", text or ""))


heads.examples = examples(  # type: ignore[attr-defined]
    "headwise heads atlas --sort profile.induction -n 10",
    'headwise heads atlas --where "profile.previous > 0.5" -o previous.csv',
    ("headwise heads atlas --where \"relations.categories != ''\" --study relations", "heads with a category"),
    ("headwise heads atlas --percentiles --study profile", "each value as a percentile among all heads"),
)
heads.settings = {"allow_extra_args": True}  # type: ignore[attr-defined]
