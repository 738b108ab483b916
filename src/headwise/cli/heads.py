"""`headwise heads`: one row a head, all studies joined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption


def heads(
    atlas: AtlasArgument,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", help='A condition, such as "profile.induction > 0.3 and layer < 10".', show_default=False
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="A column to sort by, largest first.", show_default=False)
    ] = None,
    ascending: Annotated[bool, typer.Option("--ascending", help="Smallest first.")] = False,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", help="At most so many rows.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Which columns, comma-separated: profile.sink, spectral.*, or all. Default: those that fit on a line.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .csv, .json or .parquet file.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """One row a head with everything known of it; filter, sort, save."""
    from headwise.atlas import Atlas, select
    from headwise.cli.options import split
    from headwise.cli.tables import fitting_columns, keep_columns, print_table, save_table

    frame = select(Atlas.open(atlas).heads(), where, sort=sort, descending=not ascending, limit=limit)
    frame = keep_columns(frame, split(columns))
    if output is not None:
        save_table(frame, output)
        typer.echo(output)
    elif as_json:
        typer.echo(frame.reset_index().to_json(orient="records"))
    elif columns is not None:
        print_table(frame)
    else:
        asked = [name for name in frame.columns if name in re.findall(r"[\w.]+", f"{sort or ''} {where or ''}")]
        shown = fitting_columns(frame, asked)
        print_table(shown)
        typer.echo(
            f"{shown.shape[1]} of {frame.shape[1]} columns shown; choose with --columns (such as profile.sink or spectral.*, "
            "or all), or write them all with -o heads.csv",
            err=True,
        )


heads.examples = (  # type: ignore[attr-defined]
    "[b]Examples[/b]\n\nheadwise heads atlas --sort profile.induction -n 10\n\n"
    'headwise heads atlas --where "profile.previous > 0.5" -o previous.csv'
)
