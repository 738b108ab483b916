"""What all painters share: few colours, thin lines, small type."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from headwise.figures.layout import SMALL

INK, GREY, FAINT, PAPER = "#222222", "#666666", "#b8b8b8", "#ececec"


def thin_spines(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set(linewidth=0.4, color=INK)


def small_ticks(axes: Axes) -> None:
    axes.tick_params(axis="both", length=1.6, width=0.4, pad=1.2, labelsize=SMALL, colors=INK)


def outline(
    axes: Axes, x: Sequence[float], y: Sequence[float], size: float, *, sign: str, colour: str, thick: float
) -> None:
    """Rings or crosses without a filling, ``size`` points wide."""
    ring = sign == "ring"
    drawn = axes.scatter(x, y, s=size**2, marker="o" if ring else "x", linewidths=thick, clip_on=False, zorder=3)
    drawn.set(facecolor="none" if ring else colour, edgecolor=colour)


def texture(left: float, top: float, width: float, height: float) -> Rectangle:
    """The sign for "not measured": grey with strokes, like no colour of a scale."""
    return Rectangle(
        (left, top), width, height, facecolor=PAPER, edgecolor=FAINT, hatch="//////", linewidth=0.3, zorder=0
    )
