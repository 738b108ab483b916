"""Figures as data, and how they are written.

    figure = atlas.figure("profile")            # a Figure: panels, scales, notes; data, not a drawing
    save(figure, "profile.pdf")                 # or .svg, .png
    to_payload(figure)                          # JSON for the browser

Importing this loads no drawing library; `save` does. Each study makes its own figure
(``studies/<name>/figure.py``); one without is drawn by `head_table_maps`.
"""

from __future__ import annotations

import os
from pathlib import Path

from headwise.figures.figure import Figure
from headwise.figures.head_maps import head_table_maps
from headwise.figures.panels import (
    Axis,
    Category,
    CategoryMap,
    Curve,
    Curves,
    Frame,
    Guide,
    Heatmap,
    Intervals,
    Legend,
    Mark,
    Panel,
    Scatter,
)
from headwise.figures.payload import from_payload, to_payload
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.figures.tiles import Tiles

__all__ = [
    "Axis",
    "Category",
    "CategoryMap",
    "Curve",
    "Curves",
    "Figure",
    "Frame",
    "Guide",
    "Heatmap",
    "Intervals",
    "Legend",
    "Mark",
    "Panel",
    "Scale",
    "ScaleMark",
    "Scatter",
    "Tiles",
    "from_payload",
    "head_table_maps",
    "save",
    "scale_around",
    "scale_over",
    "to_payload",
]


def save(figure: Figure, path: str | os.PathLike[str], *, width: float = 7.2, dpi: int = 300) -> Path:
    """Write a figure as PDF, SVG or PNG; its words go into the file as its description.

    Args:
        figure: what `Atlas.figure` gave.
        path: the file; its suffix says which kind.
        width: inches, at most.
        dpi: of a PNG.

    Returns:
        The file.

    Examples:
        >>> save(atlas.figure("profile", statistics=["sink"]), folder / "sink.svg").name
        'sink.svg'
    """
    from headwise.figures import drawing  # matplotlib takes a second to load, which reading numbers does not need

    return drawing.save(figure, path, width=width, dpi=dpi)
