"""The door for JSON from outside: text in, a value of a declared type out, or one sentence that says what does not fit.

Atlas metadata, provenance, detectors, options, rows of data files and requests come from other people. Code behind this
door may rely on the declared types; nothing else in Headwise parses such JSON.

    class Row(msgspec.Struct):
        question: str

    parse(b'{"question": 5}', Row)     # ValueError: Expected `str`, got `int` - at `$.question`

Nested deeper than a type declares, text with half a surrogate pair (which cannot be written anywhere), and numbers of
thousands of digits are refused. NaN and Infinity are accepted where a float is: Python's own JSON writes them.

Cost: that of `json.loads`, and one pass of msgspec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, overload

import msgspec

from headwise.core.errors import AtlasError

T = TypeVar("T")
Scalar = str | int | float | bool | None
Attribute = str | int | float | bool | None | list[Scalar | list[Scalar]] | dict[str, Scalar | list[Scalar]]
"""what an attribute of an array or a group may hold"""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
"""a float that is neither NaN nor infinite"""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@overload
def parse(content: bytes | str, kind: type[T]) -> T: ...
@overload
def parse(content: bytes | str, kind: Any) -> Any: ...  # a union, an annotated type
def parse(content: bytes | str, kind: Any) -> Any:
    """The JSON text as a value of that type; ValueError, of one line, if it is none.

    >>> parse('{"a": [1, 2]}', dict[str, list[int]])
    {'a': [1, 2]}
    """
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    try:
        found = json.loads(raw)
        if _SURROGATE.search(raw):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as cause:
        raise ValueError("it is nested too deep") from cause
    except UnicodeError as cause:
        raise ValueError("it is not UTF-8 text") from cause
    return convert(found, kind)


@overload
def convert(value: object, kind: type[T]) -> T: ...
@overload
def convert(value: object, kind: Any) -> Any: ...
def convert(value: object, kind: Any) -> Any:
    """A value made of plain lists, mappings and scalars as that type; ValueError if it is none."""
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError as cause:
        raise ValueError(" ".join(str(cause).split())[:300]) from cause  # it may quote a foreign name
    except RecursionError as cause:
        raise ValueError("it is nested too deep") from cause
    return found


def parse_attribute(attrs: Mapping[Any, Any], name: str, kind: type[T], default: str | None = None) -> T:
    """An attribute of a Dataset that holds JSON text, as that type; AtlasError if it is none.

    >>> parse_attribute({"counts": '{"wrong": 3}'}, "counts", dict[str, int])
    {'wrong': 3}
    """
    text = attrs.get(name, default)
    try:
        found = parse(convert(text, str), kind)
    except ValueError as cause:
        raise AtlasError(
            f"The attribute {name!r} is not one Headwise wrote ({cause}); build that study again, or get another copy."
        ) from cause
    return found
