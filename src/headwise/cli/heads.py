"""`headwise heads`: the head table, one row per head, all studies joined. `headwise head`: one head across all studies."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import AtlasArgument, JsonOption
from headwise.cli.terminal import console, echo, marked
from headwise.cli.usage import examples

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from headwise.analysis.head_facts import HeadReport
    from headwise.analysis.head_sections import HeadSection


def heads(
    context: typer.Context,
    atlas: AtlasArgument,
    where: Annotated[
        str | None,
        typer.Option("--where", help='A condition in quotes, such as "profile.induction > 0.3 and layer < 10".'),
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="The column to sort by, in descending order.")] = None,
    ascending: Annotated[bool, typer.Option("--ascending", help="Sort in ascending order, as for q-values.")] = False,
    limit: Annotated[int | None, typer.Option("-n", "--limit", help="Maximum number of rows.", min=1)] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Comma-separated columns: profile.sink, spectral.*, or all. Default: those that fit on a line.",
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Only columns of these studies, comma-separated.")
    ] = None,
    percentiles: Annotated[
        bool, typer.Option("--percentiles", help="Show each value as its percentile among all heads of the atlas.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .csv, .json or .parquet file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print, filter, sort or save the head table: one row per head, the columns of all studies.

    For a report on one head see headwise head.
    """
    from headwise.analysis.columns import default_columns, with_percentiles
    from headwise.atlas import Atlas, select
    from headwise.cli.options import split
    from headwise.cli.preflight import refuse_missing_studies, refuse_unquoted
    from headwise.cli.tables import fitting_columns, keep_columns, print_table, save_table

    refuse_unquoted(context.args, where)
    wanted = [*(split(columns) or []), *(f"{name}.*" for name in split(study) or [])]
    opened = Atlas.open(atlas)
    every = opened.heads()
    refuse_missing_studies([*wanted, *_names(where), *_names(sort)], every, opened)
    frame = select(every, where, sort=sort, descending=not ascending, limit=limit)
    if percentiles:
        frame = with_percentiles(every).loc[frame.index]
    frame = keep_columns(frame, wanted or None)
    if output is not None:
        save_table(frame, output)
        echo(output)
    elif as_json:
        echo(frame.reset_index().to_json(orient="records"))
    elif not len(frame):
        echo(f"none of the {len(every)} heads matches; relax the condition of --where.", err=True)
    elif wanted:
        print_table(frame)
    else:
        requested = [name for name in dict.fromkeys([*_names(sort), *_names(where)]) if name in frame]
        shown = fitting_columns(frame, requested, default_columns(frame.columns))
        print_table(shown)
        echo(
            f"{shown.shape[1]} of {frame.shape[1]} columns shown; choose others with --columns (such as profile.sink, "
            "spectral.*, or all) or --study profile, or write all with -o heads.csv",
            err=True,
        )


def _names(text: str | None) -> list[str]:
    """Possible column names in a condition, ignoring quoted text."""
    return re.findall(r"[A-Za-z_][\w.]*", re.sub(r"(['\"]).*?\1", "", text or ""))


heads.examples = examples(  # type: ignore[attr-defined]
    "headwise heads atlas --sort profile.induction -n 10",
    'headwise heads atlas --where "profile.previous > 0.5" -o previous.csv',
    ("headwise heads atlas --where \"relations.categories != ''\" --study relations", "heads with a category"),
    ("headwise heads atlas --percentiles --study profile", "each value as a percentile among all heads"),
)
heads.settings = {"allow_extra_args": True}  # type: ignore[attr-defined]


INDENT, GAP = 2, 2  # of what is under a title; between columns
MIN_WORDS = 20  # of a column that is wrapped
BAR_CELLS = 10
VERDICTS = {"agree": "[green]agree[/]", "disagree": "[red]disagree[/]", "open": "[yellow]open[/]"}
LEFT_ALIGNED = ("", "pairs")


def head(
    atlas: AtlasArgument,
    name: Annotated[
        str, typer.Argument(metavar="HEAD", help="The head, such as L12H3: layer 12, head 3, both counted from 0.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .md, .txt or .json file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Report one head across all studies: statistics with percentiles, relations, functions and similar heads."""
    from headwise.analysis.head_text import describe_head
    from headwise.analysis.report_builder import head_report
    from headwise.atlas import Atlas
    from headwise.cli.tables import write_file

    found = head_report(Atlas.open(atlas), name)
    if output is not None:
        texts: dict[str, Callable[[], str | bytes]] = {
            ".md": lambda: describe_head(found).markdown(level=1),
            ".txt": lambda: describe_head(found).text(),
            ".json": lambda: json.dumps(found.to_dict(), ensure_ascii=False, indent=1) + "\n",
        }
        write_file(output, texts)
        echo(output)
    elif as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _print(found)


def _print(report: HeadReport) -> None:
    """Print the sections of the report; text from data (tokens, words) is escaped, since it may look like markup."""
    from rich.padding import Padding

    from headwise.analysis.head_sections import sections_of

    out = console()
    out.print(f"[bold]{report.name}[/]  [dim]{marked(report.model)}[/]\n")
    out.print(marked(report.summary))
    for section in sections_of(report):
        note = f"  [dim]{marked(section.note)}[/]" if section.note else ""
        out.print(f"\n[bold]{marked(section.title)}[/]{note}")
        parts: list[RenderableType] = [_table(section, out)] if section.rows else []
        parts += [*map(marked, section.lines), *(f"[dim]{marked(text)}[/]" for text in section.footnotes)]
        for part in parts:
            out.print(Padding(part, (0, 0, 0, INDENT), expand=False))


def _table(section: HeadSection, out: Console) -> RenderableType:
    """The table of a section, with bars and coloured verdicts; where it is too wide for the terminal, one line per row."""
    from rich.table import Table

    from headwise.analysis.head_sections import PERCENTILE

    table = Table(
        box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", show_header=any(section.header)
    )  # fmt: skip
    room = out.width - INDENT
    for index, name in enumerate(section.header):
        words = index > 0 and name in LEFT_ALIGNED
        texts = [*(row[index] for row in section.rows if index < len(row)), *name.split()]
        width = MIN_WORDS if words else max(map(len, texts), default=0)
        room -= width + GAP
        title = textwrap.fill(name, width, break_long_words=False) if name else ""
        table.add_column(marked(title), justify="left" if words or index == 0 else "right", no_wrap=not words)
    if room < 0:
        return "\n".join(_lines(section))
    has_bars = section.header[-1] == PERCENTILE and room >= BAR_CELLS
    if has_bars:
        table.add_column("")
    for row in section.rows:
        cells = [VERDICTS.get(cell) or marked(cell) for cell in row]
        table.add_row(*cells, *([_bar(row[-1])] if has_bars else []))
    return table


def _lines(section: HeadSection) -> Iterator[str]:
    """Every row as text that can be wrapped: its name, then each column with its title."""
    for name, *cells in section.rows:
        titled = zip(section.header[1:], cells, strict=False)
        yield f"{marked(name)}: " + "; ".join(
            f"[dim]{marked(title)}[/] {marked(cell)}" for title, cell in titled if cell
        )


def _bar(percentile: str) -> str:
    filled = 0 if percentile == "nan" else round(float(percentile) / 100 * BAR_CELLS)
    return "█" * filled + "░" * (BAR_CELLS - filled)


head.examples = examples(  # type: ignore[attr-defined]
    "headwise head atlas L12H3",
    ("headwise head atlas L12H3 -o L12H3.md", "the same as prose"),
    ("headwise head atlas L12H3 --json", "as JSON, with its attention maps as pixels"),
)
