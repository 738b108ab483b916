"""HTML for a notebook's cell: how do results show themselves in Jupyter, VS Code and Colab, with no network?

A result's ``_repr_html_`` puts a few of these pieces together: a titled card, facts, a table, a list, a picture. Three rules
keep a notebook as it was. Text is always escaped here, never by the caller: whatever is a plain ``str`` is text, and only
`Html`, which these functions return, is markup. Styles are written on the elements themselves, so that nothing leaks into the
page and no rule of the page is needed; a table's cells say all that Jupyter's own rules would change. Colours are the
page's own (``inherit``, and lines in a grey that shows on white and on black), so that dark themes work without asking.

Pictures are data URLs in ``<img>``: an SVG in the page itself would share its names and its style sheet with every other
one. This module knows no result.

`printable` and `cell_text` make text of other people harmless elsewhere: a terminal obeys control codes, a spreadsheet runs
formulas.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Html", "bar", "card", "cell_text", "facts", "image", "listing", "paragraph", "printable", "table"]

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = (
    "text-align:left;vertical-align:top;white-space:normal;padding:3px 14px 3px 0;border:0;background:transparent;"
    "font-variant-numeric:tabular-nums"
)


class Html(str):
    """Markup, made here and safe as it is."""


def text(value: object) -> Html:
    """Anything as text, unless it is markup already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def card(title: object, *parts: Html, note: object = "") -> Html:
    """A result: its title in bold, a quiet note next to it, and its parts."""
    aside = f'<span style="opacity:.65;margin-left:.7em">{text(note)}</span>' if note else ""
    head = f'<div style="padding:2px 0 5px"><strong>{text(title)}</strong>{aside}</div>'
    return Html(f'<div style="max-width:62em;line-height:1.45;color:inherit">{head}{"".join(parts)}</div>')


def paragraph(words: object, *, quiet: bool = False) -> Html:
    """A paragraph; a quiet one is paler."""
    return Html(f'<p style="margin:.35em 0;{"opacity:.7" if quiet else ""}">{text(words)}</p>')


def listing(entries: Iterable[object]) -> Html:
    """Entries with dots."""
    points = "".join(f'<li style="margin:.15em 0">{text(entry)}</li>' for entry in entries)
    return Html(f'<ul style="margin:.2em 0 .6em;padding-left:1.4em">{points}</ul>')


def facts(known: Mapping[str, object]) -> Html:
    """Names and values, one per line; None is left out."""
    return table(
        [
            (Html(f'<span style="opacity:.65">{text(name)}</span>'), value)
            for name, value in known.items()
            if value is not None
        ]
    )


def table(rows: Iterable[Sequence[object]], *, header: Sequence[object] = ()) -> Html:
    """Rows of cells; numbers are aligned."""
    top = f'<thead style="border:0">{_row(header, "th")}</thead>' if header else ""
    body = "".join(_row(row, "td") for row in rows)
    style = "border-collapse:collapse;border:0;margin:.2em 0;color:inherit"
    return Html(f'<table style="{style}">{top}<tbody>{body}</tbody></table>')


def _row(cells: Sequence[object], tag: str) -> str:
    style = _CELL if tag == "td" else f"{_CELL};font-weight:600;border-bottom:{_LINE}"
    inside = "".join(f'<{tag} style="{style}">{text(cell)}</{tag}>' for cell in cells)
    return f'<tr style="background:transparent">{inside}</tr>'


def bar(share: float, *, width: int = 120) -> Html:
    """A share of 1 as the length of a bar; the caller writes the number next to it."""
    full = round(min(max(share, 0.0), 1.0) * width)
    inner = f'<span style="display:block;height:8px;width:{full}px;background:#3b7dd8"></span>'
    style = f"display:inline-block;width:{width}px;border:{_LINE};vertical-align:middle"
    return Html(f'<span aria-hidden="true" style="{style}">{inner}</span>')


def image(content: bytes, kind: str, alt: str, *, width: int | None = None, pixels: bool = False) -> Html:
    """A picture of a MIME type, on white. ``pixels``: a small one made larger keeps its edges."""
    data = base64.b64encode(content).decode()
    style = "max-width:none;image-rendering:pixelated" if pixels else "max-width:100%"
    size = f"width:{width}px;" if width else ""
    return Html(
        f'<img src="data:{kind};base64,{data}" alt="{html.escape(alt)}" style="{size}height:auto;background:#fff;{style}">'
    )


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
