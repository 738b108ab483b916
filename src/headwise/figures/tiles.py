"""Many small maps in one panel: one picture per head, in a grid, each with its name.

The pixels of all tiles are one array of bytes: 0 to 254 are the levels of the colour scale from its low end to its high
one, 255 is a pixel that was hidden by the mask (drawn as texture, never as zero). So 270 maps of 64 x 64 pixels are a
megabyte in memory, and less in a file. A map that is larger than its tile is made smaller by `pooled`: the largest
value of each rectangle, never by skipping rows, so that a single bright pixel stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwise.core.errors import DataError
from headwise.figures.ticks import round_up

HIDDEN = 255
LEVELS = 255  # 0 ... 254
SCALE_QUANTILE, MIN_SCALE_END = 0.995, 0.2  # share of attention weights below the high end of their scale; its minimum


@dataclass(frozen=True, eq=False)
class Tiles:
    """Small maps, ``columns`` to a row, filled row by row. Rows and columns of tiles may have names at the margins.

    Examples:
        >>> maps = np.array([[[1.0, np.nan], [0.5, 0.5]]])  # one head, two tokens
        >>> Tiles("maps", "Attention", to_levels(maps, 0.0, 1.0), ("L0H0",), columns=1, scale="weight").levels
        array([[[254, 255],
                [127, 127]]], dtype=uint8)
    """

    key: str  # its name in the figure
    title: str  # over the panel
    levels: np.ndarray  # (tile, row, column), uint8
    names: tuple[str, ...]  # one per tile
    columns: int  # tiles in a row
    scale: str  # key of a scale of the figure
    subtitle: str = ""  # under the title
    row_name: str = ""  # what the rows of tiles are, such as "Head"
    row_labels: tuple[str, ...] = ()  # one per row of tiles
    column_name: str = ""  # what the columns of tiles are, such as "Layer"
    column_labels: tuple[str, ...] = ()  # one per column of tiles
    missing: str = "masked"  # what a hidden pixel means

    def __post_init__(self) -> None:
        levels = np.array(self.levels, dtype=np.uint8)
        levels.flags.writeable = False
        object.__setattr__(self, "levels", levels)
        if levels.ndim != 3 or levels.size == 0 or self.columns < 1 or len(self.names) != len(levels):
            raise DataError(
                f"Panel {self.key!r} must have one name for each of its tiles and at least one column; it has "
                f"{len(self.names)} names, tiles of shape {levels.shape} and {self.columns} columns."
            )
        if self.row_labels and len(self.row_labels) != self.rows:
            raise DataError(
                f"Panel {self.key!r} has {self.rows} rows of tiles and {len(self.row_labels)} names for them."
            )
        if self.column_labels and len(self.column_labels) != self.columns:
            raise DataError(
                f"Panel {self.key!r} has {self.columns} columns and {len(self.column_labels)} names for them."
            )

    @property
    def rows(self) -> int:
        """How many rows of tiles there are."""
        return -(-len(self.names) // self.columns)


def scale_end(weights: np.ndarray) -> float:
    """The high end of a scale of attention weights (NaN: masked): nearly all are below, the 1 of each first row is not.

    >>> scale_end(np.array([[1.0, np.nan], [0.5, 0.5]])), scale_end(np.full((3, 3), 0.1))
    (1.0, 0.2)
    """
    visible = weights[np.isfinite(weights)]
    return min(max(round_up(float(np.quantile(visible, SCALE_QUANTILE))), MIN_SCALE_END), 1.0)


def to_levels(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers as bytes of a scale; NaN is hidden."""
    share = (values.astype(np.float32) - low) / (high - low)
    levels = np.rint(np.clip(np.nan_to_num(share), 0, 1) * (LEVELS - 1)).astype(np.uint8)
    levels[np.isnan(values)] = HIDDEN
    return levels


def pooled(values: np.ndarray, size: int) -> np.ndarray:
    """The last two axes cut into at most ``size`` stretches, the largest of each rectangle; NaN only where all are.

    >>> pooled(np.array([[1.0, np.nan], [5.0, 2.0]]), 1)
    array([[5.]])
    """
    for axis in (-2, -1):
        length = values.shape[axis]
        if length > size:
            values = np.fmax.reduceat(values, np.arange(size) * length // size, axis=axis)
    return values


def pooled_levels(levels: np.ndarray, size: int) -> np.ndarray:
    """The same of bytes, where a hidden pixel is less than any level."""
    return pooled(levels + np.uint8(1), size) - np.uint8(1)  # 255 becomes 0, and returns to 255
