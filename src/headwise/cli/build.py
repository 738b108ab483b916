"""`headwise build`: measure a model and keep its atlas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.catalogue import refuse_unknown


def build(
    model: options.ModelArgument = None,
    studies: options.StudiesOption = None,
    data: options.DataOption = None,
    questions: options.QuestionsOption = None,
    limit: options.LimitOption = 500,
    relations: Annotated[
        str | None,
        typer.Option(
            "--relations",
            help="Your pairs of words: a .json, .csv or .tsv file, or a folder of them. Default: the packaged ones.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            help="Your questions in steps, each labelled with a function: a .json, .jsonl or .csv file. "
            "Default: the packaged ones.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="MODEL_OR_ADAPTER",
            help="Patterns are compared with this model, or with this one under a PEFT adapter. Default: the sparse adapter "
            "that ships for the model, if there is one; none: nothing.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The atlas: a new folder, or one to add to.")] = Path(
        "atlas"
    ),
    redo: Annotated[str, typer.Option("--redo", help="Studies to measure anew, comma-separated.")] = "",
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    revision: options.RevisionOption = None,
    adapter: options.AdapterOption = None,
    settings: options.SetOption = None,
    one_means: options.OneMeansOption = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", help="Answers come from the model at this OpenAI-compatible URL.", show_default=False
        ),
    ] = None,
    endpoint_model: Annotated[
        str, typer.Option("--endpoint-model", help="The model's name at the endpoint.", show_default=False)
    ] = "",
    judge: Annotated[
        str | None,
        typer.Option("--judge", help="Labels come from the model at this OpenAI-compatible URL.", show_default=False),
    ] = None,
    judge_model: Annotated[
        str, typer.Option("--judge-model", help="The judge's name at its endpoint.", show_default=False)
    ] = "",
    trust_remote_code: Annotated[bool, typer.Option(help="Let code that comes with the model run.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Build the atlas of a model: every study measured, stored, drawn and told.

    A killed build goes on where it was when the same command is given again. Figures and a report are written beside
    the atlas.
    """
    names = options.split(studies)
    refuse_unknown([*(names or []), *(options.split(redo) or [])], settings or [])
    from headwise.cli.progress import progress_bars
    from headwise.cli.report import write_report
    from headwise.cli.settings import study_options
    from headwise.corpora import find_questions
    from headwise.figures import has_figure
    from headwise.studies import build as run_build
    from headwise.studies.building import OPTIONS, model_for

    chosen = study_options(settings or [], OPTIONS)
    _serve(chosen, OPTIONS["answers"], {"endpoint": (endpoint, endpoint_model), "judge": (judge, judge_model)})
    asked = find_questions(questions, one_means=one_means) if one_means is not None else questions
    with progress_bars(quiet=as_json) as bars:
        bars.say(f"loading {model or 'the default model'}")
        loading = {"dtype": dtype, "device": device, "revision": revision, "adapter": adapter}
        loaded = model_for(names, model, **loading, trust_remote_code=trust_remote_code)
        atlas = run_build(
            loaded,
            names,
            data=data,
            questions=asked,
            limit=limit or None,
            relations=relations,
            steps=steps,
            against=against,
            output=output,
            options=chosen,
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
    "headwise build Qwen/Qwen2.5-0.5B --studies profile --data texts.jsonl\n\n"
    "headwise build ./llama-70b --studies relations              from its weights alone: it is not loaded\n\n"
    "headwise build --questions triviaqa --limit 1000 --set answers.temperature=1 --set spectral.k=50\n\n"
    "headwise build --questions answered.csv --one-means wrong     answers and labels that you have\n\n"
    "headwise build --studies patterns --against ./my-sparse-adapter      attention maps, dense against sparse\n\n"
    "headwise build --endpoint http://localhost:8000/v1 --endpoint-model my-model"
)


def _serve(chosen: dict[str, Any], kind: type, served: dict[str, tuple[str | None, str]]) -> None:
    """Put the endpoints that were asked for into the options of the answers."""
    from headwise.corpora import Endpoint
    from headwise.errors import DataError

    for name, (url, model) in served.items():
        if model and url is None:
            raise DataError(f"--{name}-model was given without --{name}; give the URL too")
        if url is not None:
            endpoint = Endpoint(url, model)
            chosen["answers"] = replace(chosen.get("answers") or kind(), **{name: endpoint})
