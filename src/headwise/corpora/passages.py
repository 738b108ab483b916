"""Texts to read while heads are observed: the packaged passages, and a user's own.

The packaged passages are ours: prose, dialogue, code, lists, tables, maths, exposition and other languages, 200 to 600
tokens each, so that a head's statistics do not depend on one kind of text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NotRequired, TypedDict

from headwise.core.errors import DataError
from headwise.core.parsing import parse
from headwise.corpora.rows import (
    Cell,
    cell_text,
    digest_of,
    interleave,
    require_unique_ids,
    translate_read_errors,
    typed_row,
)  # fmt: skip

__all__ = ["Passage", "Passages", "packaged_passages", "parse_text_line", "read_passages"]


@dataclass(frozen=True)
class Passage:
    """One text.

    Examples:
        >>> Passage("greeting", "Good morning, all of you.", register="speech")
        Passage(id='greeting', text='Good morning, all of you.', register='speech', language='en')
    """

    id: str  # a unique name
    text: str  # what the model is shown
    register: str = "text"  # its kind, such as "code"
    language: str = "en"  # an ISO code


@dataclass(frozen=True)
class Passages:
    """Texts with a name and a digest for the provenance of a map.

    Examples:
        >>> few = packaged_passages().first(3)
        >>> len(few), [item.register for item in few.items]
        (3, ['prose', 'dialogue', 'code'])
    """

    name: str  # the atlas records it
    items: tuple[Passage, ...]  # the texts

    def __len__(self) -> int:
        return len(self.items)

    @property
    def digest(self) -> str:
        """Changes when any id, register or text does."""
        return digest_of([item.id, item.register, item.text] for item in self.items)

    def first(self, count: int) -> Passages:
        """At most `count` of them, taken from the registers in turn."""
        by_register: dict[str, list[Passage]] = {}
        for item in self.items:
            by_register.setdefault(item.register, []).append(item)
        return Passages(self.name, tuple(interleave(list(by_register.values()))[:count]))


def packaged_passages() -> Passages:
    """The texts that come with Headwise: short ones of several registers, written for it.

    Returns:
        All of them.

    Examples:
        >>> texts = packaged_passages()
        >>> len(texts), sorted({item.register for item in texts.items})
        (84, ['code', 'dialogue', 'exposition', 'foreign', 'lists', 'maths', 'prose', 'tables'])
    """
    lines = files("headwise.corpora").joinpath("data/passages.jsonl").read_text(encoding="utf-8").split("\n")
    return Passages("packaged passages", tuple(parse(line, Passage) for line in lines if line))


def read_passages(path: str | Path) -> Passages:
    r"""A user's texts: a .jsonl file, a .txt or .md file, or a folder of .txt files.

    Every line of JSONL has a field "text" (and optionally "id", "register", "language"). Plain text is split at blank
    lines into one text per paragraph; a folder gives one text per file.

    Args:
        path: the file or folder.

    Returns:
        The texts, named after the file.

    Examples:
        >>> _ = (folder / "two.txt").write_text("The first paragraph.\n\nThe second one.")
        >>> [item.text for item in read_passages(folder / "two.txt").items]
        ['The first paragraph.', 'The second one.']
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; give a .jsonl or .txt file, or a folder of .txt files")
    if path.is_dir():
        items = [Passage(file.stem, _content(file)) for file in sorted(path.glob("*.txt"))]
    elif path.suffix == ".jsonl":
        items = _from_jsonl(path)
    elif path.suffix not in (".txt", ".md"):
        raise DataError(
            f"texts are read from .jsonl, .txt or .md files or a folder of .txt files, not from {path.name}"
        )
    else:
        paragraphs = [part.strip() for part in _content(path).split("\n\n")]
        items = [Passage(f"{path.stem}-{i + 1}", text) for i, text in enumerate(p for p in paragraphs if p)]
    items = [item for item in items if item.text.strip()]
    if not items:
        raise DataError(f"{path} contains no text; give at least one passage")
    require_unique_ids(items, "passages")
    return Passages(path.name, tuple(items))


def _content(path: Path) -> str:
    with translate_read_errors(path):
        return path.read_text(encoding="utf-8-sig")  # without the byte order mark that some editors write


def _from_jsonl(path: Path) -> list[Passage]:
    items = []
    for number, line in enumerate(_content(path).split("\n"), start=1):  # splitlines() would split JSON strings
        if not line.strip():
            continue
        row = parse_text_line(path, number, line)
        name = cell_text(row.get("id")) or f"{path.stem}-{number}"
        items.append(
            Passage(name, row["text"], cell_text(row.get("register", "text")), cell_text(row.get("language", "en")))
        )
    return items


class TextRow(TypedDict):
    """A line of a user's JSONL file."""

    text: str
    id: NotRequired[Cell]
    register: NotRequired[Cell]
    language: NotRequired[Cell]


def parse_text_line(path: Path, number: int, line: str) -> TextRow:
    """A line of JSONL as an object with a field "text"."""
    where = f"line {number} of {path}"
    try:
        found = parse(line, object)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON ({error.msg}); write one JSON object per line") from error
    except ValueError as error:
        raise DataError(f"{where} is not JSON ({error}); write one JSON object per line") from error
    try:
        return typed_row(found, TextRow, where)
    except DataError as error:
        raise DataError(
            f'{where} has no text; every line needs a field "text" that is a string ({error.__cause__})'
        ) from error
