"""Files of relations: JSON, CSV and TSV; one dict of fields a relation, whatever the file.

The fields are pairs, and where the file has them category, copying, source and templates (see `relations`). What
cannot be read is refused with the place in the file. This module does not judge whether the pairs make sense.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from headwise.core.errors import DataError, did_you_mean

__all__ = ["SUFFIXES", "fields_of", "fields_of_json"]

SUFFIXES = (".json", ".csv", ".tsv")
FIELDS = ("pairs", "category", "copying", "source", "templates")
NEEDED, OPTIONAL = ("source", "target"), ("relation", "category")  # columns
EXPECTED = 'a list of pairs such as [["hot", "cold"], ["big", "small"]]'

Fields = dict[str, Any]


def fields_of(path: Path) -> dict[str, Fields]:
    """The fields of every relation in a file, by the relation's name."""
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path.name} has the suffix {path.suffix!r}; relations are read from {', '.join(SUFFIXES)}")
    try:
        text = path.read_bytes().decode("utf-8-sig")  # without the byte order mark that some editors write
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it first") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); check the file") from error
    if not text.strip():
        raise DataError(f"{path} is empty; give at least one pair of words")
    if path.suffix == ".json":
        return fields_of_json(text, path.stem, str(path))
    return _fields_of_table(text, path, "," if path.suffix == ".csv" else "\t")


# ---- JSON -----------------------------------------------------------------------------------------------------------


def fields_of_json(text: str, name: str, where: str) -> dict[str, Fields]:
    """A list of pairs, which gets this name, or an object of relations."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON ({error.msg} on line {error.lineno}); write {EXPECTED}") from error
    if isinstance(content, list):
        return {name: {"pairs": _pairs(content, where)}}
    if not isinstance(content, dict):
        raise DataError(f"{where} holds neither pairs nor relations; write {EXPECTED}, or an object of such lists")
    return {key: _fields(value, f"the relation {key!r} of {where}") for key, value in content.items()}


def _fields(value: Any, where: str) -> Fields:
    if not isinstance(value, dict):
        return {"pairs": _pairs(value, where)}
    for key in value:
        if key not in FIELDS:
            raise DataError(f"{where} has a field {key!r}. {did_you_mean(key, FIELDS)}")
    for key, kind in (("category", str), ("copying", bool), ("source", str), ("templates", list)):
        if key in value and not isinstance(value[key], kind):
            raise DataError(f"{where} has {value[key]!r} under {key!r}; give a {kind.__name__}")
    return value | {"pairs": _pairs(value.get("pairs"), where)}


def _pairs(content: Any, where: str) -> list[tuple[str, str]]:
    if not isinstance(content, list):
        raise DataError(f"{where} has no list of pairs; write {EXPECTED}")
    for number, item in enumerate(content, start=1):
        if not isinstance(item, list) or len(item) != 2 or not all(isinstance(word, str) for word in item):
            raise DataError(f"item {number} of {where} is {_short(item)}, not a pair of words; write {EXPECTED}")
    return [(source, target) for source, target in content]


def _short(item: Any) -> str:
    text = json.dumps(item, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- CSV and TSV ----------------------------------------------------------------------------------------------------


def _fields_of_table(text: str, path: Path, delimiter: str) -> dict[str, Fields]:
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    header = [name.strip().casefold() for name in rows[0]]
    if not set(NEEDED) <= set(header):
        sign = {",": "a comma", "\t": "a tab"}[delimiter]
        raise DataError(
            f"the first line of {path} has the columns {', '.join(header)}; name at least source and target there, "
            f"with {sign} between them"
        )
    found: dict[str, Fields] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"line {number} of {path} has {len(row)} columns and the first line {len(header)}; make them equal"
            )
        cells = dict(zip(header, row, strict=True))
        _add(found, cells, cells.get("relation", "").strip() or path.stem, f"line {number} of {path}")
    return found


def _add(found: dict[str, Fields], cells: dict[str, str], name: str, where: str) -> None:
    category = cells.get("category", "").strip()
    fields = found.setdefault(name, {"pairs": []} | ({"category": category} if category else {}))
    if category and fields.setdefault("category", category) != category:
        raise DataError(
            f"{where} puts the relation {name!r} into the category {category!r}, and an earlier line into "
            f"{fields['category']!r}; choose one"
        )
    fields["pairs"].append((cells["source"], cells["target"]))
