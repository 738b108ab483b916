"""Arguments and options that several verbs share, including the choice of an engine (this process, or Ray workers)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.core.errors import DataError, EngineError, ModelError, did_you_mean

if TYPE_CHECKING:
    from headwise.engines import Engine

INPUTS, MODEL, ENGINE = "Input data", "Model", "Engine"  # panels of the help
ENGINES = ("local", "ray")
DEFAULT_LIMIT = 500  # questions

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A hub id, a model folder, a .gguf file, or a folder with a PEFT adapter. Default: SmolLM2-135M-Instruct.",
    ),
]
AtlasArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ATLAS",
        help="The folder that headwise build wrote, its URL (s3://BUCKET/NAME, gs://, az://), or hf://datasets/OWNER/NAME.",
    ),
]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="The study, such as profile.")]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="float32, bfloat16, float16, or auto (float32 on a CPU, the dtype of the checkpoint on a GPU).",
        rich_help_panel=MODEL,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1, ... Default: a GPU if one is available.", rich_help_panel=MODEL),
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", help="A branch, tag or commit on the hub.", rich_help_panel=MODEL)
]
AdapterOption = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        help="A PEFT adapter to apply to the model: a folder, or OWNER/NAME on the hub.",
        rich_help_panel=MODEL,
    ),
]
DeviceMapOption = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="MAP",
        help="Split a large model across GPUs, CPU memory and disk: auto, or a .json file that maps modules to a GPU number, "
        "cpu or disk.",
        rich_help_panel=MODEL,
    ),
]
OffloadOption = Annotated[
    Path | None,
    typer.Option(
        "--offload",
        metavar="FOLDER",
        help="With --device-map or --memory: folder for weights offloaded to disk; not needed for safetensors checkpoints.",
        rich_help_panel=MODEL,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="LIMITS",
        help="Maximum memory per device for the model, such as cpu=8GiB,0=20GiB; implies --device-map auto.",
        rich_help_panel=MODEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
QuestionsOption = Annotated[
    str | None,
    typer.Option(
        "--questions",
        help="Your questions: a .jsonl, .csv or .parquet file with the fields question and answers, or the name of a known "
        "dataset. Default: the packaged questions.",
        rich_help_panel=INPUTS,
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        help=f"Maximum number of questions, sampled evenly across topics; 0 means all. Default: {DEFAULT_LIMIT}.",
        rich_help_panel=INPUTS,
    ),
]
StudiesOption = Annotated[
    str | None,
    typer.Option(
        "--studies",
        help="Comma-separated names, such as profile,spectral. Default: all but those that take long; headwise studies lists "
        "both.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Your texts: a .jsonl file with a field text, a .txt file, or a folder of these. Default: the packaged texts.",
        rich_help_panel=INPUTS,
    ),
]

StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Your multi-step questions, each step labelled with a function: a .json, .jsonl or .csv file. "
        "Default: the packaged questions.",
        rich_help_panel=INPUTS,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING",
        help="Set an option of a study: STUDY.OPTION=VALUE, such as spectral.k=50; may be repeated.",
    ),
]
OneMeansOption = Annotated[
    str | None,
    typer.Option(
        "--one-means", help="The meaning of 1 in your label column: correct or wrong.", rich_help_panel=INPUTS
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="RATE",
        help="Raise an alarm above the score that this share of correct answers exceeds: 10%, or 0.1.",
    ),
]
RiskOption = Annotated[
    str | None,
    typer.Option(
        "--risk",
        metavar="RATE",
        help="Raise an alarm above the score below which at most this share of answers is wrong: 20%, or 0.2.",
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="local: measure in this process. ray: measure in Ray workers, each of which loads the model.",
        rich_help_panel=ENGINE,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="A running Ray cluster: auto, HOST:6379, or ray://HOST:10001. Default: this machine only.",
        rich_help_panel=ENGINE,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", help="Maximum number of workers. Default: as many as fit.", rich_help_panel=ENGINE),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        help="GPUs of each worker: 2 or more split a large model across them; 0.5 lets two workers share one. Default of "
        "build: 1 if there are GPUs, otherwise 0; of plan: as few as the model fits on.",
        rich_help_panel=ENGINE,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads-per-worker",
        help="CPU threads per worker. Default: as many as this process would use, so that results agree to "
        "the last digit.",
        rich_help_panel=ENGINE,
    ),
]


def at_most(limit: int | None) -> int | None:
    """The number of questions that `--limit` selects; None: all.

    >>> at_most(None), at_most(0), at_most(20)
    (500, None, 20)
    """
    return DEFAULT_LIMIT if limit is None else limit or None


def parse_rate(option: str, text: str | None) -> float | None:
    """A share between nothing and everything, typed as a percentage or as a fraction; None stays None.

    >>> parse_rate("--at", "10%"), parse_rate("--at", "0.1"), parse_rate("--at", "2.5 %")
    (0.1, 0.1, 0.025)
    """
    if text is None:
        return None
    number = text.strip().removesuffix("%").strip()
    percent = text.strip().endswith("%")
    try:
        rate = float(number) / (100 if percent else 1)
    except ValueError:
        rate = math.nan
    if 0 < rate < 1:
        return rate
    meant = f"did you mean {number}%?" if not percent and 1 < rate < 100 else "write 10% or 0.1, for example."
    raise DataError(f"{option} takes a rate between 0 and 1 (0% and 100%), not {text!r}; {meant}")


def split(names: str | None) -> list[str] | None:
    """Comma-separated names as a list; None stays None."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def refuse_unused_offload(offload: Path | None, device_map: str | None, memory: str | None) -> None:
    """Refuse a folder for weights on disk where nothing places weights on disk."""
    if offload is not None and device_map is None and memory is None:
        raise ModelError(
            "--offload is the folder for weights on disk of a model that is split; add --device-map auto or --memory "
            "cpu=8GiB, or omit it."
        )


def refuse_without_ray(engine: str, given: dict[str, object]) -> None:
    """Refuse an unknown engine, and options for Ray workers without Ray."""
    if engine not in ENGINES:
        raise EngineError(f"There is no engine {engine!r}. {did_you_mean(engine, ENGINES)}")
    named = [option for option, value in given.items() if value is not None]
    if engine == "local" and named:
        raise EngineError(
            f"{named[0]} is for Ray workers, but --engine local has none; add --engine ray, or omit {named[0]}."
        )


def engine_for(
    engine: str,
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    threads_per_worker: int | None = None,
) -> Engine:
    """The engine with the given options."""
    from headwise.engines import LocalEngine, RayEngine
    from headwise.engines.ray.connection import import_ray

    if engine == "local":
        return LocalEngine()
    import_ray()  # reports a missing package before the model is loaded
    return RayEngine(address, workers, gpus_per_worker, threads_per_worker)
