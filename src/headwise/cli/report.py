"""`headwise report`: a whole atlas as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption
from headwise.cli.preflight import sibling_path
from headwise.cli.usage import examples


def report(
    atlas: AtlasArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The .html file. Default: ATLAS-report.html.", show_default=False),
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
        typer.echo(json.dumps({"report": str(path), "bytes": path.stat().st_size, "studies": opened.studies}))
    else:
        typer.echo(path)


report.examples = examples(  # type: ignore[attr-defined]
    ("headwise report atlas", "writes atlas-report.html next to the atlas"),
    ("headwise report s3://bucket/atlas", "writes atlas-report.html in the current folder"),
    "headwise report atlas -o report.html",
)
