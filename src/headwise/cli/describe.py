"""`headwise describe`: describe a study of an atlas in words."""

from __future__ import annotations

import json

import typer

from headwise.cli.options import AtlasArgument, JsonOption, StudyArgument
from headwise.cli.preflight import as_typed
from headwise.cli.settings import refuse_table
from headwise.cli.usage import examples


def describe(atlas: AtlasArgument, study: StudyArgument, as_json: JsonOption = False) -> None:
    """Describe the findings of a study in words; every number is computed from the atlas."""
    from headwise.analysis import AGREEMENT, agreement, describe_agreement
    from headwise.atlas import Atlas

    opened = Atlas.open(atlas)
    refuse_table(study, as_typed(atlas), "description")
    words = describe_agreement(agreement(opened)) if study == AGREEMENT else opened.describe(study)
    typer.echo(json.dumps(words.sections(), ensure_ascii=False) if as_json else words.text())


describe.examples = examples(  # type: ignore[attr-defined]
    "headwise describe atlas profile",
    ("headwise describe atlas spectral --json", "by section, as JSON"),
    ("headwise describe atlas agreement", "do the studies find the same heads?"),
)
