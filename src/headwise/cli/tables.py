"""Tables on the terminal and in files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from headwise.errors import DataError, did_you_mean

SUFFIXES = (".csv", ".json", ".parquet")


def keep_columns(frame: pd.DataFrame, columns: list[str] | None) -> pd.DataFrame:
    """Only the named columns; all where none are named."""
    for column in columns or ():
        if column not in frame.columns:
            raise DataError(f"there is no column {column!r}. {did_you_mean(column, map(str, frame.columns))}")
    return frame if columns is None else frame[columns]


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
    if not console.is_terminal:
        console.file.write(frame.to_string(float_format=lambda number: f"{number:.4g}") + "\n")
        return
    table = Table("head", *map(str, frame.columns), box=None, header_style="bold")
    for name, row in frame.iterrows():
        table.add_row(str(name), *(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    console.print(table)
