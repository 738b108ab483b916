"""Tiles on paper: all small maps of a panel as one embedded picture, so that a file with thousands of them stays small.

The picture has as many pixels as its box has dots, so that every pixel is drawn; where a map has more pixels than
its tile has dots it is made smaller by its largest values. The box shrinks to whole dots per tile, so that all lines are
equally thin. What the mask hides is a texture of thin
diagonal strokes. Names stand in the upper right corner of a tile, which in a causal map is masked, where they fit.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from headwise.figures.drawing.maps import colours_of
from headwise.figures.drawing.style import INK, small_ticks
from headwise.figures.layout import SMALL, Slot
from headwise.figures.scale import Scale
from headwise.figures.text_metrics import text_width
from headwise.figures.ticks import thinned
from headwise.figures.tiles import HIDDEN, LEVELS, Tiles, pooled_levels

TEXTURE, STROKE, EDGE = "#f2f2f2", "#dcdcdc", "#9a9a9a"
MIN_POINTS = 3.6  # smaller names are not written
GAP = 0.05  # of a tile
MANY_TILES, REDUCED_SHADES = 600, 40  # above this number, fewer shades, which compress better


def paint_tiles(axes: Axes, panel: Tiles, scale: Scale, slot: Slot) -> None:
    """The picture, the names, and the labels at the margins."""
    dots = int(slot.box.width / panel.columns * axes.figure.dpi)
    cell = dots / axes.figure.dpi  # inches
    box, shrunk = axes.get_position(), cell * panel.columns / slot.box.width
    axes.set_position((box.x0, box.y1 - box.height * shrunk, box.width * shrunk, box.height * shrunk))
    axes.imshow(
        tile_picture(panel, scale, dots),
        extent=(0, panel.columns, panel.rows, 0),
        interpolation="none",
        aspect="auto",
        zorder=1,
    )
    axes.set(xlim=(0, panel.columns), ylim=(panel.rows, 0))
    _write_names(axes, panel, cell)
    _label(axes, panel, slot)
    for spine in axes.spines.values():
        spine.set_visible(False)


def tile_picture(panel: Tiles, scale: Scale, dots: int) -> np.ndarray:
    """The panel as one RGB picture, (row, column, 3) bytes; a tile with its edge and its gap takes ``dots``."""
    gap = max(1, round(GAP * dots))
    side = max(dots - gap - 2, 1)
    levels = _stretched(pooled_levels(panel.levels, side), side)
    page = np.full((panel.rows * dots, panel.columns * dots), _WHITE, dtype=np.int16)
    for index, tile in enumerate(levels):
        top, left = (index // panel.columns) * dots, (index % panel.columns) * dots
        page[top : top + side + 2, left : left + side + 2] = _EDGE
        page[top + 1 : top + side + 1, left + 1 : left + side + 1] = tile
    row, column = np.ogrid[: page.shape[0], : page.shape[1]]
    period = max(4, side // 10)  # dots between two strokes
    page[(page == HIDDEN) & ((row + column) % period < max(1, period // 8))] = _STROKE
    return _colours(scale, REDUCED_SHADES if len(levels) > MANY_TILES else LEVELS)[page]


def _stretched(levels: np.ndarray, side: int) -> np.ndarray:
    """Every pixel repeated, some once more than others, until the tile has this side."""
    rows, columns = (np.arange(side) * length // side for length in levels.shape[1:])
    return levels[:, rows][:, :, columns]


_STROKE, _EDGE, _WHITE = HIDDEN + 1, HIDDEN + 2, HIDDEN + 3


def _colours(scale: Scale, shades: int) -> np.ndarray:
    """RGB bytes of every level, then of what is hidden, strokes, edges and paper; few enough for a palette."""
    known = colours_of(scale)
    steps = np.rint(np.rint(np.linspace(0, 1, LEVELS) * (shades - 1)) / (shades - 1) * (len(known) - 1)).astype(int)
    rest = [to_rgb(colour) for colour in (TEXTURE, STROKE, EDGE, "#ffffff")]
    return np.rint(np.array([known[step][:3] for step in steps] + rest) * 255).astype(np.uint8)


def _write_names(axes: Axes, panel: Tiles, cell: float) -> None:
    """In the corner of each tile, if the longest name takes no more than three quarters of its width."""
    longest = max(text_width(name, 1.0) for name in panel.names)
    points = min(SMALL, 0.74 * cell / longest)
    if points < MIN_POINTS:
        return
    for index, name in enumerate(panel.names):
        row, column = divmod(index, panel.columns)
        axes.text(
            column + 0.93, row + 0.03, name, fontsize=points, ha="right", va="top", color=INK, zorder=3,
            bbox={"boxstyle": "square,pad=0.08", "facecolor": "white", "alpha": 0.75, "linewidth": 0},
        )  # fmt: skip


def _label(axes: Axes, panel: Tiles, slot: Slot) -> None:
    line = SMALL * 1.15 / 72
    for side, labels, name, room in (
        (axes.xaxis, panel.column_labels, panel.column_name, slot.box.width / (2.2 * line)),
        (axes.yaxis, panel.row_labels, panel.row_name, slot.box.height / line),
    ):
        indices = thinned(labels, int(room)) if labels else ()
        side.set_ticks([index + 0.5 for index in indices], [labels[index] for index in indices])
        if labels and name:
            side.set_label_text(name, fontsize=SMALL + 0.6, color=INK)
            side.labelpad = 1.5
    small_ticks(axes)
    axes.tick_params(length=0)
