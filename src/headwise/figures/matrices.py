"""Small matrices of names against names, with the numbers written in the cells."""

from __future__ import annotations

import numpy as np

from headwise.figures.panels import Axis, Frame, Heatmap, Mark


def written_matrix(
    key: str, title: str, values: np.ndarray, x: Axis, y: Axis, scale: str, *,
    framed: np.ndarray | None = None, subtitle: str = "", missing: str = "not measured",
) -> Heatmap:  # fmt: skip
    """A matrix with its numbers; ``framed`` are the cells with a box around them."""
    marks = tuple(
        Mark(int(row), int(column), short_number(float(values[row, column])), "text")
        for row, column in np.argwhere(np.isfinite(values))
    )
    boxes = [] if framed is None else np.argwhere(framed & np.isfinite(values)).tolist()
    frames = tuple(Frame(row, row, column, column) for row, column in boxes)
    return Heatmap(key, title, values, x, y, scale, subtitle, frames, marks, missing=missing)


def short_number(value: float) -> str:
    """Two decimals without the nought in front.

    >>> short_number(0.123), short_number(-0.5), short_number(1.0), short_number(-0.001)
    ('.12', '−.50', '1', '.00')
    """
    text = f"{value:.2f}"
    if float(text) == 0:
        return ".00"
    if abs(float(text)) >= 1:
        return f"{value:.2g}".replace("-", "−")
    return text.replace("0.", ".", 1).replace("-", "−")
