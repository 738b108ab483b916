"""Files of rows (JSON lines, CSV, Parquet, Arrow) as one dict per row, and what all corpora do with their rows.

Rows come from other people: a reader declares the type of its rows (`typed_row`), and sizes that a packed file declares are
compared with the free memory before it is unpacked. Parquet and Arrow require the package pyarrow.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headwise.core.errors import DataError, did_you_mean
from headwise.core.memory import in_bytes, room_for
from headwise.core.parsing import convert, parse

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet", ".arrow")
GZIP = b"\x1f\x8b"  # how such a file begins
BLOCK = 16 * 2**20  # bytes that are unpacked at a time
CELL_BYTES = 64  # of a cell as a Python object, at least
Cell = str | int | float | bool | None
Row = dict[str, Any]
T = TypeVar("T")


def read_rows(path: Path) -> list[Row]:
    """All rows of a file, or of all files of these kinds in a folder, in the order of their names."""
    if not path.exists():
        near = did_you_mean(path.name, [entry.name for entry in path.parent.glob("*")]) if path.parent.is_dir() else ""
        if near.startswith("Did"):
            raise DataError(f"there is no file or folder {path}. {near}")
        raise DataError(f"there is no file or folder {path}; give one of {', '.join(SUFFIXES)}, or a folder of them")
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.name.endswith((".jsonl", ".jsonl.gz", *SUFFIXES[3:])))
        if not found:
            raise DataError(f"the folder {path} contains no file of rows; add one of {', '.join(SUFFIXES)}")
        return [row for file in found for row in read_rows(file)]
    with translate_read_errors(path):
        if path.suffix == ".csv":
            return _csv(path)
        if path.suffix in (".parquet", ".arrow"):
            return _arrow(path)
        if path.name.endswith((".jsonl", ".jsonl.gz", ".json", ".json.gz")):
            return json_rows(read_text(path), path)
    raise DataError(f"{path} has the suffix {path.suffix!r}; rows are read from {', '.join(SUFFIXES)}")


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Raise `DataError` for a file that cannot be read, is cut off, or is not UTF-8."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it first") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); check the file") from error


def typed_row(row: object, kind: type[T] | Any, where: str) -> T:
    """A row as a declared type; `DataError` if a field has another."""
    try:
        found: T = convert(row, kind)
    except ValueError as error:
        raise DataError(f"{where} cannot be used ({error}); correct that field") from error
    return found


def read_text(path: Path) -> str:
    """The text of a file, or of the file in a .gz; refused before it takes more than there is memory."""
    content = path.read_bytes()
    return (_unpacked(path) if content.startswith(GZIP) else content).decode("utf-8-sig")


def json_rows(text: str, path: Path) -> list[Row]:
    """The rows of a text: one JSON object per line, or a JSON list of them; `path` names it in messages."""
    if text.lstrip().startswith("["):  # one list instead of lines
        lines = [(1, text)]
    else:
        # splitlines() would split at a line separator (U+2028) inside a JSON string
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    rows: list[Row] = []
    for number, line in lines:
        try:
            found: Row | list[Row] = parse(line, Row | list[Row])
        except json.JSONDecodeError as error:
            raise DataError(
                f"line {number + error.lineno - 1} of {path} is not JSON ({error.msg}); write one JSON object per line"
            ) from error
        except ValueError as error:
            raise DataError(
                f"line {number} of {path} is not a JSON object ({error}); write one per line, with a field 'question'"
            ) from error
        rows += found if isinstance(found, list) else [found]
    return rows


def _unpacked(path: Path) -> bytes:
    """The content of a .gz file; refused before it takes more than there is memory."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(BLOCK):
            size += len(part)
            if not room_for(4 * size):  # the text and its rows take memory, too
                raise DataError(
                    f"{path} unpacks to more than {in_bytes(size)}, more than there is memory; give a smaller file"
                )
            parts.append(part)
    return b"".join(parts)


def read_table(text: str, delimiter: str = ",") -> Iterator[list[str]]:
    """The rows of a CSV or TSV text; a field may have any length."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _csv(path: Path) -> list[Row]:
    rows: list[Row] = []
    header: list[str] | None = None
    for cells in read_table(path.read_bytes().decode("utf-8-sig")):
        if not cells:
            continue
        if header is None:
            header = cells
            continue
        if len(cells) > len(header):
            raise DataError(f"row {len(rows) + 1} of {path} has more columns than the header; quote its commas")
        rows.append(dict(zip(header, cells, strict=False)))
    return rows


def _arrow(path: Path) -> list[Row]:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow, or give .jsonl"
        ) from error
    try:
        if path.suffix == ".parquet":
            _require_room(path, parquet.read_metadata(path))
            return parquet.read_table(path).to_pylist()
        with arrow.memory_map(str(path)) as source:
            try:  # the datasets library writes the stream format, others the file format
                return arrow.ipc.open_stream(source).read_all().to_pylist()
            except arrow.ArrowInvalid:
                source.seek(0)
                return arrow.ipc.open_file(source).read_all().to_pylist()
    except (arrow.ArrowException, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} is not a complete {path.suffix} file ({why}); write it again") from error


def _require_room(path: Path, metadata: Any) -> None:
    """Refuse a Parquet file that declares more than there is memory, before it is unpacked."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    declared = sum(group.total_byte_size for group in groups)
    declared += metadata.num_rows * metadata.num_columns * CELL_BYTES
    if not room_for(declared):
        raise DataError(f"{path} declares {in_bytes(declared)}, more than there is memory; give a smaller file")


def cell_text(value: Any) -> str:
    """A cell as text: empty for None and NaN, "12" for 12.0 (a table with gaps stores integers as floats)."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def require_unique_ids(items: Sequence[Any], kind: str) -> None:
    """Raise `DataError` if two items share an `id`; `kind` is the plural noun of the message."""
    for name, count in Counter(item.id for item in items).items():
        if count > 1:
            raise DataError(f"the id {name!r} is used by {count} {kind}; give each its own id")


def interleave(queues: Sequence[Sequence[T]]) -> list[T]:
    """The queues' first items, then their second ones, and so on.

    >>> interleave([[1, 2, 3], [7], [8, 9]])
    [1, 7, 8, 2, 9, 3]
    """
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def digest_of(rows: Iterable[list[Any]]) -> str:
    """Sixteen hexadecimal digits that change when any of these plain values does, for the provenance of a map.

    >>> digest_of([["a", 1]]) == digest_of([["a", 1]]), digest_of([["a", 1]]) == digest_of([["a", 2]])
    (True, False)
    """
    hasher = hashlib.blake2b(digest_size=8)
    for row in rows:
        hasher.update(json.dumps(row, ensure_ascii=False).encode())
    return hasher.hexdigest()
