"""`headwise head`: one head across all studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption
from headwise.cli.usage import examples

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from headwise.analysis import HeadReport
    from headwise.analysis.head_sections import HeadSection

DEFAULT_WIDTH = 120  # if the output is not a terminal
BAR_CELLS = 10
VERDICTS = {"agree": "[green]agree[/]", "disagree": "[red]disagree[/]", "open": "[yellow]open[/]"}
LEFT_ALIGNED = ("", "pairs")


def head(
    atlas: AtlasArgument,
    name: Annotated[
        str, typer.Argument(metavar="HEAD", help="The head, such as L12H3: layer 12, head 3, both counted from 0.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .md, .txt or .json file.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Report one head across all studies: statistics with percentiles, relations, functions and similar heads."""
    from headwise.analysis import describe_head, head_report
    from headwise.atlas import Atlas
    from headwise.cli.tables import write_file

    found = head_report(Atlas.open(atlas), name)
    if output is not None:
        texts = {
            ".md": lambda: describe_head(found).markdown(level=1),
            ".txt": lambda: describe_head(found).text(),
            ".json": lambda: json.dumps(found.to_dict(), ensure_ascii=False, indent=1) + "\n",
        }
        write_file(output, {suffix: _writer(text) for suffix, text in texts.items()})
        typer.echo(output)
    elif as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _print(found)


def _writer(text: Callable[[], str]) -> Callable[[Path], object]:
    return lambda path: path.write_text(text(), encoding="utf-8")


def _print(report: HeadReport) -> None:
    """Print the sections of the report; text from data (tokens, words) is escaped, since it may look like markup."""
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    from headwise.analysis.head_sections import sections_of

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=DEFAULT_WIDTH)
    console.print(f"[bold]{report.name}[/]  [dim]{escape(report.model)}[/]\n")
    console.print(escape(report.summary))
    for section in sections_of(report):
        note = f"  [dim]{escape(section.note)}[/]" if section.note else ""
        console.print(f"\n[bold]{escape(section.title)}[/]{note}")
        parts: list[RenderableType] = [_table(section)] if section.rows else []
        parts += [*map(escape, section.lines), *(f"[dim]{escape(text)}[/]" for text in section.footnotes)]
        for part in parts:
            console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _table(section: HeadSection) -> Table:
    """The table of a section, with a bar after each percentile and coloured verdicts."""
    from rich.markup import escape
    from rich.table import Table

    from headwise.analysis.head_sections import PERCENTILE

    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(section.header)
    )  # fmt: skip
    for index, name in enumerate(section.header):
        left = index == 0 or name in LEFT_ALIGNED
        table.add_column(name, justify="left" if left else "right", no_wrap=index == 0)
    has_bars = section.header[-1] == PERCENTILE
    if has_bars:
        table.add_column("")
    for row in section.rows:
        cells = [VERDICTS.get(cell) or escape(cell) for cell in row]
        table.add_row(*cells, *([_bar(row[-1])] if has_bars else []))
    return table


def _bar(percentile: str) -> str:
    filled = 0 if percentile == "nan" else round(float(percentile) / 100 * BAR_CELLS)
    return "█" * filled + "░" * (BAR_CELLS - filled)


head.examples = examples(  # type: ignore[attr-defined]
    "headwise head atlas L12H3",
    ("headwise head atlas L12H3 -o L12H3.md", "the same as prose"),
    ("headwise head atlas L12H3 --json", "as JSON, with its attention maps as pixels"),
)
