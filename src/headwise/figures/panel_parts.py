"""What panels are made of: axes, boxes, marks, categories, curves, guides; as plain data.

Like the panels themselves (`panels.py`) they know nothing of matplotlib nor of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.core.errors import DataError

__all__ = ["Axis", "Category", "Curve", "Frame", "Guide", "Mark", "floats", "one_of", "settle"]


@dataclass(frozen=True)
class Axis:
    """One side of a panel. Maps have one label a cell; curves and scatters a range (None: as wide as the data).

    The y axis of curves may have labels too: they name the places 0, 1, 2, ..., as the leaves of a tree.

    Examples:
        >>> heads, share = Axis("Head", labels=("0", "1", "2")), Axis("Share of heads", low=0.0, high=1.0)
        >>> len(heads.labels), share.high
        (3, 1.0)
    """

    name: str  # what stands beside it
    labels: tuple[str, ...] = ()  # one a cell
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
        settle(
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


def settle(panel: Any, **fields: Any) -> None:
    """Put fields into a frozen panel, as only its own `__post_init__` may."""
    for name, value in fields.items():
        object.__setattr__(panel, name, value)


def one_of(what: str, found: str, known: tuple[str, ...]) -> None:
    """Refuse a word that is not among those known."""
    if found not in known:
        raise DataError(f"{found!r} is no {what}; use one of {', '.join(known)}.")
