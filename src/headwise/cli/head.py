"""`headwise head`: everything known of one head."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.examples import examples
from headwise.cli.options import AtlasArgument, JsonOption


def head(
    atlas: AtlasArgument,
    name: Annotated[str, typer.Argument(metavar="HEAD", help="The head, such as L12H3 (layer 12, head 3, from 0).")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .md, .txt or .json file.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Everything known of one head, all studies joined: numbers with percentiles, relations, functions, heads like it."""
    from headwise.analysis import describe_head, head_report
    from headwise.atlas import Atlas
    from headwise.cli.files import written
    from headwise.cli.head_page import print_head

    found = head_report(Atlas.open(atlas), name)
    if output is not None:
        texts = {
            ".md": lambda: describe_head(found).markdown(level=1),
            ".txt": lambda: describe_head(found).text(),
            ".json": lambda: json.dumps(found.to_dict(), ensure_ascii=False, indent=1) + "\n",
        }
        written(output, {suffix: _writer(text) for suffix, text in texts.items()})
        typer.echo(output)
    elif as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_head(found)


def _writer(text: Callable[[], str]) -> Callable[[Path], object]:
    return lambda path: path.write_text(text(), encoding="utf-8")


head.examples = examples(  # type: ignore[attr-defined]
    "headwise head atlas L12H3",
    ("headwise head atlas L12H3 -o L12H3.md", "the same as prose"),
    ("headwise head atlas L12H3 --json", "for a program, its attention maps as pixels"),
)
