"""`headwise build`: measure a model and keep its atlas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.examples import examples
from headwise.cli.places import beside, refuse_missing_file, refuse_missing_model, refuse_unwritable
from headwise.cli.settings import refuse_unknown
from headwise.cli.unused import refuse_unused
from headwise.cli.workers import (
    AddressOption,
    EngineOption,
    GpusOption,
    ThreadsOption,
    WorkersOption,
    engine_for,
    refuse_without_ray,
)
from headwise.core.dims import head_name, parse_heads
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.studies.registry import dataset_spec

SERVED = "Answers and labels from a server"


def build(
    model: options.ModelArgument = None,
    studies: options.StudiesOption = None,
    data: options.DataOption = None,
    questions: options.QuestionsOption = None,
    limit: options.LimitOption = None,
    relations: Annotated[
        str | None,
        typer.Option(
            "--relations",
            help="Your pairs of words: a .json, .csv or .tsv file, or a folder of them. Default: the packaged ones.",
            show_default=False,
            rich_help_panel=options.SHOWN,
        ),
    ] = None,
    steps: options.StepsOption = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            "--against",
            metavar="MODEL",
            help="The model or PEFT adapter that patterns are compared with: a folder, or owner/name. Default: the sparse "
            "adapter that ships for the model, if there is one; none: nothing.",
            show_default=False,
            rich_help_panel=options.SHOWN,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The atlas: a folder or a URL (s3://BUCKET/NAME), new or to add to.")
    ] = Path("atlas"),
    redo: Annotated[str, typer.Option("--redo", help="Studies to measure anew, comma-separated.")] = "",
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = None,
    device_map: options.DeviceMapOption = None,
    offload: options.OffloadOption = None,
    memory: options.MemoryOption = None,
    revision: options.RevisionOption = None,
    adapter: options.AdapterOption = None,
    settings: options.SetOption = None,
    one_means: options.OneMeansOption = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            help="Answers come from the model at this OpenAI-compatible URL.",
            show_default=False,
            rich_help_panel=SERVED,
        ),
    ] = None,
    endpoint_model: Annotated[
        str,
        typer.Option(
            "--endpoint-model", help="The model's name at the endpoint.", show_default=False, rich_help_panel=SERVED
        ),
    ] = "",
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            help="Labels come from the model at this OpenAI-compatible URL.",
            show_default=False,
            rich_help_panel=SERVED,
        ),
    ] = None,
    judge_model: Annotated[
        str,
        typer.Option(
            "--judge-model", help="The judge's name at its endpoint.", show_default=False, rich_help_panel=SERVED
        ),
    ] = "",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Let code that comes with the model run.", rich_help_panel=options.MODEL
        ),
    ] = False,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = None,
    threads_per_worker: ThreadsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Build the atlas of a model: every study measured, stored, drawn and told.

    A killed build goes on where it was when the same command is given again. Figures and a report are written beside
    the atlas, or into the current folder where it is at a URL.
    """
    names, again = options.split(studies), options.split(redo) or []
    refuse_unknown([*(names or []), *again], settings or [])
    given: dict[str, Any] = {"--data": data, "--questions": questions, "--relations": relations, "--steps": steps}
    given |= {
        "--reference": reference,
        "--limit": limit,
        "--one-means": one_means,
        "--endpoint": endpoint,
        "--judge": judge,
    }
    refuse_unused(names, given, settings or [], again)
    for option, place in (("--data", data), ("--relations", relations), ("--steps", steps)):
        refuse_missing_file(option, place)
    if questions is not None and Path(questions).suffix and "=" not in questions:
        refuse_missing_file("--questions", questions)
    off = _heads_off(settings or [], reference)
    refuse_missing_model("--adapter", adapter, ("adapter_config.json",))
    refuse_missing_model("--reference", reference)
    cluster: dict[str, Any] = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    cluster |= {"threads_per_worker": threads_per_worker}
    refuse_without_ray(engine, {f"--{name.replace('_', '-')}": value for name, value in cluster.items()})
    _refuse_no_room(output)
    runs = engine_for(engine, **cluster)
    served = _served({"endpoint": (endpoint, endpoint_model), "judge": (judge, judge_model)})
    from headwise.corpora import find_questions, read_passages, read_relations, read_steps

    shown: dict[str, Any] = {  # read before what takes long to load: a fault in a file is told at once
        "data": None if data is None else read_passages(data),
        "questions": None if questions is None else find_questions(questions, one_means=one_means),
        "relations": None if relations is None else read_relations(relations),
        "steps": None if steps is None else read_steps(steps),
    }
    from headwise.cli.pictures import write_pictures
    from headwise.cli.settings import study_options
    from headwise.studies import AnsweringOptions
    from headwise.studies import build as run_build
    from headwise.studies.present import has_figure
    from headwise.studies.progress import ProgressListener, progress_display
    from headwise.web.report import write as write_report

    chosen = study_options(settings or [])
    if served:
        chosen["answers"] = replace(chosen.get("answers") or AnsweringOptions(), **served)
    if off:
        _refuse_missing_heads(off, model, revision)
    with progress_display(quiet=as_json) as bars:
        if engine == "local":
            bars.message(f"loading {model or 'the default model'}")
        loading: dict[str, Any] = {"dtype": dtype, "device": device, "revision": revision, "adapter": adapter}
        loading |= {"device_map": device_map, "offload_folder": offload, "max_memory": memory}
        atlas = run_build(
            model,
            names,
            **shown,
            limit=options.at_most(limit),
            reference=reference,
            output=output,
            options=chosen,
            redo=again,
            progress=ProgressListener(bars),
            loading={**loading, "trust_remote_code": trust_remote_code},
            engine=runs,
        )
        bars.worker_lines([])
        bars.message("drawing")
        files = write_pictures(atlas, beside(output, "-figures"))
        bars.message("writing the report")
        report = write_report(atlas, beside(output, "-report.html"))
    if as_json:
        written = [str(file) for file in (report, *files)]
        typer.echo(json.dumps({"atlas": str(atlas.location), "studies": atlas.studies, "files": written}))
        return
    typer.echo(f"The atlas is in {atlas.location}: {_listed(atlas.studies)}.")
    typer.echo(f"The report is {report}; open it in a browser.")
    if files:
        typer.echo(f"Figures for papers are in {files[0].parent}.")
    for study in filter(has_figure, atlas.studies):
        typer.echo(f"\n{study}: {atlas.describe(study).short()}")


build.examples = examples(  # type: ignore[attr-defined]
    ("headwise build", "the default model, all studies, into the folder atlas"),
    ("headwise build ./my-model -o atlases/mine", "a model in a folder"),
    (
        "headwise build Qwen/Qwen2.5-0.5B --studies profile --data texts.jsonl",
        "one study of a hub model, on your texts",
    ),
    ("headwise build ./llama-70b --studies relations", "from its weights alone: it is not loaded"),
    (
        "headwise build ./llama-70b --studies profile --memory cpu=20GiB",
        "larger than memory: the rest is read from disk",
    ),
    ("headwise build --questions triviaqa --limit 1000 --set spectral.k=50", "a known set, and an option of a study"),
    ("headwise build --questions answered.csv --one-means wrong", "answers and labels that you have"),
    ("headwise build --studies patterns --reference ./my-sparse-adapter", "attention maps, dense against sparse"),
    ("headwise build --engine ray --workers 2", "two workers on this machine, each with the model"),
    ("headwise build ./llama-70b --engine ray --address auto --gpus-per-worker 4", "on a cluster, four GPUs a worker"),
    ("headwise build --endpoint http://localhost:8000/v1 --endpoint-model my-model", "answers from a server"),
)


def _listed(studies: Sequence[str]) -> str:
    """The studies that the report counts, then the table that has no page there.

    >>> _listed(["profile", "relations", "salience"])
    'profile, relations. Without a page of its own: salience'
    """
    hidden = [name for name in studies if (spec := dataset_spec(name)) is not None and not spec.has_page]
    own = ", ".join(study for study in studies if study not in hidden)
    return own + (f". Without a page of its own: {', '.join(hidden)}" if hidden else "")


def _refuse_no_room(output: Path) -> None:
    """Refuse a place where the atlas, or the figures beside it, could not be written; asked before the model is loaded."""
    refuse_unwritable("-o", output)
    refuse_unwritable("-o", beside(output, "-figures"))
    if output.is_dir() and not (output / "zarr.json").exists():
        from headwise.atlas.local_store import LocalStore

        LocalStore(output).refuse_occupied()


def _served(given: dict[str, tuple[str | None, str]]) -> dict[str, Any]:
    """The endpoints that were asked for, as options of the answers."""
    for name, (url, model) in given.items():
        if model and url is None:
            raise DataError(f"--{name}-model was given without --{name}; give the URL too")
    from headwise.corpora import Endpoint

    return {name: Endpoint(url, model) for name, (url, model) in given.items() if url is not None}


def _heads_off(settings: Sequence[str], reference: str | None) -> list[tuple[int, int]]:
    """The heads that patterns are to be compared without; that, or another model, not both."""
    given = [text.partition("=")[2].strip() for text in settings if text.split("=")[0].strip() == "patterns.heads_off"]
    heads = parse_heads(given[-1]) if given and given[-1].lower() != "none" else []
    if heads and reference is not None and reference.lower() != "none":
        raise StudyError(
            f"Patterns are compared with another model (--reference {reference}) or without heads "
            f"(--set patterns.heads_off={given[-1]}), not both at once; leave one of them out."
        )
    return heads


def _refuse_missing_heads(heads: Sequence[tuple[int, int]], model: str | None, revision: str | None) -> None:
    """Heads that the model does not have, told by its config; what has none (an adapter's folder) is looked at later."""
    from headwise.model import read_card

    try:
        card = read_card(model, revision=revision)
    except ModelError:
        return
    for layer, head in heads:
        if layer >= card.layers or head >= card.heads:
            raise StudyError(
                f"patterns.heads_off names {head_name(layer, head)}, and {card.id} has {card.layers} layers of {card.heads} "
                f"heads: name heads from L0H0 to {head_name(card.layers - 1, card.heads - 1)}."
            )
