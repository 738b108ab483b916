"""A figure in a notebook's cell: the drawing for paper, as one picture with its words as alternative text.

An SVG where it is small, so that it stays sharp and its letters letters; of figures with very many marks a PNG, since a
notebook keeps every picture in its file. The picture is on white in every theme, as its colours were chosen for.

Cost: one drawing, about a second. matplotlib is loaded by the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.core.markup import Html, image

if TYPE_CHECKING:
    from headwise.figures.figure import Figure

MOST = 300_000  # bytes of an SVG in a notebook
DPI, INCH = 144, 96  # of the PNG; CSS pixels in an inch


def figure_html(figure: Figure) -> Html:
    """An ``<img>`` of the figure; what it shows, in words, is its alt."""
    from headwise.figures import drawing  # matplotlib takes a second to load; who only reads numbers need not wait

    said = f"{figure.title}. {figure.alt}".strip()
    svg = drawing.render(figure, ".svg")
    if len(svg) <= MOST:
        return image(svg, "image/svg+xml", said)
    drawn = drawing.render(figure, ".png", dpi=DPI)
    return image(drawn, "image/png", said, width=int.from_bytes(drawn[16:20], "big") * INCH // DPI)
