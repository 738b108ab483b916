"""One painter for each kind of panel: data onto the axes that the page gives it. Loaded by `drawing.py` only.

A map is painted as one path per colour, runs of equal neighbours joined: a figure of eleven 80 x 64 maps stays a true vector
drawing of some hundred kilobytes, where one object a cell would take megabytes and an embedded picture would blur in some
viewers. Each path has a hair-thin edge of its own colour, so that no white seams show between the cells.
"""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from headwise.figures.layout import LEADING, PANEL_TITLE, SMALL, Slot, text_width, upright
from headwise.figures.panels import Axis, Category, CategoryMap, Curves, Guide, Heatmap, Legend, Scatter
from headwise.figures.scale import Scale
from headwise.figures.ticks import thinned, tick_text

INK, GREY, FAINT, PAPER = "#222222", "#666666", "#b8b8b8", "#ececec"
RING = "#d7301f"
_LEVELS = 256


def paint_heatmap(axes: Axes, panel: Heatmap, scale: Scale, slot: Slot) -> None:
    """Colours for numbers, texture for what was not measured, then marks and frames."""
    share = (panel.values.astype(float) - scale.low) / (scale.high - scale.low)
    levels = np.where(np.isfinite(share), np.clip(np.floor(np.nan_to_num(share) * _LEVELS), 0, _LEVELS - 1), -1)
    colours = matplotlib.colormaps[scale.colours].resampled(_LEVELS)
    _paint_cells(axes, levels.astype(int), {level: colours(level) for level in range(_LEVELS)})
    _finish_map(axes, panel, slot)


def paint_categories(axes: Axes, panel: CategoryMap, slot: Slot) -> None:
    """A square or a dot a cell, in the colour of its category."""
    colours = {index: category.colour for index, category in enumerate(panel.categories)}
    if panel.shape == "square":
        _paint_cells(axes, panel.values, colours)
    else:
        rows, columns = panel.values.shape
        size = 0.8 * 72 * min(slot.box.width / columns, slot.box.height / rows)
        for index, colour in colours.items():
            y, x = np.nonzero(panel.values == index)
            axes.plot(x, y, "o", markersize=size, markeredgewidth=0, color=colour)
    _finish_map(axes, panel, slot)


def paint_curves(axes: Axes, panel: Curves) -> None:
    """Lines with their bands; names at the right end of each, or in a corner when they would collide."""
    for curve in panel.curves:
        if curve.low is not None and curve.high is not None:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=curve.colour, alpha=0.2, linewidth=0, step="mid" if curve.style == "step" else None
            )
        style = {"dashed": {"linestyle": (0, (4, 2))}, "step": {"drawstyle": "steps-mid"}, "points": {"linestyle": "none", "marker": "."}}
        axes.plot(curve.x, curve.y, color=curve.colour, linewidth=0.9, label=curve.label, **style.get(curve.style, {}))
    _finish_plot(axes, panel.x, panel.y, panel.guides)
    if len(panel.curves) > 1:
        axes.legend(loc="best", fontsize=SMALL, frameon=False, handlelength=1.4, labelspacing=0.25, borderaxespad=0.2)


def paint_scatter(axes: Axes, panel: Scatter) -> None:
    """Points by group, and the names of the chosen ones beside them."""
    groups = np.array(panel.groups or [0] * panel.x_values.size)
    colours = [category.colour for category in panel.categories] or ["#31688e"]
    for group, colour in enumerate(colours):
        inside = groups == group
        label = panel.categories[group].label if panel.categories else ""
        axes.plot(
            panel.x_values[inside], panel.y_values[inside], "o", markersize=2.6, markeredgewidth=0, alpha=0.75, color=colour, label=label
        )
    for index in panel.shown:
        right = panel.x_values[index] > np.nanmean([np.nanmin(panel.x_values), np.nanmax(panel.x_values)])
        axes.annotate(
            panel.names[index], (panel.x_values[index], panel.y_values[index]), (-3 if right else 3, 1), textcoords="offset points",
            ha="right" if right else "left", va="bottom", fontsize=SMALL - 0.6, color=INK,
        )  # fmt: skip
    _finish_plot(axes, panel.x, panel.y, panel.guides)
    if len(panel.categories) > 1:
        axes.legend(loc="best", fontsize=SMALL, frameon=False, handletextpad=0.2, labelspacing=0.25, borderaxespad=0.2)


def paint_bar(axes: Axes, scale: Scale, label: str) -> None:
    """A colour bar: the colours, the ticks with their plus where the scale was clipped, and pointers at the marks."""
    levels = np.arange(_LEVELS - 1, -1, -1)[:, None]
    colours = matplotlib.colormaps[scale.colours].resampled(_LEVELS)
    _paint_cells(axes, levels, {level: colours(level) for level in range(_LEVELS)})
    axes.set(xlim=(-0.5, 0.5), ylim=(_LEVELS - 0.5, -0.5))

    def place(value: float) -> float:
        return (1 - (value - scale.low) / (scale.high - scale.low)) * _LEVELS - 0.5

    ticks = scale.ticks()
    axes.set_yticks([place(value) for value, _ in ticks], [text for _, text in ticks], fontsize=SMALL)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.tick_params(axis="y", length=1.5, width=0.4, pad=1.2, colors=INK)
    for mark in scale.marks:
        if scale.low <= mark.value <= scale.high:
            axes.plot([-0.5, 0.5], [place(mark.value)] * 2, color="white", linewidth=0.7)
            axes.plot([-0.5], [place(mark.value)], ">", markersize=2.8, markeredgewidth=0, color=INK, clip_on=False, zorder=5)
    if label:
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(label, fontsize=SMALL, color=INK, labelpad=2.5)
    _thin_spines(axes)


def paint_legend(axes: Axes, panel: Legend, slot: Slot) -> None:
    """Signs and what they mean, from the top of the place it was given."""
    axes.set(xlim=(0, slot.box.width), ylim=(slot.box.height, 0))
    axes.axis("off")
    line = SMALL * LEADING * 1.3 / 72
    y = line / 2
    if panel.title:
        axes.text(0, y, panel.title, fontsize=PANEL_TITLE, fontweight="bold", va="center", color=INK)
        y += line * 1.15
    for entry in panel.entries:
        _paint_sign(axes, entry, 0.06, y)
        for text in entry.label.split("\n"):
            axes.text(0.17, y, text, fontsize=SMALL, va="center", color=INK)
            y += line if text == entry.label.split("\n")[-1] else line * 0.8


def _paint_sign(axes: Axes, entry: Category, x: float, y: float) -> None:
    if entry.sign in ("square", "texture"):
        patch = Rectangle((x - 0.04, y - 0.035), 0.08, 0.07, facecolor=entry.colour, linewidth=0)
        if entry.sign == "texture":
            patch.set(facecolor=PAPER, edgecolor=FAINT, hatch="//////")
        axes.add_patch(patch)
        return
    style = {"dot": "o", "line": "_", "ring": "o", "cross": "x", "pointer": ">"}[entry.sign]
    face = "none" if entry.sign == "ring" else entry.colour
    size = {"line": 7.0, "pointer": 3.4}.get(entry.sign, 4.2)
    axes.plot([x], [y], style, markersize=size, markerfacecolor=face, markeredgecolor=entry.colour, markeredgewidth=0.7, clip_on=False)


def _paint_cells(axes: Axes, levels: np.ndarray, colours: dict[int, object]) -> None:
    """One path for all cells of a colour; cells of level -1 are left open."""
    boxes: dict[int, list[tuple[int, int, int]]] = {}
    for row, line in enumerate(levels):
        edges = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            boxes.setdefault(int(line[first]), []).append((row, first, last))
    boxes.pop(-1, None)
    order = sorted(boxes)
    faces = [colours[level] for level in order]
    paths = [_rectangles(boxes[level]) for level in order]
    axes.add_collection(PathCollection(paths, facecolors=faces, edgecolors=faces, linewidths=0.15, snap=True), autolim=False)


def _rectangles(boxes: Iterable[tuple[int, int, int]]) -> Path:
    corners = [
        corner
        for row, first, last in boxes
        for corner in (
            (first - 0.5, row - 0.5), (last - 0.5, row - 0.5), (last - 0.5, row + 0.5), (first - 0.5, row + 0.5), (first - 0.5, row - 0.5)
        )
    ]  # fmt: skip
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * (len(corners) // 5)
    return Path(np.array(corners), codes)


def _finish_map(axes: Axes, panel: Heatmap | CategoryMap, slot: Slot) -> None:
    rows, columns = panel.values.shape
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    missing = panel.values < 0 if isinstance(panel, CategoryMap) else ~np.isfinite(panel.values)
    if missing.any():
        texture = Rectangle((-0.5, -0.5), columns, rows, facecolor=PAPER, edgecolor=FAINT, hatch="//////", linewidth=0, zorder=0)
        axes.add_patch(texture)
    cell = 72 * min(slot.box.width / columns, slot.box.height / rows)
    for mark in panel.marks:
        if mark.sign == "text":
            axes.text(mark.column, mark.row, mark.text, fontsize=min(SMALL, cell * 0.45), ha="center", va="center", color=INK)
        else:
            sign = {"markerfacecolor": "none"} if mark.sign == "ring" else {}
            size = max(0.8 * cell, 3.4)
            kind = "o" if mark.sign == "ring" else "x"
            axes.plot([mark.column], [mark.row], kind, markersize=size, markeredgecolor="white", markeredgewidth=1.3, clip_on=False, **sign)
            axes.plot([mark.column], [mark.row], kind, markersize=size, markeredgecolor=RING, markeredgewidth=0.7, clip_on=False, **sign)
    for frame in panel.frames:
        corner = (frame.first_column - 0.5, frame.first_row - 0.5)
        size_x, size_y = frame.last_column - frame.first_column + 1, frame.last_row - frame.first_row + 1
        axes.add_patch(Rectangle(corner, size_x, size_y, fill=False, edgecolor="black", linewidth=1.1, clip_on=False, zorder=4))
        if frame.text:
            axes.text(corner[0], corner[1], frame.text, fontsize=SMALL, va="bottom", color=INK)
    _label_cells(axes, panel.x, panel.y, slot)
    _thin_spines(axes)


def _label_cells(axes: Axes, x: Axis, y: Axis, slot: Slot) -> None:
    along = upright(x.labels)
    widest = max(text_width(label, SMALL) for label in x.labels) if along else SMALL * 1.15 / 72
    for labelled, axis, side, room in (
        (slot.labelled_x, x, axes.xaxis, slot.box.width / (widest + (0.05 if along else 0.0))),
        (slot.labelled_y, y, axes.yaxis, slot.box.height / (SMALL * 1.5 / 72)),
    ):
        places = thinned(axis.labels, int(room))
        side.set_ticks(places, [axis.labels[place] for place in places] if labelled else [""] * len(places))
        if labelled and axis.name:
            side.set_label_text(axis.name, fontsize=SMALL + 0.6, color=INK)
            side.labelpad = 1.5
    axes.tick_params(axis="both", length=1.5, width=0.4, pad=1.2, labelsize=SMALL, colors=INK)
    if not along:
        axes.tick_params(axis="x", labelrotation=90)


def _finish_plot(axes: Axes, x: Axis, y: Axis, guides: tuple[Guide, ...]) -> None:
    if x.log:
        axes.set_xscale("log", base=2)
    if y.log:
        axes.set_yscale("log")
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    for guide in guides:
        _paint_guide(axes, guide)
    for axis, side in ((x, axes.xaxis), (y, axes.yaxis)):
        side.set_major_locator(
            matplotlib.ticker.LogLocator(base=2 if side is axes.xaxis else 10, numticks=5) if axis.log else matplotlib.ticker.MaxNLocator(4)
        )
        side.set_minor_locator(matplotlib.ticker.NullLocator())
        side.set_major_formatter(lambda value, _: tick_text(value))
        side.set_label_text(axis.name, fontsize=SMALL + 0.6, color=INK)
        side.labelpad = 1.5
    axes.tick_params(axis="both", length=2, width=0.4, pad=1.2, labelsize=SMALL, colors=INK)
    _thin_spines(axes)
    axes.spines[["top", "right"]].set_visible(False)


def _paint_guide(axes: Axes, guide: Guide) -> None:
    style = {"color": FAINT, "linewidth": 0.6, "zorder": 0, "linestyle": (0, (3, 2))}
    if guide.axis == "x":
        axes.axvline(guide.at, **style)
        axes.annotate(guide.text, (guide.at, 1), (2, -1), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", fontsize=SMALL, color=GREY)
    elif guide.axis == "y":
        axes.axhline(guide.at, **style)
        axes.annotate(guide.text, (1, guide.at), (0, 1), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", va="bottom", fontsize=SMALL, color=GREY)
    else:
        axes.axline((0, 0), slope=1, **style)


def _thin_spines(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set(linewidth=0.4, color=INK)
