"""A griffe extension: the fields of dataclasses and named tuples as a table, described by the comments at their line ends.

    shard: int = 10  # examples between two commits                ->   name, type, comment, default
    shard: int = option(10, "examples between two commits")        ->   the same, for a study's options

The sources keep one comment per field, which is what a reader of the code wants; the reference uses the same words. A
docstring under a field takes precedence. Fields without either keep an empty cell, which `tests/docs/test_reference.py`
counts.

`mkdocs.yml` names this file under the handler's `extensions`. It imports nothing of Headwise.
"""

from __future__ import annotations

import ast
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import griffe

__all__ = ["FieldComments", "comments_of", "fields_of"]


class FieldComments(griffe.Extension):
    """Gives every class with fields a table of them."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """All classes are there, so that what they inherit is known."""
        for cls in _classes(pkg):
            fields = fields_of(cls)
            if fields and not _has_attributes_section(cls):
                table = [
                    griffe.DocstringParameter(
                        one.name,
                        annotation=one.annotation,
                        description=text_of(one),
                        value=default_of(one),
                    )
                    for one in fields
                ]
                docstring = cls.docstring or griffe.Docstring("", parent=cls, parser="google")
                cls.docstring = docstring
                docstring.parsed.insert(_place(docstring), griffe.DocstringSectionParameters(table, title="Fields:"))
                for one in fields:
                    one.docstring = None  # said in the table, and not again as a member


def fields_of(cls: griffe.Class) -> list[griffe.Attribute]:
    """What a dataclass or a named tuple is made of, in the order of its source; nothing for other classes."""
    made = any(str(one.value).startswith(("dataclass", "dataclasses.dataclass")) for one in cls.decorators)
    if not made and "NamedTuple" not in map(str, cls.bases):
        return []
    found = [one for one in cls.members.values() if isinstance(one, griffe.Attribute)]
    return [
        one
        for one in found
        if one.annotation is not None
        and not one.name.startswith("_")
        and "property" not in one.labels
        and "ClassVar" not in str(one.annotation)
    ]


def text_of(field: griffe.Attribute) -> str:
    """The description of a field: its docstring, the help text of its option, or the comment at the end of its last line."""
    if field.docstring is not None:
        return field.docstring.value
    if (arguments := _option(field)) is not None:
        return str(ast.literal_eval(arguments["help"]))
    comments = comments_of(Path(str(field.filepath)))
    said = comments.get(field.endlineno or -1, "")
    return "" if said.startswith(("fmt:", "type:", "noqa")) else said


def default_of(field: griffe.Attribute) -> str | None:
    """As a caller would write it: ``field(default=None, repr=False)`` is None, a factory is called."""
    value = field.value
    if (arguments := _option(field)) is not None:
        return arguments["default"]
    if value is None or not str(value).startswith("field("):
        return None if value is None else str(value)
    given = {str(one.name): str(one.value) for one in getattr(value, "arguments", ()) if hasattr(one, "name")}
    if "default_factory" in given:
        return f"{given['default_factory']}()"
    return given.get("default")


def _option(field: griffe.Attribute) -> dict[str, str] | None:
    """The arguments of ``option(default, help, ...)``; None for other fields."""
    if not str(field.value).startswith("option("):
        return None
    call = ast.parse(str(field.value), mode="eval").body
    assert isinstance(call, ast.Call)
    given = dict(zip(("default", "help"), map(ast.unparse, call.args), strict=False))
    return given | {str(one.arg): ast.unparse(one.value) for one in call.keywords}


@cache
def comments_of(path: Path) -> dict[int, str]:
    """The comment of every line that has one."""
    with path.open("rb") as file:
        tokens = [one for one in tokenize.tokenize(file.readline) if one.type == tokenize.COMMENT]
    return {one.start[0]: one.string.lstrip("#").strip() for one in tokens}


def _has_attributes_section(cls: griffe.Class) -> bool:
    """Whether the docstring has a table of its own. Not parsed for that: not all that it names may be there yet."""
    said = "" if cls.docstring is None else cls.docstring.value
    return any(line.strip() in ("Args:", "Attributes:") for line in said.splitlines())


def _place(docstring: griffe.Docstring) -> int:
    """Behind the text, before the examples."""
    kinds = [section.kind for section in docstring.parsed]
    text = griffe.DocstringSectionKind.text
    return next((place for place, kind in enumerate(kinds) if kind != text), len(kinds))


def _classes(module: griffe.Module) -> list[griffe.Class]:
    found = []
    for member in module.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Class):
            found.append(member)
        elif isinstance(member, griffe.Module):
            found += _classes(member)
    return found
