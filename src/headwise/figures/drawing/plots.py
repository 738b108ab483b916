"""Curves, scatters and legends on paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from headwise.figures.drawing.style import FAINT, GREY, INK, outline, small_ticks, texture, thin_spines
from headwise.figures.layout import PANEL_TITLE, SMALL, Slot
from headwise.figures.panels import Axis, Category, Curve, Curves, Guide, Intervals, Legend, Scatter
from headwise.figures.text_metrics import line_height, text_width
from headwise.figures.ticks import tick_text

_STYLES: dict[str, dict[str, Any]] = {
    "line": {},
    "dashed": {"linestyle": (0, (4, 2))},
    "step": {"drawstyle": "steps-mid"},
    "points": {"linestyle": "none", "marker": "."},
}
_BLUE = "#31688e"
KEY = 0.125  # inches of a line in a legend: two dashes and the gap between them
_MAX_OWN_TICKS = 6  # values on a logarithmic axis that each get a tick


def paint_curves(axes: Axes, panel: Curves) -> None:
    """Lines with their bands, named in the emptiest corner when there are several."""
    for curve in panel.curves if panel.x.log else map(_stretched, panel.curves):
        if curve.low is not None and curve.high is not None:
            step: Literal["mid"] | None = "mid" if curve.style == "step" else None
            axes.fill_between(curve.x, curve.low, curve.high, color=curve.colour, alpha=0.2, linewidth=0, step=step)
        axes.plot(
            curve.x, curve.y, color=curve.colour, linewidth=0.9, label=curve.label, markersize=3, **_STYLES[curve.style]
        )
        if (alone := _isolated(curve.y)).any():  # a line has no length there
            axes.plot(curve.x[alone], curve.y[alone], "o", markersize=3, color=curve.colour)
            if curve.low is not None and curve.high is not None:
                axes.vlines(curve.x[alone], curve.low[alone], curve.high[alone], color=curve.colour, linewidth=0.9)
    _finish(axes, panel.x, panel.y, panel.guides)
    values = np.unique(np.concatenate([curve.x for curve in panel.curves])) if panel.curves else np.empty(0)
    if panel.x.log and 0 < values.size <= _MAX_OWN_TICKS:  # what was measured, rather than powers of two
        axes.set_xticks(values, [tick_text(float(value)) for value in values])
    if not panel.y.labels and all((curve.y == np.round(curve.y)).all() for curve in panel.curves):  # counts
        whole = [value for value in axes.get_yticks() if float(value).is_integer()]
        axes.set_yticks(whole, [tick_text(float(value)) for value in whole])
    if len(panel.curves) > 1 and any(curve.label for curve in panel.curves):  # else a legend of the figure names them
        _name_groups(axes)


def _isolated(y: np.ndarray) -> np.ndarray:
    """(point,) bool: known, with no known point before or after it.

    >>> _isolated(np.array([1.0, np.nan, 2.0, 3.0, np.nan, 4.0]))
    array([ True, False, False, False, False,  True])
    """
    known = np.pad(np.isfinite(y), 1)
    return known[1:-1] & ~known[:-2] & ~known[2:]


def _stretched(curve: Curve) -> Curve:
    """Steps go on for half a step at both ends, so that the first and the last are as wide as the others."""
    if curve.style != "step" or curve.x.size < 2:
        return curve
    x = np.append(np.insert(curve.x, 0, 1.5 * curve.x[0] - 0.5 * curve.x[1]), 1.5 * curve.x[-1] - 0.5 * curve.x[-2])
    low, high = (None if side is None else np.pad(side, 1, mode="edge") for side in (curve.low, curve.high))
    return replace(curve, x=x, y=np.pad(curve.y, 1, mode="edge"), low=low, high=high)


def paint_scatter(axes: Axes, panel: Scatter, slot: Slot) -> None:
    """Points by group, and the names of the chosen ones next to them."""
    groups = np.array(panel.groups or [0] * panel.x_values.size)
    for index, category in enumerate(panel.categories or (Category("all", "", _BLUE),)):
        x, y = panel.x_values[groups == index], panel.y_values[groups == index]
        axes.plot(x, y, "o", markersize=2.6, markeredgewidth=0, alpha=0.75, color=category.colour, label=category.label)
    _finish(axes, panel.x, panel.y, panel.guides)
    _name_points(axes, panel, slot)
    if len(panel.categories) > 1 and any(each.label for each in panel.categories):
        _name_groups(axes)


def paint_intervals(axes: Axes, panel: Intervals, slot: Slot) -> None:
    """One dot with its line per row, the first row on top; rows and groups are named where the panel to the left has others."""
    rows = np.arange(len(panel.y.labels))
    groups = np.array(panel.groups or [0] * rows.size)
    for index, category in enumerate(panel.categories or (Category("all", "", _BLUE),)):
        own = groups == index
        ends = (panel.low[own], panel.high[own])
        axes.hlines(rows[own], *ends, color=category.colour, linewidth=0.9, alpha=0.6)
        least, most = (end if end is not None else far for end, far in ((panel.x.low, -np.inf), (panel.x.high, np.inf)))
        inside = own & (panel.values >= least) & (panel.values <= most)
        x, y = panel.values[inside], rows[inside]
        axes.plot(x, y, "o", markersize=3, color=category.colour, clip_on=False, zorder=3)  # whole at an axis's end
    _finish(axes, panel.x, panel.y, panel.guides)
    named = len(panel.categories) > 1 and any(each.label for each in panel.categories)
    axes.set_ylim(rows.size - 0.4 + 1.2 * named, -0.6)
    axes.set_yticks(rows if slot.labelled_y else [], panel.y.labels if slot.labelled_y else [])
    axes.tick_params(axis="y", length=0)
    if named and slot.labelled_y:  # on a line of their own; squares, because a dot could be taken for one of the data
        axes.legend(
            handles=[Patch(color=each.colour, label=each.label) for each in panel.categories],
            loc="lower right", ncols=len(panel.categories), fontsize=SMALL, frameon=False, handlelength=0.8,
            columnspacing=0.9, handletextpad=0.4, borderpad=0.1, borderaxespad=0.2,
        )  # fmt: skip


def paint_legend(axes: Axes, panel: Legend, slot: Slot) -> None:
    """Signs and what they mean, from the top of its box."""
    axes.set(xlim=(0, slot.box.width), ylim=(slot.box.height, 0))  # inches
    axes.axis("off")
    y = line_height(SMALL) / 2
    if panel.title:
        axes.text(0, y, panel.title, fontsize=PANEL_TITLE, fontweight="bold", va="center", color=INK)
        y += line_height(PANEL_TITLE) * 1.2
    for entry in panel.entries:
        _paint_sign(axes, entry, 0.06, y)
        for line in entry.label.split("\n"):
            axes.text(0.17, y, line, fontsize=SMALL, va="center", color=INK)
            y += line_height(SMALL)
        y += 0.3 * line_height(SMALL)


def _paint_sign(axes: Axes, entry: Category, x: float, y: float) -> None:
    if entry.sign in ("square", "texture"):
        box = (x - 0.05, y - 0.04, 0.1, 0.08)
        square = Rectangle(box[:2], box[2], box[3], facecolor=entry.colour, linewidth=0)
        axes.add_patch(texture(*box) if entry.sign == "texture" else square)
        return
    if entry.sign == "frame":
        axes.add_patch(Rectangle((x - 0.05, y - 0.04), 0.1, 0.08, fill=False, edgecolor=entry.colour, linewidth=1.1))
        return
    if entry.sign in ("ring", "cross"):
        outline(axes, [x], [y], 4.2, sign=entry.sign, colour=entry.colour, thick=0.7)
        return
    if entry.sign in ("line", "dashed"):
        ends = [x - KEY / 2, x + KEY / 2]
        axes.plot(ends, [y, y], color=entry.colour, linewidth=0.9, clip_on=False, **_STYLES[entry.sign])
        return
    marker, size = {"dot": ("o", 4.2), "pointer": (">", 3.4)}[entry.sign]
    axes.plot([x], [y], marker, markersize=size, color=entry.colour, markeredgewidth=0.9, clip_on=False)


def _name_groups(axes: Axes) -> None:
    axes.legend(loc="best", fontsize=SMALL, frameon=False, handlelength=1.4, labelspacing=0.25, borderaxespad=0.2)


def _name_points(axes: Axes, panel: Scatter, slot: Slot) -> None:
    """Names towards the middle, from the highest point down, each at least one line below the one before."""
    values = axes.transLimits.transform(axes.transScale.transform(np.c_[panel.x_values, panel.y_values]))
    free = slot.box.height * 72 - SMALL / 2  # points
    for index in sorted(panel.shown, key=lambda shown: -values[shown, 1]):
        right, y = values[index, 0] > 0.5, values[index, 1] * slot.box.height * 72
        free = min(y + 1, free)
        axes.annotate(
            panel.names[index], (panel.x_values[index], panel.y_values[index]), (-3 if right else 3, free - y),
            textcoords="offset points", ha="right" if right else "left", va="center", fontsize=SMALL - 0.6, color=INK,
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "linewidth": 0, "alpha": 0.75},
        )  # fmt: skip
        free -= SMALL


def _finish(axes: Axes, x: Axis, y: Axis, guides: tuple[Guide, ...]) -> None:
    for guide in guides:
        _paint_guide(axes, guide)
    for axis, side in ((x, axes.xaxis), (y, axes.yaxis)):
        if axis.log:
            getattr(axes, f"set_{side.axis_name}scale")("log")
        getattr(axes, f"set_{side.axis_name}lim")(axis.low, axis.high)
        low, high = sorted(side.get_view_interval())
        counts = side is axes.xaxis and low >= 0.5  # of heads, of examples: they double
        locator = _log_locator(low, high, counts) if axis.log else MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        values = [value for value in locator.tick_values(low, high) if low <= value <= high]
        values = _that_fit(axes, values) if axis.log and side is axes.xaxis else values
        side.set_ticks(values, [tick_text(value) for value in values])
        if axis.labels and side is axes.yaxis:
            side.set_ticks(range(len(axis.labels)), axis.labels)
        side.set_minor_locator(NullLocator())
        side.set_label_text(axis.name, fontsize=SMALL + 0.6, color=INK)
        side.labelpad = 1.5
    small_ticks(axes)
    thin_spines(axes)
    axes.spines[["top", "right"]].set_visible(False)


def _log_locator(low: float, high: float, counts: bool) -> LogLocator:
    """Powers of two for counts, else of ten; with 2 and 5 between these where they are few."""
    if counts:
        return LogLocator(base=2, numticks=5)
    few = np.log10(high / low) < 2.2
    return LogLocator(base=10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=9 if few else 5)


def _that_fit(axes: Axes, values: list[float]) -> list[float]:
    """Every second tick (or fourth, ...) of a logarithmic axis whose labels would overlap."""
    canvas: Any = axes.get_figure()
    room = axes.get_position().width * float(canvas.get_size_inches()[0])
    low, high = np.log(axes.get_xlim())
    for step in (1, 2, 3, len(values) or 1):
        chosen = values[::step]
        middles = [(np.log(value) - low) / (high - low) * room for value in chosen]
        halves = [text_width(tick_text(value), SMALL) / 2 + 0.03 for value in chosen]
        ends = [(middle - half, middle + half) for middle, half in zip(middles, halves, strict=True)]
        ends = [end for end in ends if end[1] <= room + 0.12]
        if all(a[1] <= b[0] for a, b in pairwise(ends)):
            return chosen[: len(ends)]
    return chosen[:1]


def _paint_guide(axes: Axes, guide: Guide) -> None:
    line: dict[str, Any] = {"color": FAINT, "linewidth": 0.6, "zorder": 0, "linestyle": (0, (3, 2))}
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "color": GREY}
    if guide.axis == "x":
        axes.axvline(guide.at, **line)
        axes.annotate(guide.text, (guide.at, 1), (2, -1), xycoords=("data", "axes fraction"), va="top", **text)
    elif guide.axis == "y":
        axes.axhline(guide.at, **line)
        axes.annotate(guide.text, (1, guide.at), (0, 1), xycoords=("axes fraction", "data"), ha="right", **text)
    else:
        axes.axline((0, 0), slope=1, **line)
