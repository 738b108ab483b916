"""Text of other people, made harmless for where it is shown: a terminal obeys control codes, a spreadsheet runs formulas."""

from __future__ import annotations

import re

__all__ = ["cell_text", "printable"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@\t\r|%]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?|[+-]?(inf|nan)", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Text for a terminal: codes that move the cursor, recolour, retitle or reverse are shown instead of obeyed.

    >>> printable("a\x1b[2Jb\nc"), printable("λ 漢 –")
    ('a\\x1b[2Jb\nc', 'λ 漢 –')
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def cell_text(text: str) -> str:
    """Text for a cell of a CSV file: what a spreadsheet would take for a formula begins with an apostrophe.

    >>> cell_text('=HYPERLINK("http://x")'), cell_text("-0.5"), cell_text("Paris")
    ('\\'=HYPERLINK("http://x")', '-0.5', 'Paris')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
