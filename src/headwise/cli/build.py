"""`headwise build`: measure a model and write its atlas, figures and report."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import options
from headwise.cli.first_steps import summary
from headwise.cli.preflight import (
    refuse_ignored_options,
    refuse_missing_file,
    refuse_missing_model,
    refuse_unwritable,
    sibling_path,
)
from headwise.cli.settings import refuse_unknown, study_options
from headwise.cli.terminal import echo
from headwise.cli.usage import examples
from headwise.core.dims import head_name, parse_heads
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.studies.registry import default_studies
from headwise.studies.spec import QUICK_QUESTIONS

if TYPE_CHECKING:
    from headwise.atlas import Atlas, TrainingAtlas

ENDPOINTS = "Answers and labels from a server"  # panel of the help
FIGURE_FORMATS = ("png", "svg", "pdf")


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
            help="Your word pairs: a .json, .csv or .tsv file, or a folder of these. Default: the packaged relations.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    steps: options.StepsOption = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            "--against",
            metavar="MODEL",
            help="Compare patterns with this model or PEFT adapter: a folder, or OWNER/NAME on the hub; none disables it. "
            "Default: the packaged sparse adapter of the model, if there is one.",
            rich_help_panel=options.INPUTS,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The atlas, new or existing: a folder or a URL (s3://BUCKET/NAME).")
    ] = Path("atlas"),
    redo: Annotated[str, typer.Option("--redo", help="Studies to measure again, comma-separated.")] = "",
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
        typer.Option("--endpoint", help="Get the answers from this OpenAI-compatible URL.", rich_help_panel=ENDPOINTS),
    ] = None,
    endpoint_model: Annotated[
        str, typer.Option("--endpoint-model", help="The name of the model at the endpoint.", rich_help_panel=ENDPOINTS)
    ] = "",
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            help="Get the labels from a judge model at this OpenAI-compatible URL.",
            rich_help_panel=ENDPOINTS,
        ),
    ] = None,
    judge_model: Annotated[
        str,
        typer.Option("--judge-model", help="The name of the judge model at its endpoint.", rich_help_panel=ENDPOINTS),
    ] = "",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Allow code in the model repository to run.", rich_help_panel=options.MODEL
        ),
    ] = False,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    workers: options.WorkersOption = None,
    gpus_per_worker: options.GpusOption = None,
    threads_per_worker: options.ThreadsOption = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"A first look: at most {QUICK_QUESTIONS} questions, fewer texts and shuffles, and without the studies that "
            "take longest. Figures, words and report say so.",
        ),
    ] = False,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints",
            metavar="NAMES",
            help="Measure the checkpoints of a training run, whose folder or hub id MODEL is: a pattern of folders ('step-*'), "
            "names of folders or revisions (step1000,step2000), or steps with names (0=init,500=final). Then read them with "
            "headwise emergence.",
            show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Build the atlas of a model: measure every study, store the results, draw and describe them.

    A killed build resumes when the same command is run again. Figures and a report are written next to the atlas, or into
    the current folder if the atlas is at a URL.
    """
    names, remeasured = options.split(studies), options.split(redo) or []
    refuse_unknown([*(names or []), *remeasured], settings or [])
    given: dict[str, Any] = {"--data": data, "--questions": questions, "--relations": relations, "--steps": steps}
    given |= {"--reference": reference, "--limit": limit, "--one-means": one_means}
    given |= {"--endpoint": endpoint, "--judge": judge}
    refuse_ignored_options(default_studies(quick=quick) if names is None else names, given, settings or [], remeasured)
    if quick and limit is not None and not 0 < limit <= QUICK_QUESTIONS:
        raise StudyError(
            f"--quick asks at most {QUICK_QUESTIONS} questions, and --limit says {limit or 'all'}; omit one of the two."
        )
    started = time.monotonic()
    for option, path in (("--data", data), ("--relations", relations), ("--steps", steps)):
        refuse_missing_file(option, path)
    if questions is not None and Path(questions).suffix and "=" not in questions:
        refuse_missing_file("--questions", questions)
    off = _heads_off(settings or [], reference)
    options.refuse_unused_offload(offload, device_map, memory)
    refuse_missing_model("--adapter", adapter, ("adapter_config.json",))
    refuse_missing_model("--reference", reference)
    cluster: dict[str, Any] = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    cluster |= {"threads_per_worker": threads_per_worker}
    options.refuse_without_ray(engine, {f"--{name.replace('_', '-')}": value for name, value in cluster.items()})
    _refuse_unwritable_output(output, training=checkpoints is not None)
    if checkpoints is not None and revision is not None:
        raise ModelError("With --checkpoints, revisions are the checkpoints; omit --revision.")
    runner = options.engine_for(engine, **cluster)
    endpoints = _endpoints({"endpoint": (endpoint, endpoint_model), "judge": (judge, judge_model)})
    from headwise.corpora import find_questions, read_passages, read_relations, read_steps

    inputs: dict[str, Any] = {  # read before the slow imports below, so that a bad file is reported at once
        "data": None if data is None else read_passages(data),
        "questions": None if questions is one_means is None else find_questions(questions, one_means=one_means),
        "relations": None if relations is None else read_relations(relations),
        "steps": None if steps is None else read_steps(steps),
    }
    from headwise.studies import AnsweringOptions
    from headwise.studies import build as run_build
    from headwise.studies.progress import ProgressListener, progress_display
    from headwise.web.report import write as write_report

    chosen = study_options(settings or [], quick=quick)
    if endpoints:
        chosen["answers"] = replace(chosen.get("answers") or AnsweringOptions(), **endpoints)
    if off:
        _refuse_missing_heads(off, model, revision)
    with progress_display(quiet=as_json) as bars:
        if engine == "local":
            bars.message(f"loading {model or 'the default model'}")
        loading: dict[str, Any] = {"dtype": dtype, "device": device, "revision": revision, "adapter": adapter}
        loading |= {"device_map": device_map, "offload_folder": offload, "max_memory": memory}
        arguments: dict[str, Any] = {
            **inputs,
            "limit": options.at_most(limit),
            "reference": reference,
            "output": output,
            "options": chosen,
            "redo": remeasured,
            "progress": ProgressListener(bars),
            "loading": {**loading, "trust_remote_code": trust_remote_code},
            "engine": runner,
            "quick": quick,
        }
        if checkpoints is not None:
            training = run_build(model, names, checkpoints=checkpoints, **arguments)
            _finish_training(training, output, as_json=as_json)
            return
        atlas = run_build(model, names, **arguments)
        bars.worker_lines([])
        bars.message("drawing")
        files = write_figures(atlas, sibling_path(output, "-figures"))
        bars.message("writing the report")
        report = write_report(atlas, sibling_path(output, "-report.html"))
    if as_json:
        written = [str(file) for file in (report, *files)]
        echo(json.dumps({"atlas": str(atlas.location), "studies": atlas.studies, "files": written}))
        return
    for line in summary(atlas, report, files[0].parent if files else None, time.monotonic() - started):
        echo(line)


build.examples = examples(  # type: ignore[attr-defined]
    ("headwise build", "the default model, all default studies; writes the folder atlas"),
    ("headwise build --quick", "a first look in about two minutes, marked as such"),
    ("headwise build ./my-model -o atlases/mine", "a model in a folder"),
    (
        "headwise build Qwen/Qwen2.5-0.5B --studies profile --data texts.jsonl",
        "one study of a model on the hub, on your texts",
    ),
    ("headwise build ./llama-70b --studies relations", "from the weights alone; the model is not loaded"),
    (
        "headwise build ./llama-70b --studies profile --memory cpu=20GiB",
        "larger than memory: the rest is read from disk",
    ),
    (
        "headwise build --questions triviaqa --limit 1000 --set spectral.k=50",
        "a known dataset, and an option of a study",
    ),
    ("headwise build --questions answered.csv --one-means wrong", "your own answers and labels"),
    (
        "headwise build --studies patterns --reference ./my-sparse-adapter",
        "attention maps of the dense and the sparse model",
    ),
    ("headwise build --engine ray --workers 2", "two workers on this machine"),
    (
        "headwise build ./my-run --checkpoints 'checkpoint-*' --studies profile -o training-atlas",
        "every checkpoint of a training run",
    ),
    (
        "headwise build ./llama-70b --engine ray --address auto --gpus-per-worker 4",
        "on a cluster, four GPUs per worker",
    ),
    ("headwise build --endpoint http://localhost:8000/v1 --endpoint-model my-model", "answers from a server"),
)


def write_figures(atlas: Atlas, folder: Path) -> list[Path]:
    """Write every figure as PNG, SVG and PDF into a folder, which is created; returns the files."""
    from headwise.core.files import translate_os_errors
    from headwise.figures import save
    from headwise.studies.present import has_figure

    files = []
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for study in filter(has_figure, atlas.studies):
            figure = atlas.figure(study)
            for suffix in FIGURE_FORMATS:
                files.append(folder / f"{study}.{suffix}")
                save(figure, files[-1])
    return files


def _finish_training(training: TrainingAtlas, output: Path, *, as_json: bool) -> None:
    """Draw the figure of an atlas over training, where a study measured heads, and say what there is."""
    from headwise.analysis import describe_emergence, emergence, emergence_figure
    from headwise.core.files import make_folder
    from headwise.figures import save

    files, headline = [], ""
    with suppress(StudyError):
        found = emergence(training)
        headline = describe_emergence(found).short()
        folder = make_folder(sibling_path(output, "-figures"))
        figure = emergence_figure(found).with_alt(headline)
        files = [save(figure, folder / f"emergence.{suffix}") for suffix in FIGURE_FORMATS]
    if as_json:
        facts = {"training_atlas": str(output), "steps": training.steps, "studies": training.studies}
        echo(json.dumps(facts | {"files": [str(file) for file in files]}))
        return
    echo(f"{output}: {len(training)} checkpoints, steps {training.steps[0]} to {training.steps[-1]}")
    if files:
        echo(headline)
        echo(f"figure: {files[0]}")
    echo(
        f"Next: headwise emergence {output}; one checkpoint: headwise describe {output}/step-{training.steps[-1]} STUDY"
    )


def _refuse_unwritable_output(output: Path, *, training: bool) -> None:
    """Refuse a folder in which the atlas, or the figures next to it, could not be written."""
    refuse_unwritable("-o", output)
    refuse_unwritable("-o", sibling_path(output, "-figures"))
    if output.is_dir() and not training and not (output / "zarr.json").exists():
        from headwise.atlas.local_store import LocalStore

        LocalStore(output).refuse_occupied()


def _endpoints(given: dict[str, tuple[str | None, str]]) -> dict[str, Any]:
    """The given endpoints, as options of the study answers."""
    for name, (url, model) in given.items():
        if model and url is None:
            raise DataError(f"--{name}-model needs the URL of the server; add --{name} URL.")
        if url is not None and not model:
            raise DataError(f"--{name} needs the model's name there; add --{name}-model NAME.")
    from headwise.corpora import Endpoint

    return {name: Endpoint(url, model) for name, (url, model) in given.items() if url is not None}


def _heads_off(settings: Sequence[str], reference: str | None) -> list[tuple[int, int]]:
    """The heads to ablate in the comparison of patterns; refused together with a reference model."""
    given = [text.partition("=")[2].strip() for text in settings if text.split("=")[0].strip() == "patterns.heads_off"]
    heads = parse_heads(given[-1]) if given and given[-1].lower() != "none" else []
    if heads and reference is not None and reference.lower() != "none":
        raise StudyError(
            f"Patterns are compared either with another model (--reference {reference}) or with ablated heads "
            f"(--set patterns.heads_off={given[-1]}), not both at once; omit one of them."
        )
    return heads


def _refuse_missing_heads(heads: Sequence[tuple[int, int]], model: str | None, revision: str | None) -> None:
    """Refuse heads that the model does not have by its config; without a config (an adapter), this is checked later."""
    from headwise.model import read_card

    try:
        card = read_card(model, revision=revision)
    except ModelError:
        return
    for layer, head in heads:
        if layer >= card.layers or head >= card.heads:
            raise StudyError(
                f"patterns.heads_off names {head_name(layer, head)}, but {card.id} has {card.layers} layers of {card.heads} "
                f"heads; give heads from L0H0 to {head_name(card.layers - 1, card.heads - 1)}."
            )
