"""Who shares the first place? Where several have the same value, naming one of them would be a choice of the computer's.

    best({"a": 1.0, "b": 1.0, "c": 0.5})          ["a", "b"]
    others_as_large(values, heads)                 how many heads that were not named are as large as the last that was

Values are the same where they are equal but for the last digits of single precision: the same share, worked out in two
ways, may differ there. Who rounds them for a reader rounds them afterwards. This module does not know any study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import xarray as xr

from headwise.describe.maps import HeadValue
from headwise.describe.words import Writer, listed

__all__ = ["best", "named", "others_as_large", "with_others"]

SAME, LEAST = 1e-6, 1e-9  # of a value, and at nought
MOST = 4  # names in a sentence; of more, the number
Name = TypeVar("Name")


def best(values: Mapping[Name, float], *, smallest: bool = False) -> list[Name]:
    """All that have the largest (or smallest) value, in the order given; NaN counts for nothing.

    >>> best({"a": 1.0, "b": 1.0, "c": 0.5}), best({"a": 1.0, "c": 0.5}, smallest=True), best({})
    (['a', 'b'], ['c'], [])
    """
    known = {name: value for name, value in values.items() if value == value}
    if not known:
        return []
    end = min(known.values()) if smallest else max(known.values())
    return [name for name, value in known.items() if math.isclose(value, end, rel_tol=SAME, abs_tol=LEAST)]


def named(names: Sequence[str], writer: Writer, of: str, noun: str) -> str:
    """Those that share a place: by name where they are few, else how many.

    >>> named(["a", "b"], Writer(""), "best", "head"), named(list("abcdef"), Writer(""), "best", "head")
    ('a and b', '6 heads')
    """
    return listed(names) if len(names) <= MOST else writer.count(len(names), of, noun)


def others_as_large(values: xr.DataArray, heads: Sequence[HeadValue]) -> int:
    """How many heads beside these have the very value of the last of them."""
    if not heads:
        return 0
    last = heads[-1].value
    every, shown = np.asarray(values.values, dtype=float), np.array([head.value for head in heads])
    alike = [int(np.isclose(some, last, rtol=SAME, atol=LEAST).sum()) for some in (every, shown)]
    return alike[0] - alike[1]


def with_others(writer: Writer, told: Sequence[str], count: int, of: str) -> str:
    """A list of heads, and how many more are as large as its last.

    >>> with_others(Writer(""), ["L0H1", "L2H3"], 0, ""), with_others(Writer(""), ["L0H1", "L2H3"], 5, "tied")
    ('L0H1 and L2H3', 'L0H1, L2H3 and 5 others as large as the last')
    """
    if not count:
        return listed(told)
    return listed([*told, f"{writer.count(count, of, 'other')} as large as the last"])
