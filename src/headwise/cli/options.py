"""Options that several verbs share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SHOWN, MODEL = "What the model is shown", "The model"  # boxes of the help

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A hub id, a folder, a .gguf file, or a PEFT adapter's folder. Default: SmolLM2-135M-Instruct.",
        show_default=False,
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
        help="float32, bfloat16, float16, or auto (float32 on a CPU, the checkpoint's own on a GPU).",
        rich_help_panel=MODEL,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="cpu, cuda, cuda:1, ... Default: a GPU if there is one.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option("--revision", help="A branch, tag or commit of the hub.", show_default=False, rich_help_panel=MODEL),
]
AdapterOption = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        help="A PEFT adapter to put on the model: a folder, or owner/name on the hub.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
DeviceMapOption = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="MAP",
        help="Spread a large model over GPUs, memory and disk: auto, or a .json file of module -> GPU number, cpu or disk.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
OffloadOption = Annotated[
    Path | None,
    typer.Option(
        "--offload",
        metavar="FOLDER",
        help="With --device-map: where weights on disk go if they must be rewritten (safetensors need none).",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="LIMITS",
        help="What each device may hold of the model, such as cpu=8GiB,0=20GiB; alone it means --device-map auto.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
QuestionsOption = Annotated[
    str | None,
    typer.Option(
        "--questions",
        help="Your questions: .jsonl, .csv or .parquet with question and answers, or the name of a known set. "
        "Default: the packaged ones.",
        show_default=False,
        rich_help_panel=SHOWN,
    ),
]
LIMIT = 500
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        help=f"How many questions, evenly over topics; 0 is all. Default: {LIMIT}.",
        show_default=False,
        rich_help_panel=SHOWN,
    ),
]
StudiesOption = Annotated[
    str | None,
    typer.Option(
        "--studies",
        help="Comma-separated, such as profile,spectral. Default: all but samples, circuits and sparsity, which take long.",
        show_default=False,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Your texts: .jsonl with a field text, .txt, or a folder of them. Default: the packaged ones.",
        show_default=False, rich_help_panel=SHOWN,
    ),
]  # fmt: skip

StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Your questions in steps, each labelled with a function: a .json, .jsonl or .csv file. "
        "Default: the packaged ones.",
        show_default=False,
        rich_help_panel=SHOWN,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING",
        help="An option of a study as STUDY.OPTION=VALUE, such as spectral.k=50; may be given several times.",
        show_default=False,
    ),
]
OneMeansOption = Annotated[
    str | None,
    typer.Option(
        "--one-means",
        help="What 1 means in your column of labels: correct or wrong.",
        show_default=False,
        rich_help_panel=SHOWN,
    ),
]


def at_most(limit: int | None) -> int | None:
    """How many questions `--limit` asks for; None: all.

    >>> at_most(None), at_most(0), at_most(20)
    (500, None, 20)
    """
    return LIMIT if limit is None else limit or None


def split(names: str | None) -> list[str] | None:
    """Comma-separated names as a list; None stays None."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]
