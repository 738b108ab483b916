"""Phrases that descriptions share: the model, its layers and heads, the answers, a value with its interval, tied values.

Several heads or classes may have the same value, and naming only one of them would be arbitrary. `best` returns all that
share the largest value; `with_others` adds how many unnamed ones are as large as the last that was named. Values are tied
where they are equal up to single precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat, TypeVar

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER
from headwise.core.schema import INTERVAL_ENDS
from headwise.describe.maps import HeadValue
from headwise.describe.writer import Writer, listed
from headwise.figures.provenance import model_name, provenance_of

RELATIVE_TIE, ABSOLUTE_TIE = 1e-6, 1e-9  # single precision
SMALL_SAMPLE = 100  # answers of the rarer class, below which intervals are wide
MAX_NAMES = 4  # in a sentence; of more, only the number
Name = TypeVar("Name")


class Accessor:
    """The parts of a study's Dataset by name; each study adds its own."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = provenance_of(dataset)
        self.parameters: dict[str, Any] = self.origin.get("parameters", {})
        self.data: dict[str, Any] = self.origin.get("data", {})  # what the model was shown
        self.layers, self.heads = (
            [int(name) for name in dataset[dim].values]
            if dim in dataset.coords
            else list(range(dataset.sizes.get(dim, 0)))
            for dim in (LAYER, HEAD)
        )


def model_of(accessor: Accessor) -> str:
    """The model's id, or "the model" where it is unknown."""
    return model_name(accessor.origin) or "the model"


def model_in(dataset: xr.Dataset) -> str:
    """The same for a Dataset."""
    return model_name(provenance_of(dataset)) or "the model"


def size_of(writer: Writer, accessor: Accessor) -> str:
    """Such as "30 layers of 9 heads"."""
    layers = writer.count(len(accessor.layers), "layers", "layer")
    return f"{layers} of {writer.count(len(accessor.heads), 'heads', 'head')}"


def answers_of(writer: Writer, counts: Mapping[str, int]) -> str:
    """How many answers of each class."""
    if not {"wrong", "correct"} <= set(counts):
        return "wrong and correct answers"
    wrong, correct = writer.count(counts["wrong"], "count wrong"), writer.count(counts["correct"], "count correct")
    return f"{wrong} wrong and {correct} correct answers"


def with_interval(
    writer: Writer,
    read: Callable[[str], SupportsFloat],
    variable: str,
    source: str = "",
    *,
    write: Callable[[float, str], str] | None = None,
) -> str:
    """A variable with its 95 % confidence interval, such as "0.83 (0.79 to 0.87)".

    ``read`` gives ``variable``, ``variable_low`` and ``variable_high`` by name; ``source`` is added to their sources; ``write``
    is a method of the writer, by default two decimals.
    """
    value, low, high = (
        (write or writer.fixed)(float(read(f"{variable}{end}")), f"{variable}{end} {source}".strip())
        for end in INTERVAL_ENDS
    )
    return f"{value} ({low} to {high})"


def ends_of(writer: Writer, values: np.ndarray, of: str) -> tuple[str, str, str]:
    """The smallest value, the median and the largest, as texts; their sources are "min", "median" and "max" of it."""
    found = np.nanquantile(np.asarray(values, dtype=float), [0.0, 0.5, 1.0])
    low, middle, high = (
        writer.number(float(value), f"{name} {of}") for name, value in zip(("min", "median", "max"), found, strict=True)
    )
    return low, middle, high


def best(values: Mapping[Name, float], *, smallest: bool = False) -> list[Name]:
    """All that have the largest (or smallest) value, in the given order; NaN is ignored.

    >>> best({"a": 1.0, "b": 1.0, "c": 0.5}), best({"a": 1.0, "c": 0.5}, smallest=True), best({})
    (['a', 'b'], ['c'], [])
    """
    known = {name: value for name, value in values.items() if value == value}
    if not known:
        return []
    end = min(known.values()) if smallest else max(known.values())
    return [
        name for name, value in known.items() if math.isclose(value, end, rel_tol=RELATIVE_TIE, abs_tol=ABSOLUTE_TIE)
    ]


def named(names: Sequence[str], writer: Writer, source: str, noun: str) -> str:
    """Names that share a rank: listed where they are few, else counted.

    >>> named(["a", "b"], Writer(""), "best", "head"), named(list("abcdef"), Writer(""), "best", "head")
    ('a and b', '6 heads')
    """
    return listed(names) if len(names) <= MAX_NAMES else writer.count(len(names), source, noun)


def others_as_large(values: xr.DataArray, heads: Sequence[HeadValue]) -> int:
    """How many other heads have the same value as the last of these."""
    if not heads:
        return 0
    last = heads[-1].value
    every, shown = np.asarray(values.values, dtype=float), np.array([head.value for head in heads])
    tied = [int(np.isclose(some, last, rtol=RELATIVE_TIE, atol=ABSOLUTE_TIE).sum()) for some in (every, shown)]
    return tied[0] - tied[1]


def with_others(writer: Writer, names: Sequence[str], count: int, source: str) -> str:
    """A list of heads, and how many more are as large as its last.

    >>> with_others(Writer(""), ["L0H1", "L2H3"], 0, ""), with_others(Writer(""), ["L0H1", "L2H3"], 5, "tied")
    ('L0H1 and L2H3', 'L0H1, L2H3 and 5 others as large as the last')
    """
    if not count:
        return listed(names)
    return listed([*names, f"{writer.count(count, source, 'other')} as large as the last"])
