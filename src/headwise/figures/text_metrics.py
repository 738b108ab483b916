"""How wide and how high texts are, and where their lines end, before anything is drawn.

The widths of texts are estimated from the letters, because a page must be planned before anything can be measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEADING = 1.28

_NARROW, _WIDE = set("iljtfrI.,:;'|!()[]/ -·"), set("mwMW@%—")


def text_width(text: str, points: float) -> float:
    """Inches, within some percent."""
    ems = sum(
        0.36 if letter in _NARROW else 0.92 if letter in _WIDE else 0.70 if letter.isupper() else 0.62
        for letter in text
    )
    return ems * points / 72


def wrap(text: str, inches: float, points: float) -> tuple[str, ...]:
    """The text in lines that are no wider than this; line ends in the text are preserved."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _short_words(paragraph, inches, points):
            longer = f"{line} {word}" if line else word
            if line and text_width(longer, points) > inches:
                lines.append(line)
                longer = word
            line = longer
        lines += [line] if line else []
    return tuple(lines)


def _short_words(paragraph: str, inches: float, points: float) -> Iterator[str]:
    """The words, those that do not fit into a line cut into pieces of at least six letters; hard blanks do not part."""
    for word in re.split(r"[ \t]+", paragraph.strip()):
        wanted = text_width(word, points)
        letters = max(int(len(word) * inches / wanted), 6) if wanted > inches else len(word)
        yield from (word[start : start + letters] for start in range(0, len(word), max(letters, 1)))


def line_height(points: float) -> float:
    return points * LEADING / 72
