"""`headwise show`, `describe` and `report`: one study of an atlas as a figure or in words, and a whole atlas as one HTML file.

The options of a figure are declared by its study (`studies.present.figure_types`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.analysis import AGREEMENT
from headwise.cli.options import AtlasArgument, JsonOption, StudyArgument
from headwise.cli.preflight import as_typed, sibling_path
from headwise.cli.settings import FigureCommand, figure_options, refuse_table
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.errors import StudyError, did_you_mean
from headwise.studies.registry import datasets

if TYPE_CHECKING:
    from headwise.atlas import Atlas


def show(
    context: typer.Context,
    atlas: AtlasArgument,
    study: StudyArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .pdf, .svg or .png file. Default: STUDY.pdf.")
    ] = None,
) -> None:
    """Draw a study as a figure for a paper or a web page; its description is embedded as alternative text.

    The figure of each study has its own options: headwise show ATLAS STUDY --help lists them.
    """
    from headwise.atlas import Atlas
    from headwise.figures import save
    from headwise.studies.present import figure_types, has_figure

    opened = Atlas.open(atlas)
    _refuse_unknown(study, opened)
    refuse_table(study, as_typed(atlas), "figure")
    known = study == AGREEMENT or has_figure(study)  # the figure of the agreement has no options
    options = figure_options(context.args, figure_types(study), study) if known else {}
    path = output or Path(f"{study}.pdf")
    if study == AGREEMENT:
        from headwise.analysis import agreement, agreement_figure

        figure = agreement_figure(agreement(opened))
    else:
        figure = opened.figure(study, **options)
    save(figure, path)
    echo(path)


show.examples = examples(  # type: ignore[attr-defined]
    "headwise show atlas profile -o profile.pdf",
    ("headwise show atlas patterns --help", "list the options of this figure"),
    "headwise show atlas profile --statistics induction,previous --relative",
    ("headwise show atlas spectral --value all -o spectral.svg", "p-value, effect size and q-value"),
    ("headwise show atlas spectral --features laplacian,entropy --within", "answers to similar questions compared"),
    ("headwise show atlas probing --style paper -o probing.png", "the layout of the published figure"),
    ("headwise show atlas agreement", "do the studies find the same heads?"),
)
show.settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]
show.command = FigureCommand  # type: ignore[attr-defined]


def describe(
    atlas: AtlasArgument,
    study: StudyArgument,
    short: Annotated[bool, typer.Option("--short", help="Only the headline: at most 40 words.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe the findings of a study in words; every number is computed from the atlas."""
    from headwise.atlas import Atlas

    opened = Atlas.open(atlas)
    _refuse_unknown(study, opened)
    refuse_table(study, as_typed(atlas), "description")
    if study == AGREEMENT:
        from headwise.analysis import agreement, describe_agreement

        words = describe_agreement(agreement(opened))
    else:
        words = opened.describe(study)
    if as_json:
        echo(json.dumps({"headline": words.short()} if short else words.sections(), ensure_ascii=False))
    else:
        echo(words.short() if short else words.text())


describe.examples = examples(  # type: ignore[attr-defined]
    "headwise describe atlas profile",
    ("headwise describe atlas profile --short", "the headline, for an alternative text"),
    ("headwise describe atlas spectral --json", "by section, as JSON"),
    ("headwise describe atlas agreement", "do the studies find the same heads?"),
)


def _refuse_unknown(study: str, atlas: Atlas) -> None:
    """Refuse a name that is neither a study, nor in this atlas, nor the agreement of its studies."""
    known = {*atlas.studies, *datasets(), AGREEMENT}
    if study not in known:
        raise StudyError(f"There is no study {study!r}. {did_you_mean(study, known)}")


def report(
    atlas: AtlasArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The .html file. Default: ATLAS-report.html.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an atlas into one HTML file that opens in any browser, without a network connection.

    It contains the findings, all figures with tooltips, a page per head, and a table to sort and filter.
    """
    from headwise.atlas import Atlas
    from headwise.core.errors import DataError
    from headwise.studies.progress import progress_display
    from headwise.web.report import write

    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise DataError(
            f"A report is an HTML file, but {output} does not end in .html or .htm; give such a name with -o."
        )
    opened = Atlas.open(atlas)
    target = output or sibling_path(atlas.resolve() if opened.location.folder == atlas else atlas, "-report.html")
    with progress_display(quiet=as_json, of="parts") as bars:
        path = write(opened, target, progress=lambda done, total: bars.update("report", done, total))
    if as_json:
        echo(json.dumps({"report": str(path), "bytes": path.stat().st_size, "studies": opened.studies}))
    else:
        echo(path)


report.examples = examples(  # type: ignore[attr-defined]
    ("headwise report atlas", "writes atlas-report.html next to the atlas"),
    ("headwise report s3://bucket/atlas", "writes atlas-report.html in the current folder"),
    "headwise report atlas -o report.html",
)
