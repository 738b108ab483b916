"""`headwise studies`: which studies there are, and the options of each."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Annotated, Any

import typer

from headwise.cli.options import JsonOption
from headwise.cli.settings import kind_of
from headwise.cli.usage import examples
from headwise.studies.registry import producers
from headwise.studies.registry import studies as all_studies
from headwise.studies.spec import StudySpec


def studies(
    name: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study: its options and their defaults.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the studies, those of installed packages included; with a name, the options of that study.

    Options are given to build as --set STUDY.OPTION=VALUE.
    """
    chosen = all_studies().values() if name is None else [all_studies()[one] for one in producers([name])]
    rows = [_facts(spec) for spec in chosen]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        note = " (built only when named)" if row["opt_in"] else ""
        typer.echo(f"{row['name']:<20} {row['question']}{note}")
        if name is not None:
            _print_details(row)


def _facts(spec: StudySpec) -> dict[str, Any]:
    hints = typing.get_type_hints(spec.options)
    options = [
        {"name": one.name, "type": kind_of(hints[one.name]), "default": one.default, "help": one.metadata["help"]}
        for one in dataclasses.fields(spec.options)
    ]
    return {
        "name": spec.name,
        "question": spec.dataset.question,
        "produces": [one.name for one in spec.produces],
        "depends_on": list(spec.depends_on),
        "opt_in": spec.opt_in,
        "source": spec.dataset.method.source,
        "options": options,
    }


def _print_details(row: dict[str, Any]) -> None:
    for key, what in (("produces", "Produces"), ("depends_on", "Depends on")):
        if row[key]:
            typer.echo(f"{what}: {', '.join(row[key])}")
    if row["source"]:
        typer.echo(f"After: {row['source']}")
    for one in row["options"]:
        default = "none" if one["default"] is None else one["default"]
        typer.echo(f"\n  --set {row['name']}.{one['name']}=<{one['type']}>  (default: {default})\n      {one['help']}")


studies.examples = examples(  # type: ignore[attr-defined]
    ("headwise studies", "all studies, with the question each answers"),
    ("headwise studies spectral", "its options, their defaults and what they mean"),
)
