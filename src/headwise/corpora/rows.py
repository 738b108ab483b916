"""Files of rows: JSON lines, CSV, Parquet, Arrow; one dict a row, whatever the file.

Parquet and Arrow need the package pyarrow. This module does not know what the rows mean.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, did_you_mean

__all__ = ["SUFFIXES", "read_rows"]

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet", ".arrow")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a file; a folder is all its files of these kinds, in the order of their names."""
    if not path.exists():
        near = did_you_mean(path.name, [entry.name for entry in path.parent.glob("*")]) if path.parent.is_dir() else ""
        if near.startswith("Did"):
            raise DataError(f"there is no file or folder {path}. {near}")
        raise DataError(f"there is no file or folder {path}; give one of {', '.join(SUFFIXES)}, or a folder of them")
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.name.endswith((".jsonl", ".jsonl.gz", *SUFFIXES[3:])))
        if not found:
            raise DataError(f"the folder {path} holds no file of rows; put one of {', '.join(SUFFIXES)} into it")
        return [row for file in found for row in read_rows(file)]
    try:
        if path.suffix == ".csv":
            return _csv(path)
        if path.suffix in (".parquet", ".arrow"):
            return _arrow(path)
        if path.name.endswith((".jsonl", ".jsonl.gz", ".json", ".json.gz")):
            return _json(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it first") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); check the file") from error
    raise DataError(f"{path} has the suffix {path.suffix!r}; rows are read from {', '.join(SUFFIXES)}")


def _json(path: Path) -> list[dict[str, Any]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = content.decode("utf-8-sig")
    if text.lstrip().startswith("["):  # one list, not lines
        lines = [(1, text)]
    else:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    rows: list[dict[str, Any]] = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"line {number + error.lineno - 1} of {path} is not JSON ({error.msg}); write one JSON object a line"
            ) from error
        several = row if isinstance(row, list) else [row]
        if not all(isinstance(one, dict) for one in several):
            raise DataError(f"line {number} of {path} is not a JSON object; write one a line, with a field 'question'")
        rows += several
    return rows


def _csv(path: Path) -> list[dict[str, Any]]:
    text = path.read_bytes().decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = []
    for number, row in enumerate(reader, start=1):
        if None in row:
            raise DataError(f"row {number} of {path} has more columns than the first line names; quote its commas")
        rows.append({name: value for name, value in row.items() if value is not None})
    return rows


def _arrow(path: Path) -> list[dict[str, Any]]:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow, or give .jsonl"
        ) from error
    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            with arrow.memory_map(str(path)) as source:
                table = _arrow_table(arrow, source)
        return table.to_pylist()
    except arrow.ArrowInvalid as error:
        raise DataError(f"{path} is not a whole {path.suffix} file ({str(error).splitlines()[0]})") from error


def _arrow_table(arrow: Any, source: Any) -> Any:
    """The datasets library writes streams; others write files."""
    try:
        return arrow.ipc.open_stream(source).read_all()
    except arrow.ArrowInvalid:
        source.seek(0)
        return arrow.ipc.open_file(source).read_all()
