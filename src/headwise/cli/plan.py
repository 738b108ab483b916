"""`headwise plan`: what a build will cost, before anything is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from headwise.cli.catalogue import refuse_unknown
from headwise.cli.options import (
    DataOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    LimitOption,
    ModelArgument,
    QuestionsOption,
    RevisionOption,
    StudiesOption,
    split,
)

if TYPE_CHECKING:
    from headwise.studies.planning import Plan


def plan(
    model: ModelArgument = None,
    studies: StudiesOption = None,
    data: DataOption = None,
    questions: QuestionsOption = None,
    limit: LimitOption = 500,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memory, disk and time of a build, from the model's config alone.

    Ends with exit code 1 if the memory is not there.
    """
    refuse_unknown(split(studies) or [])
    from headwise.corpora import find_questions, packaged_passages, read_passages
    from headwise.model import choose_device, choose_dtype, read_card
    from headwise.studies.building import check_studies, default_studies, with_needed
    from headwise.studies.loads import Shown
    from headwise.studies.planning import plan as estimate

    names = with_needed(check_studies(split(studies) or default_studies()))
    asked = len(find_questions(questions))
    passages = packaged_passages() if data is None else read_passages(data)
    card = read_card(model, revision=revision)
    where = choose_device(device)
    shown = Shown(passages, min(limit, asked) if limit else asked)
    result = estimate(card, shown, names, dtype=choose_dtype(dtype, card.config, where), device=where)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        typer.echo(f"{card.describe()}\n\nIn {result.dtype} on {result.device}:")
        _print(result)
    if not result.fits:
        raise typer.Exit(1)


def _print(result: Plan) -> None:
    for part, size in result.memory.items():
        typer.echo(f"  memory  {part:<24} {_bytes(size):>9}")
    there = "" if result.memory_there is None else f" of {_bytes(result.memory_there)}"
    typer.echo(f"  memory  {'in all':<24} {_bytes(result.memory_total):>9}{there}")
    typer.echo(f"  disk    {'atlas':<24} {_bytes(result.disk):>9}")
    for name, row in result.studies.items():
        about = f"{row['examples']:,.0f} examples, {row['tokens']:,.0f} tokens" if row["tokens"] else "weights alone"
        typer.echo(f"  time    {name:<24} {_time(row['seconds']):>9}   {about}")
    for name in result.unknown:
        typer.echo(f"  time    {name:<24} {'?':>9}   not estimated")
    typer.echo(
        f"  time    {'in all':<24} {_time(result.seconds):>9}   at {result.flops / 1e9:,.0f} Gflop/s, measured here"
    )
    typer.echo("It fits." if result.fits else "It does not fit: use a smaller dtype, a GPU, or a smaller model.")


plan.examples = (  # type: ignore[attr-defined]
    "[b]Examples[/b]\n\nheadwise plan\n\nheadwise plan ./my-model --dtype bfloat16 --json\n\n"
    "headwise plan --studies spectral --limit 2000"
)


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
