"""`headwise show`: draw a study of an atlas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument, StudyArgument, split


def show(
    atlas: AtlasArgument,
    study: StudyArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .pdf, .svg or .png file. Default: STUDY.pdf.", show_default=False),
    ] = None,
    statistics: Annotated[
        str | None, typer.Option("--statistics", help="profile: which panels, comma-separated.", show_default=False)
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="profile: draw the difference to an evenly spread head.")
    ] = False,
) -> None:
    """Draw a map as a figure for a paper or a page; the words go into the file as its description."""
    from headwise.atlas import Atlas
    from headwise.atlas.disk import explained
    from headwise.figures import save

    options = {"statistics": split(statistics)} if statistics else {}
    if relative:
        options["relative"] = True  # type: ignore[assignment]
    path = output or Path(f"{study}.pdf")
    figure = Atlas.open(atlas).figure(study, **options)
    with explained(path):
        save(figure, path)
    typer.echo(path)


show.examples = (  # type: ignore[attr-defined]
    "[b]Examples[/b]\n\nheadwise show atlas profile -o profile.pdf\n\n"
    "headwise show atlas profile --statistics induction,previous --relative -o heads.png"
)
