"""`headwise describe`: tell a study of an atlas in words."""

from __future__ import annotations

import json

import typer

from headwise.cli.examples import examples
from headwise.cli.options import AtlasArgument, JsonOption, StudyArgument
from headwise.cli.places import typed
from headwise.cli.settings import refuse_table


def describe(atlas: AtlasArgument, study: StudyArgument, as_json: JsonOption = False) -> None:
    """What a careful reader would see in a map; every number is computed from it."""
    from headwise.analysis import AGREEMENT, agreement, describe_agreement
    from headwise.atlas import Atlas

    opened = Atlas.open(atlas)
    refuse_table(study, typed(atlas), "words")
    words = describe_agreement(agreement(opened)) if study == AGREEMENT else opened.describe(study)
    typer.echo(json.dumps(words.sections(), ensure_ascii=False) if as_json else words.text())


describe.examples = examples(  # type: ignore[attr-defined]
    "headwise describe atlas profile",
    ("headwise describe atlas spectral --json", "by section, for a program"),
    ("headwise describe atlas agreement", "do the studies name the same heads?"),
)
