"""`headwise build`: measure a model and keep its atlas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options


def build(
    model: options.ModelArgument = None,
    studies: options.StudiesOption = None,
    data: options.DataOption = None,
    questions: options.QuestionsOption = None,
    limit: options.LimitOption = 500,
    output: Annotated[Path, typer.Option("-o", "--output", help="The atlas: a new folder, or one to add to.")] = Path(
        "atlas"
    ),
    redo: Annotated[str, typer.Option("--redo", help="Studies to measure anew, comma-separated.")] = "",
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    revision: options.RevisionOption = None,
    adapter: options.AdapterOption = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Let code that comes with the model run.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Build the atlas of a model: every study measured, stored, drawn and told.

    A killed build goes on where it was when the same command is given again. Figures and a report are written beside
    the atlas.
    """
    from headwise.cli.progress import progress_bars
    from headwise.cli.report import write_report
    from headwise.figures import has_figure
    from headwise.model import load
    from headwise.studies import build as run_build
    from headwise.studies.building import check_studies

    names = options.split(studies)
    check_studies([*(names or []), *(options.split(redo) or [])])
    with progress_bars(quiet=as_json) as bars:
        bars.say(f"loading {model or 'the default model'}")
        loaded = load(
            model, dtype=dtype, device=device, revision=revision, adapter=adapter, trust_remote_code=trust_remote_code
        )
        atlas = run_build(
            loaded,
            names,
            data=data,
            questions=questions,
            limit=limit or None,
            output=output,
            redo=options.split(redo) or (),
            progress=bars.update,
        )
        bars.say("drawing")
        files = write_report(atlas, output.parent if output.parent != Path() else Path("."), output.name)
    if as_json:
        typer.echo(json.dumps({"atlas": str(atlas.path), "studies": atlas.studies, "files": [str(f) for f in files]}))
        return
    typer.echo(f"The atlas is in {atlas.path}: {', '.join(atlas.studies)}.")
    for file in files:
        typer.echo(f"  {file}")
    for study in filter(has_figure, atlas.studies):
        typer.echo(f"\n{atlas.describe(study).short()}")


build.examples = (  # type: ignore[attr-defined]
    "[b]Examples[/b]\n\n"
    "headwise build                                  the default model, all studies\n\n"
    "headwise build ./my-model -o atlases/mine        a local folder\n\n"
    "headwise build Qwen/Qwen2.5-0.5B --studies profile --data texts.jsonl"
)
