"""Tables on the terminal and in files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.atlas.selection import nearest_columns
from headwise.core.errors import DataError

SUFFIXES = (".csv", ".json", ".parquet")
PLACES = ("layer", "head")  # what a row's name says already
LONGEST = 40  # characters of a cell on the terminal
WIDTH = 120  # of a line where there is no terminal
GAP = 2


def keep_columns(frame: pd.DataFrame, columns: list[str] | None) -> pd.DataFrame:
    """Only the named columns, ``*`` standing for anything in a name; all where none are named, or "all"."""
    if columns is None or columns == ["all"]:
        return frame
    every, kept = [str(name) for name in frame.columns], []
    for wanted in (name for name in columns if name != frame.index.name):  # a row's name is there anyway
        found = [name for name in every if fnmatchcase(name, wanted)]
        if not found:
            raise DataError(f"there is no column {wanted!r}. {nearest_columns(wanted, every)}")
        kept += [name for name in found if name not in kept]
    return frame[kept]


def fitting_columns(frame: pd.DataFrame, first: Sequence[str] = (), usual: Sequence[str] = ()) -> pd.DataFrame:
    """The columns that fit on a line: those of ``first``, the ``usual`` ones, then one of every study in turn."""
    room = shutil.get_terminal_size((WIDTH, 24)).columns - _width("head", frame.index)
    kept: list[str] = []
    for name in dict.fromkeys([*first, *usual, *_in_turn(frame)]):
        width = _width(name, frame[name])
        if width <= room or not kept:
            kept.append(name)
            room -= width
    return frame[[*first, *(name for name in frame.columns if name in kept and name not in first)]]


def _in_turn(frame: pd.DataFrame) -> list[str]:
    """The columns dealt out: the first of every study, then the second."""
    studies: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        if name not in PLACES:
            studies.setdefault(name.partition(".")[0], []).append(name)
    return [name for row in zip_longest(*studies.values()) for name in row if name is not None]


def _width(name: str, values: Any) -> int:
    return max([len(name), *(len(_cell(value)) for value in values)]) + GAP


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def save_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table in the format its suffix names."""
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"a table is written as {', '.join(SUFFIXES)}, not {path.suffix or 'a file without a suffix'!r}"
        )
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}; make it first, or choose another place with -o")
    if path.suffix == ".csv":
        frame.to_csv(path)
    elif path.suffix == ".json":
        frame.reset_index().to_json(path, orient="records", indent=1)
    else:
        try:
            frame.to_parquet(path)
        except ImportError as error:
            raise DataError("writing .parquet needs the package pyarrow: pip install pyarrow, or write .csv") from error


def print_table(frame: pd.DataFrame) -> None:
    """A table as wide as the terminal; as plain columns where the output is not one."""
    console = Console()
    if not frame.shape[1]:  # only the names were asked for
        console.file.write("".join(f"{name}\n" for name in frame.index))
        return
    if not console.is_terminal:
        formats: dict[Any, Any] = dict.fromkeys(frame.columns, _cell)
        console.file.write(frame.rename_axis(None).to_string(formatters=formats) + "\n")
        return
    table = Table("head", *map(str, frame.columns), box=None, header_style="bold")
    for name, row in frame.iterrows():
        table.add_row(str(name), *(escape(_cell(value)) for value in row))
    console.print(table)
