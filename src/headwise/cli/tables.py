"""Tables on the terminal, and files that a verb writes by their suffix."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from headwise.atlas.head_table import harmless_csv
from headwise.atlas.selection import nearest_columns
from headwise.cli.terminal import DEFAULT_WIDTH, console, echo, marked
from headwise.core.errors import DataError
from headwise.core.files import write_output
from headwise.core.markup import printable

INDEX_COLUMNS = ("layer", "head")  # already in the name of a row
MAX_CELL_CHARS = 40
GAP = 2  # spaces between columns


def keep_columns(frame: pd.DataFrame, columns: list[str] | None) -> pd.DataFrame:
    """Only the named columns, where ``*`` matches any text; all columns for None or "all"."""
    if columns is None or columns == ["all"]:
        return frame
    every, chosen = [str(name) for name in frame.columns], []
    for wanted in (name for name in columns if name != frame.index.name):  # the index is always shown
        found = [name for name in every if fnmatchcase(name, wanted)]
        if not found:
            raise DataError(f"there is no column {wanted!r}. {nearest_columns(wanted, every)}")
        chosen += [name for name in found if name not in chosen]
    return frame[chosen]


def fitting_columns(frame: pd.DataFrame, first: Sequence[str] = (), preferred: Sequence[str] = ()) -> pd.DataFrame:
    """The columns that fit on a line: ``first``, then ``preferred``, then those of the studies in round-robin order."""
    room = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns - _width("head", frame.index)
    fitting: list[str] = []
    for name in dict.fromkeys([*first, *preferred, *_round_robin(frame)]):
        if fitting and len(name) + GAP > room:
            continue  # whatever its values
        width = _width(name, frame[name])
        if width <= room or not fitting:
            fitting.append(name)
            room -= width
    return frame[[*first, *(name for name in frame.columns if name in fitting and name not in first)]]


def _round_robin(frame: pd.DataFrame) -> list[str]:
    """The first column of every study, then the second of every study, and so on."""
    studies: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        if name not in INDEX_COLUMNS:
            studies.setdefault(name.partition(".")[0], []).append(name)
    return [name for row in zip_longest(*studies.values()) for name in row if name is not None]


def _width(name: str, values: Any) -> int:
    return max([len(name), *(len(_cell(value)) for value in values)]) + GAP


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    text = printable(str(value))
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def save_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as .csv, .json or .parquet, by suffix."""
    write_file(path, table_writers(frame))


def table_writers(frame: pd.DataFrame) -> dict[str, Callable[[], str | bytes]]:
    """The content of a file with this table, by suffix."""

    def parquet() -> bytes:
        try:
            return bytes(frame.to_parquet())
        except ImportError as error:
            raise DataError(
                "writing .parquet needs the package pyarrow, which is not installed: pip install pyarrow, or write .csv."
            ) from error

    return {
        ".csv": lambda: str(harmless_csv(frame).to_csv()),
        ".json": lambda: str(frame.reset_index().to_json(orient="records", indent=1)),
        ".parquet": parquet,
    }


def write_file(path: Path, writers: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Write the content for the file's suffix; an unknown suffix, a missing folder or a full disk is a user error."""
    if path.suffix not in writers:
        known = ", ".join(writers)
        raise DataError(f"-o takes a file that ends in {known}, not {path.suffix or 'a name without a suffix'!r}.")
    write_output(path, writers[path.suffix])


def print_table(frame: pd.DataFrame) -> None:
    """Print a table to the width of the terminal, or as plain columns if the output is not a terminal."""
    out = console()
    if not frame.shape[1]:  # only the names were requested
        echo("\n".join(map(str, frame.index)))
        return
    if not out.is_terminal:
        formats: dict[Any, Any] = dict.fromkeys(frame.columns, _cell)
        echo(frame.rename_axis(None).to_string(formatters=formats))
        return
    table = Table("head", *map(marked, frame.columns), box=None, header_style="bold")
    for name, row in frame.iterrows():
        table.add_row(marked(name), *(marked(_cell(value)) for value in row))
    out.print(table)
