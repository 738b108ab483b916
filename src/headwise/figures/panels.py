"""The kinds of panels, as plain data: what is shown, not how it is drawn.

| panel | shows | first used by |
|---|---|---|
| `Heatmap` | a number per cell, by colour | profile, spectral, functions, probing |
| `CategoryMap` | a category per cell | relations |
| `Curves` | lines over a numeric axis, with bands | sorted importances, sweeps, counts per layer |
| `Scatter` | one point per head (or example) | one map against another |
| `Intervals` | one value with its interval per row, named at the left | results of detectors |
| `Tiles` | a small map per head, in a grid (`tiles.py`) | patterns |
| `Legend` | what colours and signs mean; takes a cell of the grid | all |

Arrays are float32 and read-only, row 0 is drawn at the top, and NaN means "not measured": it is drawn as a texture and
never as a number. Panels know nothing of matplotlib nor of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwise.core.errors import DataError
from headwise.figures.tiles import Tiles


@dataclass(frozen=True)
class Axis:
    """One side of a panel. Maps have one label per cell; curves and scatters a range (None: as wide as the data).

    The y axis of curves may have labels too: they name the positions 0, 1, 2, ..., such as the leaves of a tree.

    Examples:
        >>> heads, share = Axis("Head", labels=("0", "1", "2")), Axis("Share of heads", low=0.0, high=1.0)
        >>> len(heads.labels), share.high
        (3, 1.0)
    """

    name: str  # written next to it
    labels: tuple[str, ...] = ()  # one per cell
    low: float | None = None  # where it begins
    high: float | None = None  # where it ends
    log: bool = False  # equal steps are equal factors


@dataclass(frozen=True)
class Frame:
    """A box around cells, first to last inclusive, counted from 0 in drawing order.

    Examples:
        >>> Frame(2, 4, 0, 5, "middle layers").last_row
        4
    """

    first_row: int  # from the top
    last_row: int  # itself included
    first_column: int  # from the left
    last_column: int  # itself included
    text: str = ""  # what it says


@dataclass(frozen=True)
class Mark:
    """A cell that is pointed at.

    Examples:
        >>> Mark(3, 7, "L3H7").sign
        'ring'
    """

    row: int  # from the top
    column: int  # from the left
    text: str = ""  # what it says
    sign: str = "ring"  # or "dot" for one of many, "cross" for one to be doubted, "text"

    def __post_init__(self) -> None:
        one_of("sign of a mark", self.sign, ("ring", "dot", "cross", "text"))


@dataclass(frozen=True)
class Category:
    """A colour and what it means.

    Examples:
        >>> Category("knowledge", "Knowledge", "#2e7d32").sign
        'square'
    """

    key: str  # its name in data
    label: str  # its name for readers
    colour: str = "#222222"  # #rrggbb
    sign: str = "square"  # how the legend draws it: also frame, dot, line, dashed, ring, cross, pointer, texture

    def __post_init__(self) -> None:
        one_of(
            "sign of a category",
            self.sign,
            ("square", "frame", "dot", "line", "dashed", "ring", "cross", "pointer", "texture"),
        )


@dataclass(frozen=True, eq=False)
class Curve:
    """One line, with a band from ``low`` to ``high`` where it is known.

    Examples:
        >>> Curve("accuracy", "Accuracy", x=[1, 2, 4], y=[0.9, 0.7, 0.4], low=[0.8, 0.6, 0.3], high=[1, 0.8, 0.5]).y
        array([0.9, 0.7, 0.4], dtype=float32)
    """

    key: str  # its name in the panel
    label: str  # in the legend
    x: np.ndarray  # (point,)
    y: np.ndarray  # (point,)
    low: np.ndarray | None = None  # lower edge of the band
    high: np.ndarray | None = None  # upper edge
    colour: str = "#31688e"  # #rrggbb
    style: str = "line"  # or "dashed", "step", "points"

    def __post_init__(self) -> None:
        one_of("style of a curve", self.style, ("line", "dashed", "step", "points"))
        set_frozen(
            self,
            **{name: floats(side) for name in ("x", "y", "low", "high") if (side := getattr(self, name)) is not None},
        )
        if (
            len({side.shape for side in (self.x, self.y, self.low, self.high) if side is not None}) != 1
            or self.x.ndim != 1
        ):
            raise DataError(f"Curve {self.key!r}: x, y, low and high must be one-dimensional and equally long.")


@dataclass(frozen=True)
class Guide:
    """A thin line behind the data: chance, an elbow, the diagonal.

    Examples:
        >>> Guide("y", 0.5, "chance").at
        0.5
    """

    axis: str  # "x", "y", or "diagonal": x = y
    at: float = 0.0  # where on that axis
    text: str = ""  # what it says

    def __post_init__(self) -> None:
        one_of("axis of a guide", self.axis, ("x", "y", "diagonal"))


def floats(values: Any) -> np.ndarray:
    """A copy in float32 that cannot be written to."""
    array = np.array(values, dtype=np.float32)
    array.flags.writeable = False
    return array


def set_frozen(panel: Any, **fields: Any) -> None:
    """Set fields of a frozen dataclass, in its own `__post_init__` only."""
    for name, value in fields.items():
        object.__setattr__(panel, name, value)


def one_of(what: str, found: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not among the known ones."""
    if found not in known:
        raise DataError(f"{found!r} is no {what}; use one of {', '.join(known)}.")


@dataclass(frozen=True, eq=False)
class Heatmap:
    """Numbers by colour.

    Examples:
        A map of one's own, drawn as those of the studies are.

        >>> from headwise.figures import Figure, scale_over
        >>> values = np.array([[0.1, 0.9, 0.2], [0.3, 0.1, 0.0]])
        >>> layers, heads = Axis("Layer", ("1", "0")), Axis("Head", ("0", "1", "2"))
        >>> panel = Heatmap("mine", "My score", values, x=heads, y=layers, scale="score", marks=(Mark(0, 1, "L1H1"),))
        >>> Figure("Which head?", (panel,), columns=1, scales={"score": scale_over(values, "score")})
        <Figure 'Which head?': mine>
    """

    key: str  # its name in the figure
    title: str  # over the panel
    values: np.ndarray  # (row, column)
    x: Axis  # the columns
    y: Axis  # the rows
    scale: str  # key of a scale of the figure
    subtitle: str = ""  # under the title
    frames: tuple[Frame, ...] = ()  # boxes around cells
    marks: tuple[Mark, ...] = ()  # cells pointed at
    extras: Mapping[str, np.ndarray] = field(
        default_factory=dict
    )  # further maps, shown on hover (interval, baseline, p)
    missing: str = "not measured"  # what a cell that is NaN means; written across a map that has no other cells

    def __post_init__(self) -> None:
        set_frozen(self, values=floats(self.values))
        set_frozen(self, extras={name: floats(extra) for name, extra in self.extras.items()})
        _check_cells(self.key, self.values, self.x, self.y, self.marks, self.frames)
        for name, extra in self.extras.items():
            if extra.shape != self.values.shape:
                raise DataError(f"Panel {self.key!r}: {name!r} is {extra.shape}, the map is {self.values.shape}.")


@dataclass(frozen=True, eq=False)
class CategoryMap:
    """Categories by colour.

    Examples:
        >>> kinds = (Category("copying", "Copies", "#31688e"), Category("other", "Does not", "#bbbbbb"))
        >>> layers, heads = Axis("Layer", ("0",)), Axis("Head", ("0", "1", "2"))
        >>> CategoryMap("kinds", "Who copies?", [[0, 1, -1]], kinds, x=heads, y=layers).values
        array([[ 0,  1, -1]])
    """

    key: str  # its name in the figure
    title: str  # over the panel
    values: np.ndarray  # (row, column), indices of `categories`; -1: not measured
    categories: tuple[Category, ...]  # colours and what they mean
    x: Axis  # the columns
    y: Axis  # the rows
    subtitle: str = ""  # under the title
    shape: str = "square"  # or "dot": one mark per head
    frames: tuple[Frame, ...] = ()  # boxes around cells
    marks: tuple[Mark, ...] = ()  # cells pointed at
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # further maps, shown on hover
    missing: str = "not measured"  # what a cell of -1 means

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.int64)
        values.flags.writeable = False
        set_frozen(self, values=values, extras={name: floats(extra) for name, extra in self.extras.items()})
        one_of("shape of a category map", self.shape, ("square", "dot"))
        _check_cells(self.key, values, self.x, self.y, self.marks, self.frames)
        if values.size and not (values.min() >= -1 and values.max() < len(self.categories)):
            raise DataError(
                f"Panel {self.key!r} has cells of category {values.min()} to {values.max()}; with its "
                f"{len(self.categories)} categories they may be -1 (not measured) to {len(self.categories) - 1}."
            )


@dataclass(frozen=True)
class Curves:
    """Lines over a numeric axis.

    Examples:
        >>> line = Curve("accuracy", "Accuracy", x=[1, 2, 4], y=[0.9, 0.7, 0.4])
        >>> panel = Curves("removal", "Without heads", (line,), Axis("Heads removed", log=True), Axis("Accuracy"))
        >>> panel.curves[0].label
        'Accuracy'
    """

    key: str  # its name in the figure
    title: str  # over the panel
    curves: tuple[Curve, ...]  # the lines
    x: Axis  # to the right
    y: Axis  # upwards
    subtitle: str = ""  # under the title
    guides: tuple[Guide, ...] = ()  # thin lines behind


@dataclass(frozen=True, eq=False)
class Scatter:
    """Points with names.

    Examples:
        >>> x, y = Axis("Induction"), Axis("Previous token")
        >>> Scatter("both", "One against the other", [0.9, 0.1], [0.0, 0.8], x, y, names=("L5H1", "L4H2"), shown=(0,)).names
        ('L5H1', 'L4H2')
    """

    key: str  # its name in the figure
    title: str  # over the panel
    x_values: np.ndarray  # (point,)
    y_values: np.ndarray  # (point,)
    x: Axis  # to the right
    y: Axis  # upwards
    names: tuple[str, ...] = ()  # of the points
    groups: tuple[int, ...] = ()  # indices of `categories`; none: one group
    categories: tuple[Category, ...] = ()  # colours and what they mean
    shown: tuple[int, ...] = ()  # points whose names are written
    subtitle: str = ""  # under the title
    guides: tuple[Guide, ...] = ()  # thin lines behind

    def __post_init__(self) -> None:
        set_frozen(self, x_values=floats(self.x_values), y_values=floats(self.y_values))
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
    """A table of results as a picture: one row per name (``y.labels``, first on top), a dot and a line from low to high.

    Examples:
        >>> rows = Axis("Detector", ("Laplacian", "length of the answer"))
        >>> Intervals("auroc", "AUROC", [0.74, 0.61], [0.70, 0.57], [0.78, 0.65], Axis("AUROC"), rows).values
        array([0.74, 0.61], dtype=float32)
    """

    key: str  # its name in the figure
    title: str  # over the panel
    values: np.ndarray  # (row,)
    low: np.ndarray  # (row,), where the line begins
    high: np.ndarray  # (row,), where it ends
    x: Axis  # of the values
    y: Axis  # of the rows
    groups: tuple[int, ...] = ()  # indices of `categories`; none: one group
    categories: tuple[Category, ...] = ()  # colours and what they mean
    subtitle: str = ""  # under the title
    guides: tuple[Guide, ...] = ()  # thin lines behind

    def __post_init__(self) -> None:
        set_frozen(self, values=floats(self.values), low=floats(self.low), high=floats(self.high))
        size = len(self.y.labels)
        lengths = {self.values.shape, self.low.shape, self.high.shape, (len(self.groups or range(size)),)}
        if lengths != {(size,)} or not size:
            raise DataError(
                f"Intervals {self.key!r}: values, low, high, groups and the labels of {self.y.name!r} must be equally "
                "long, and at least one."
            )


@dataclass(frozen=True)
class Legend:
    """What colours and signs mean. Takes a cell of the grid like a panel.

    Examples:
        >>> Legend("legend", (Category("ring", "named in the text", sign="ring"),)).entries[0].label
        'named in the text'
    """

    key: str  # its name in the figure
    entries: tuple[Category, ...]  # colours, signs and what they mean
    title: str = ""  # over it
    subtitle: str = ""  # under the title


Panel = Heatmap | CategoryMap | Curves | Scatter | Intervals | Tiles | Legend


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
            f"{y.name!r} and {len(x.labels)} for {x.name!r}; give one label per cell."
        )
    rows = [mark.row for mark in marks] + [row for frame in frames for row in (frame.first_row, frame.last_row)]
    columns = [mark.column for mark in marks] + [c for frame in frames for c in (frame.first_column, frame.last_column)]
    if any(not 0 <= row < values.shape[0] for row in rows) or any(not 0 <= c < values.shape[1] for c in columns):
        raise DataError(
            f"Panel {key!r} marks or frames a cell outside of its {values.shape[0]} x {values.shape[1]} cells."
        )
