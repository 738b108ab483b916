"""`headwise show`: draw a study of an atlas.

The options of a figure are declared by its study (`studies.present.figure_types`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument, StudyArgument
from headwise.cli.preflight import as_typed
from headwise.cli.settings import FigureCommand, figure_options, refuse_table
from headwise.cli.usage import examples


def show(
    context: typer.Context,
    atlas: AtlasArgument,
    study: StudyArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .pdf, .svg or .png file. Default: STUDY.pdf.", show_default=False),
    ] = None,
) -> None:
    """Draw a study as a figure for a paper or a web page; its description is embedded as alternative text.

    The figure of each study has its own options: headwise show ATLAS STUDY --help lists them.
    """
    from headwise.analysis import AGREEMENT, agreement, agreement_figure
    from headwise.atlas import Atlas
    from headwise.atlas.disk import translate_os_errors
    from headwise.figures import save
    from headwise.studies.present import figure_types, has_figure

    opened = Atlas.open(atlas)
    refuse_table(study, as_typed(atlas), "figure")
    options = figure_options(context.args, figure_types(study), study) if has_figure(study) else {}
    path = output or Path(f"{study}.pdf")
    figure = agreement_figure(agreement(opened)) if study == AGREEMENT else opened.figure(study, **options)
    with translate_os_errors(path):
        save(figure, path)
    typer.echo(path)


show.examples = examples(  # type: ignore[attr-defined]
    "headwise show atlas profile -o profile.pdf",
    ("headwise show atlas patterns --help", "list the options of this figure"),
    "headwise show atlas profile --statistics induction,previous --relative",
    ("headwise show atlas spectral --value all -o spectral.svg", "p-value, effect size and q-value"),
    ("headwise show atlas spectral --features laplacian,entropy --matched", "with answers matched on length"),
    ("headwise show atlas agreement", "do the studies find the same heads?"),
)
show.settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]
show.command = FigureCommand  # type: ignore[attr-defined]
