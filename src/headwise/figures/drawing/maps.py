"""Maps on paper: heatmaps, category maps, grids of tiles, and the colour bar.

A map is painted as one path per colour, runs of equal neighbours joined: a figure of eleven 80 x 64 maps stays a true
vector drawing of less than a megabyte, where one object per cell would take several and an embedded picture would blur in
some viewers. Each path has a hair-thin edge of its own colour, so that no white seams show between the cells.

All tiles of a panel are one embedded picture, with as many pixels as its box has dots; where a map has more pixels than its
tile has dots, it is made smaller by its largest values. Masked pixels are a texture of thin diagonal strokes. Names are written
where they fit: in the upper right corner of a tile, which is masked in a causal map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from headwise.figures.drawing.style import INK, outline, small_ticks, texture, thin_spines
from headwise.figures.layout import SMALL, Slot, upright
from headwise.figures.panels import Axis, CategoryMap, Heatmap, Mark
from headwise.figures.scale import Scale
from headwise.figures.text_metrics import LEADING, text_width, wrap
from headwise.figures.ticks import thinned
from headwise.figures.tiles import HIDDEN, LEVELS, Tiles, pooled_levels

COLOUR_STEPS = 128  # steps of a colour scale: finer than the eye tells apart, and half the file of the usual 256
MAX_TICKS = 8
MIN_POINTS = 3.6  # smaller names are not written
GAP = 0.05  # of a tile
MANY_TILES, REDUCED_SHADES = 600, 40  # above this number, fewer shades, which compress better


def paint_heatmap(axes: Axes, panel: Heatmap, scale: Scale, slot: Slot) -> None:
    """Colours for numbers, texture for what was not measured, then marks and frames."""
    share = scale.share(panel.values)
    measured = np.isfinite(share)
    levels = np.where(measured, np.clip(np.nan_to_num(share) * COLOUR_STEPS, 0, COLOUR_STEPS - 1), -1).astype(int)
    _paint_map(axes, panel, levels, colours_of(scale), slot)
    if not measured.any():
        _write_across(axes, panel.missing, slot)


def paint_categories(axes: Axes, panel: CategoryMap, slot: Slot) -> None:
    """One square or dot per cell, in the colour of its category."""
    colours = [category.colour for category in panel.categories]
    if panel.shape == "dot":
        rows, columns = panel.values.shape
        size = 0.8 * 72 * min(slot.box.width / columns, slot.box.height / rows)
        for index, colour in enumerate(colours):
            y, x = np.nonzero(panel.values == index)
            axes.plot(x, y, "o", markersize=size, markeredgewidth=0, color=colour)
    _paint_map(axes, panel, panel.values, colours, slot)


def paint_bar(axes: Axes, scale: Scale, label: str) -> None:
    """A colour bar: the colours, the ticks with their plus where the scale was clipped, and pointers at the marks."""
    _paint_cells(axes, np.arange(COLOUR_STEPS - 1, -1, -1)[:, None], colours_of(scale))
    axes.set(xlim=(-0.5, 0.5), ylim=(COLOUR_STEPS - 0.5, -0.5))

    def height(value: float) -> float:
        return float(1 - scale.share(np.array(value))) * COLOUR_STEPS - 0.5

    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.set_yticks([height(value) for value, _ in scale.ticks()], [text for _, text in scale.ticks()])
    small_ticks(axes)
    for mark in scale.marks:
        if scale.low <= mark.value <= scale.high:
            y = height(mark.value)
            axes.plot([-0.5, 0.5], [y, y], color="white", linewidth=0.7)
            axes.plot([-0.5], [y], ">", markersize=2.8, markeredgewidth=0, color=INK, clip_on=False, zorder=5)
    if label:
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(label, fontsize=SMALL, color=INK, labelpad=2.5)
    thin_spines(axes)


def colours_of(scale: Scale) -> list[Any]:
    colours = matplotlib.colormaps[scale.colours].resampled(COLOUR_STEPS)
    return [colours(level) for level in range(COLOUR_STEPS)]


def _paint_map(
    axes: Axes, panel: Heatmap | CategoryMap, levels: np.ndarray, colours: Sequence[Any], slot: Slot
) -> None:
    rows, columns = levels.shape
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    if (levels < 0).any():
        axes.add_patch(texture(-0.5, -0.5, columns, rows))  # seen where no cell is painted over it
    if isinstance(panel, Heatmap) or panel.shape == "square":
        _paint_cells(axes, levels, colours)
    cell = 72 * min(slot.box.width / columns, slot.box.height / rows)
    below = {int(levels[mark.row, mark.column]) for mark in panel.marks}
    dark = {level: level >= 0 and _is_dark(colours[level]) for level in below}
    for mark in panel.marks:
        if mark.sign == "text":
            _write_mark(axes, mark, cell, dark=dark[int(levels[mark.row, mark.column])])
    _paint_outlines(axes, panel.marks, cell)
    _paint_dots(axes, panel.marks, levels, cell, dark)
    for frame in panel.frames:
        left, top = frame.first_column - 0.5, frame.first_row - 0.5
        wide, high = frame.last_column - left + 0.5, frame.last_row - top + 0.5
        axes.add_patch(
            Rectangle((left, top), wide, high, fill=False, edgecolor="black", linewidth=1.1, clip_on=False, zorder=4)
        )
        if frame.text:
            axes.text(left, top, frame.text, fontsize=SMALL, va="bottom", color=INK)
    _label_cells(axes, panel.x, panel.y, slot)
    thin_spines(axes)


def _write_across(axes: Axes, text: str, slot: Slot) -> None:
    """Why there is nothing to see, in the middle of a panel without a number."""
    lines = wrap(text, 0.86 * slot.box.width, SMALL)
    paper = {"boxstyle": "square,pad=0.25", "facecolor": "white", "linewidth": 0}
    axes.text(
        0.5, 0.5, "\n".join(lines), fontsize=SMALL, color=INK, linespacing=LEADING, ha="center", va="center", bbox=paper,
        transform=axes.transAxes,
    )  # fmt: skip


def _write_mark(axes: Axes, mark: Mark, cell: float, *, dark: bool) -> None:
    ink, points = "white" if dark else INK, min(SMALL, cell * 0.5, cell * 1.4 / max(len(mark.text), 1))
    axes.text(mark.column, mark.row, mark.text, fontsize=points, ha="center", va="center", color=ink)


def _paint_outlines(axes: Axes, marks: Sequence[Mark], cell: float) -> None:
    """All rings of a map at once, and all crosses: white below, which is seen on dark cells, ink above."""
    size = min(max(0.75 * cell, 4.2), 5.0)
    for sign in dict.fromkeys(mark.sign for mark in marks if mark.sign not in ("text", "dot")):
        own = [mark for mark in marks if mark.sign == sign]
        columns, rows = [mark.column for mark in own], [mark.row for mark in own]
        for colour, thick in (("white", 1.5), (INK, 0.7)):
            outline(axes, columns, rows, size, sign=sign, colour=colour, thick=thick)


def _paint_dots(axes: Axes, marks: Sequence[Mark], levels: np.ndarray, cell: float, dark: Mapping[int, bool]) -> None:
    """All dots of a map at once, since there may be hundreds: light on dark cells, dark on light ones."""
    dots = [mark for mark in marks if mark.sign == "dot"]
    for ink, wanted in ((INK, False), ("white", True)):
        own = [mark for mark in dots if dark[int(levels[mark.row, mark.column])] is wanted]
        positions = [mark.column for mark in own], [mark.row for mark in own]
        if own:
            axes.scatter(*positions, s=min(0.34 * cell, 2.4) ** 2, color=ink, linewidths=0, zorder=3)


def _is_dark(colour: Any) -> bool:
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def _paint_cells(axes: Axes, levels: np.ndarray, colours: Sequence[Any]) -> None:
    """One path for all cells of a colour; cells of level -1 are left open."""
    runs: dict[int, list[tuple[int, int, int]]] = {}
    for row, line in enumerate(levels):
        edges = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        for first, end in pairwise(edges):
            runs.setdefault(int(line[first]), []).append((row, first, end))
    runs.pop(-1, None)
    paths = _paths(runs)
    faces = [colours[level] for level in paths]
    axes.add_collection(
        PathCollection(list(paths.values()), facecolors=faces, edgecolors=faces, linewidths=0.3, snap=True),
        autolim=False,
    )


def _paths(runs: Mapping[int, list[tuple[int, int, int]]]) -> dict[int, Path]:
    paths = {}
    for level in sorted(runs):
        row, first, end = np.array(runs[level], dtype=float).T - 0.5
        corners = np.stack([first, row, end, row, end, row + 1, first, row + 1, first, row], axis=1).reshape(-1, 2)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(runs[level])
        paths[level] = Path(corners, codes)
    return paths


def _label_cells(axes: Axes, x: Axis, y: Axis, slot: Slot) -> None:
    along = upright(x.labels)
    pitch = max(text_width(label, SMALL) for label in x.labels) + 0.05 if along else SMALL * 1.15 / 72
    for labelled, axis, side, room in (
        (slot.labelled_x, x, axes.xaxis, slot.box.width / pitch),
        (slot.labelled_y, y, axes.yaxis, slot.box.height / (SMALL * 1.15 / 72)),
    ):
        positions = thinned(axis.labels, min(int(room), MAX_TICKS) if upright(axis.labels) else int(room))
        side.set_ticks(positions, [axis.labels[index] if labelled else "" for index in positions])
        if labelled and axis.name:
            side.set_label_text(axis.name, fontsize=SMALL + 0.6, color=INK)
            side.labelpad = 1.5
    small_ticks(axes)
    if not along:
        axes.tick_params(axis="x", labelrotation=90)


TEXTURE, STROKE, EDGE = "#f2f2f2", "#dcdcdc", "#9a9a9a"


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
