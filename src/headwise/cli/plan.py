"""`headwise plan`: what a build will cost, before anything is loaded."""

from __future__ import annotations

import json

import typer

from headwise.cli.options import (
    DataOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    RevisionOption,
    StudiesOption,
    split,
)


def plan(
    model: ModelArgument = None,
    studies: StudiesOption = None,
    data: DataOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memory, disk and time of a build, from the model's config alone.

    Ends with exit code 1 if the memory is not there.
    """
    from headwise.corpora import packaged_passages, read_passages
    from headwise.model import choose_device, choose_dtype, read_card
    from headwise.studies import STUDIES
    from headwise.studies.building import check_studies
    from headwise.studies.planning import plan as estimate

    names = check_studies(split(studies) or list(STUDIES))
    passages = packaged_passages() if data is None else read_passages(data)
    card = read_card(model, revision=revision)
    where = choose_device(device)
    result = estimate(card, passages, names, dtype=choose_dtype(dtype, card.config, where), device=where)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        typer.echo(card.describe())
        typer.echo(
            f"\n{', '.join(result.studies)} on {result.examples} examples, about {result.tokens:,} tokens, "
            f"in {result.dtype} on {result.device}:"
        )
        for part, size in result.memory.items():
            typer.echo(f"  memory  {part:<24} {_bytes(size):>9}")
        there = "" if result.memory_there is None else f" of {_bytes(result.memory_there)}"
        typer.echo(f"  memory  {'in all':<24} {_bytes(result.memory_total):>9}{there}")
        typer.echo(f"  disk    {'atlas':<24} {_bytes(result.disk):>9}")
        typer.echo(
            f"  time    {'':<24} {_time(result.seconds):>9}   at {result.flops / 1e9:,.0f} Gflop/s, measured here"
        )
        typer.echo("It fits." if result.fits else "It does not fit: use a smaller dtype, a GPU, or a smaller model.")
    if not result.fits:
        raise typer.Exit(1)


plan.examples = "[b]Examples[/b]\n\nheadwise plan\n\nheadwise plan ./my-model --dtype bfloat16 --json"  # type: ignore[attr-defined]


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
