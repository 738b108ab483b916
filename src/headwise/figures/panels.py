"""The kinds of panels, as plain data: what is shown, not how it is drawn.

| panel | shows | first used by |
|---|---|---|
| `Heatmap` | a number per cell, by colour | profile, spectral, functions, probing |
| `CategoryMap` | a category per cell | relations |
| `Curves` | lines over a numeric axis, with bands | sorted importances, sweeps, counts per layer |
| `Scatter` | one point a head (or an example) | one map against another |
| `Intervals` | a value and its interval a row, named at the left | results of detectors |
| `Tiles` | a small map a head, in a grid (`tiles.py`) | patterns |
| `Legend` | what colours and signs mean; takes a place in the grid | all |

Arrays are float32 and read-only, row 0 is drawn at the top, and NaN means "not measured": it is drawn as a texture and
never as a number. Panels know nothing of matplotlib nor of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwise.errors import DataError
from headwise.figures.tiles import Tiles


@dataclass(frozen=True)
class Axis:
    """One side of a panel. Maps have one label a cell; curves and scatters a range (None: as wide as the data).

    The y axis of curves may have labels too: they name the places 0, 1, 2, ..., as the leaves of a tree.
    """

    name: str
    labels: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Frame:
    """A box around cells, first to last inclusive, counted from 0 in drawing order."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """A cell that is pointed at: a ring (``sign="ring"``), a dot for one of many, a cross for one to be doubted, or text."""

    row: int
    column: int
    text: str = ""
    sign: str = "ring"

    def __post_init__(self) -> None:
        _one_of("sign of a mark", self.sign, ("ring", "dot", "cross", "text"))


@dataclass(frozen=True)
class Category:
    """A colour (``#rrggbb``) and what it means. ``sign`` is how the legend draws it."""

    key: str
    label: str
    colour: str = "#222222"
    sign: str = "square"

    def __post_init__(self) -> None:
        _one_of(
            "sign of a category",
            self.sign,
            ("square", "frame", "dot", "line", "dashed", "ring", "cross", "pointer", "texture"),
        )


@dataclass(frozen=True, eq=False)
class Heatmap:
    """Numbers by colour. ``extras`` are maps of the same shape, to be asked of a cell (interval, baseline, p)."""

    key: str
    title: str
    values: np.ndarray  # (row, column)
    x: Axis
    y: Axis
    scale: str  # key of a scale of the figure
    subtitle: str = ""
    frames: tuple[Frame, ...] = ()
    marks: tuple[Mark, ...] = ()
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    missing: str = "not measured"  # what a cell that is NaN means; written across a map that has no other cells

    def __post_init__(self) -> None:
        _settle(self, values=_floats(self.values))
        _settle(self, extras={name: _floats(extra) for name, extra in self.extras.items()})
        _check_cells(self.key, self.values, self.x, self.y, self.marks, self.frames)
        for name, extra in self.extras.items():
            if extra.shape != self.values.shape:
                raise DataError(f"Panel {self.key!r}: {name!r} is {extra.shape}, the map is {self.values.shape}.")


@dataclass(frozen=True, eq=False)
class CategoryMap:
    """Categories by colour. ``values`` are places in ``categories``; -1 is a cell that was not measured."""

    key: str
    title: str
    values: np.ndarray  # (row, column), int
    categories: tuple[Category, ...]
    x: Axis
    y: Axis
    subtitle: str = ""
    shape: str = "square"  # or "dot": one mark a head
    frames: tuple[Frame, ...] = ()
    marks: tuple[Mark, ...] = ()
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    missing: str = "not measured"

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.int64)
        values.flags.writeable = False
        _settle(self, values=values, extras={name: _floats(extra) for name, extra in self.extras.items()})
        _one_of("shape of a category map", self.shape, ("square", "dot"))
        _check_cells(self.key, values, self.x, self.y, self.marks, self.frames)
        if values.size and not (values.min() >= -1 and values.max() < len(self.categories)):
            raise DataError(
                f"Panel {self.key!r} has cells of category {values.min()} to {values.max()}; with its "
                f"{len(self.categories)} categories they may be -1 (not measured) to {len(self.categories) - 1}."
            )


@dataclass(frozen=True, eq=False)
class Curve:
    """One line, with a band from ``low`` to ``high`` where it is known."""

    key: str
    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: str = "#31688e"
    style: str = "line"  # or "dashed", "step", "points"

    def __post_init__(self) -> None:
        _one_of("style of a curve", self.style, ("line", "dashed", "step", "points"))
        _settle(
            self,
            **{name: _floats(side) for name in ("x", "y", "low", "high") if (side := getattr(self, name)) is not None},
        )
        if (
            len({side.shape for side in (self.x, self.y, self.low, self.high) if side is not None}) != 1
            or self.x.ndim != 1
        ):
            raise DataError(f"Curve {self.key!r}: x, y, low and high must be one-dimensional and equally long.")


@dataclass(frozen=True)
class Guide:
    """A thin line behind the data: at a value of ``x`` or ``y`` (chance, an elbow), or the ``diagonal`` x = y."""

    axis: str
    at: float = 0.0
    text: str = ""

    def __post_init__(self) -> None:
        _one_of("axis of a guide", self.axis, ("x", "y", "diagonal"))


@dataclass(frozen=True)
class Curves:
    """Lines over a numeric axis."""

    key: str
    title: str
    curves: tuple[Curve, ...]
    x: Axis
    y: Axis
    subtitle: str = ""
    guides: tuple[Guide, ...] = ()


@dataclass(frozen=True, eq=False)
class Scatter:
    """Points with names.

    ``groups`` are places in ``categories`` (empty: one group); ``shown`` are the points whose names are written.
    """

    key: str
    title: str
    x_values: np.ndarray
    y_values: np.ndarray
    x: Axis
    y: Axis
    names: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    categories: tuple[Category, ...] = ()
    shown: tuple[int, ...] = ()
    subtitle: str = ""
    guides: tuple[Guide, ...] = ()

    def __post_init__(self) -> None:
        _settle(self, x_values=_floats(self.x_values), y_values=_floats(self.y_values))
        size = self.x_values.size
        lengths = {
            self.x_values.shape,
            self.y_values.shape,
            (len(self.names or range(size)),),
            (len(self.groups or range(size)),),
        }
        if len(lengths) != 1:
            raise DataError(f"Scatter {self.key!r}: x, y, names and groups must be equally long.")


@dataclass(frozen=True, eq=False)
class Intervals:
    """A table of results as a picture: one row a name (``y.labels``, first on top), a dot and a line from low to high.

    ``groups`` are places in ``categories`` (empty: one group).
    """

    key: str
    title: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    x: Axis
    y: Axis
    groups: tuple[int, ...] = ()
    categories: tuple[Category, ...] = ()
    subtitle: str = ""
    guides: tuple[Guide, ...] = ()

    def __post_init__(self) -> None:
        _settle(self, values=_floats(self.values), low=_floats(self.low), high=_floats(self.high))
        size = len(self.y.labels)
        lengths = {self.values.shape, self.low.shape, self.high.shape, (len(self.groups or range(size)),)}
        if lengths != {(size,)} or not size:
            raise DataError(
                f"Intervals {self.key!r}: values, low, high, groups and the labels of {self.y.name!r} must be equally "
                "long, and at least one."
            )


@dataclass(frozen=True)
class Legend:
    """What colours and signs mean. Stands where a panel would stand, so its place is part of the figure."""

    key: str
    entries: tuple[Category, ...]
    title: str = ""
    subtitle: str = ""


Panel = Heatmap | CategoryMap | Curves | Scatter | Intervals | Tiles | Legend


def _floats(values: Any) -> np.ndarray:
    array = np.array(values, dtype=np.float32)
    array.flags.writeable = False
    return array


def _settle(panel: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(panel, name, value)


def _one_of(what: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        raise DataError(f"{found!r} is no {what}; use one of {', '.join(known)}.")


def _check_cells(
    key: str, values: np.ndarray, x: Axis, y: Axis, marks: tuple[Mark, ...], frames: tuple[Frame, ...]
) -> None:
    if values.ndim != 2 or values.size == 0:
        raise DataError(
            f"Panel {key!r} must be a map of rows and columns with at least one cell; it is {values.shape}."
        )
    if (len(y.labels), len(x.labels)) != values.shape:
        raise DataError(
            f"Panel {key!r} has {values.shape[0]} rows and {values.shape[1]} columns, but {len(y.labels)} labels for "
            f"{y.name!r} and {len(x.labels)} for {x.name!r}; give one label a cell."
        )
    rows = [mark.row for mark in marks] + [row for frame in frames for row in (frame.first_row, frame.last_row)]
    columns = [mark.column for mark in marks] + [c for frame in frames for c in (frame.first_column, frame.last_column)]
    if any(not 0 <= row < values.shape[0] for row in rows) or any(not 0 <= c < values.shape[1] for c in columns):
        raise DataError(
            f"Panel {key!r} marks or frames a cell outside of its {values.shape[0]} x {values.shape[1]} cells."
        )
