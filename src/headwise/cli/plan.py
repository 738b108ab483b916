"""`headwise plan`: what a build will cost, before anything is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from headwise.cli.catalogue import refuse_unknown
from headwise.cli.examples import examples
from headwise.cli.options import (
    DataOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    LimitOption,
    ModelArgument,
    QuestionsOption,
    RevisionOption,
    StepsOption,
    StudiesOption,
    split,
)
from headwise.cli.places import refuse_missing_file

if TYPE_CHECKING:
    from headwise.studies.planning import Plan


def plan(
    model: ModelArgument = None,
    studies: StudiesOption = None,
    data: DataOption = None,
    questions: QuestionsOption = None,
    limit: LimitOption = 500,
    steps: StepsOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    revision: RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memory, disk and time of a build, from the model's config alone.

    Ends with exit code 1 if the memory is not there.
    """
    refuse_unknown(split(studies) or [])
    for option, place in (("--data", data), ("--steps", steps)):
        refuse_missing_file(option, place)
    from headwise.corpora import find_questions, packaged_passages, read_passages, read_steps
    from headwise.model import choose_device, choose_dtype, read_card
    from headwise.studies.building import check_studies, default_studies, with_needed
    from headwise.studies.loads import Shown
    from headwise.studies.planning import plan as estimate

    names = with_needed(check_studies(split(studies) or default_studies()))
    asked = len(find_questions(questions))
    passages = packaged_passages() if data is None else read_passages(data)
    card = read_card(model, revision=revision)
    where = choose_device(device)
    shown = Shown(passages, min(limit, asked) if limit else asked, None if steps is None else read_steps(steps))
    result = estimate(card, shown, names, dtype=choose_dtype(dtype, card.config, where), device=where)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        typer.echo(f"{card.describe()}\n\nIn {result.dtype} on {result.device}:")
        _print(result)
    if not result.fits:
        raise typer.Exit(1)


def _print(result: Plan) -> None:
    for kind, name, value, about in result.rows():
        typer.echo(f"  {kind:<7} {name:<24} {value:>9}   {about}".rstrip())
    typer.echo(result.verdict())


plan.examples = examples(  # type: ignore[attr-defined]
    ("headwise plan", "the default model, all studies"),
    "headwise plan ./my-model --dtype bfloat16 --json",
    ("headwise plan --studies spectral --limit 2000", "one study, and what it is made from"),
)
