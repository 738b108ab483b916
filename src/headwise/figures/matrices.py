"""Small matrices of names by names, with the numbers in the cells and short names on the axes.

Long names become letters that a note explains.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.figures.panels import Axis, Frame, Heatmap, Mark

MAX_NAME_LETTERS = 16  # that fit next to a map


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
    """Two decimals without the leading zero.

    >>> short_number(0.123), short_number(-0.5), short_number(1.0), short_number(-0.001)
    ('.12', '−.50', '1', '.00')
    """
    text = f"{value:.2f}"
    if float(text) == 0:
        return ".00"
    if abs(float(text)) >= 1:
        return f"{value:.2g}".replace("-", "−")
    return text.replace("0.", ".", 1).replace("-", "−")


def short_names(topics: Sequence[str]) -> dict[str, str]:
    """What is written at each topic.

    >>> short_names(["art", "body"])
    {'art': 'art', 'body': 'body'}
    >>> short_names(["animals, art, body", "rivers"])
    {'animals, art, body': 'A', 'rivers': 'B'}
    """
    if all(len(topic) <= MAX_NAME_LETTERS for topic in topics):
        return {topic: topic for topic in topics}
    return {topic: chr(ord("A") + index) for index, topic in enumerate(topics)}


def letter_note(names: dict[str, str]) -> str:
    """What the letters stand for, as a sentence; nothing where there are none."""
    entries = [f"{letter}: {topic}" for topic, letter in names.items() if letter != topic]
    return f"{'; '.join(entries)}." if entries else ""
