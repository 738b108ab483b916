"""A figure on paper: Figure -> matplotlib -> PDF, SVG or PNG.

Texts stay texts (searchable, editable), the same figure gives the same bytes (no dates, no random ids), and the file
carries its title and its description. Nothing of matplotlib's global state is touched beyond the call: no pyplot, no
backend, the user's own style neither used nor changed. Only this folder uses matplotlib.
"""

from __future__ import annotations

import base64
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from PIL import Image

from headwise.core.errors import DataError
from headwise.core.files import write_output
from headwise.core.markup import Html, image
from headwise.figures.drawing import maps, plots
from headwise.figures.drawing.style import GREY, INK
from headwise.figures.layout import (
    MARGIN,
    NOTE,
    PANEL_TITLE,
    SMALL,
    SUBTITLE,
    TITLE,
    Box,
    Page,
    Slot,
    bar_label,
    lay_out,
)
from headwise.figures.panels import CategoryMap, Curves, Heatmap, Intervals, Legend, Scatter
from headwise.figures.text_metrics import line_height
from headwise.figures.tiles import Tiles

if TYPE_CHECKING:
    from headwise.figures.figure import Figure

SUFFIXES = (".pdf", ".png", ".svg")
MAX_SVG_BYTES = 300_000  # in a notebook, which stores every picture; larger ones become PNG
NOTEBOOK_DPI, CSS_DPI = 144, 96
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure is the same on every machine
    "font.size": SMALL,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "headwise",
    "text.parse_math": False,  # a token may be a dollar sign
    "hatch.linewidth": 0.35,
    "axes.axisbelow": False,
    "path.simplify": False,
}


def save(figure: Figure, path: str | os.PathLike[str], *, width: float = 7.2, dpi: int = 300) -> Path:
    """Write the figure as PDF, SVG or PNG, by the suffix of ``path``. ``width`` is in inches, at most.

    Raises DataError when the suffix is another, or the folder is not there.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"A figure cannot be written as {path.name!r}; end the name with one of {', '.join(SUFFIXES)}.")
    return write_output(path, lambda: render(figure, suffix, width=width, dpi=dpi))


def render(figure: Figure, suffix: str, *, width: float = 7.2, dpi: int = 300) -> bytes:
    """The bytes of the file."""
    with matplotlib.style.context(["default", STYLE]):
        canvas = draw(figure, width=width, dpi=dpi)
        file = io.BytesIO()
        canvas.savefig(file, format=suffix.lstrip("."), dpi=dpi, metadata=_metadata(figure, suffix))
    if suffix == ".svg":
        return _spoken(_packed(file.getvalue().decode()), figure).encode()
    return file.getvalue()


def figure_html(figure: Figure) -> Html:
    """An ``<img>`` for a notebook's cell, its description as alternative text: SVG where it is small, else PNG."""
    alt = f"{figure.title}. {figure.alt}".strip()
    svg = render(figure, ".svg")
    if len(svg) <= MAX_SVG_BYTES:
        return image(svg, "image/svg+xml", alt)
    drawn = render(figure, ".png", dpi=NOTEBOOK_DPI)
    return image(drawn, "image/png", alt, width=int.from_bytes(drawn[16:20], "big") * CSS_DPI // NOTEBOOK_DPI)


def draw(figure: Figure, *, width: float = 7.2, dpi: int = 300) -> Canvas:
    """The figure as a matplotlib Figure, for those who want to go on from there."""
    page = lay_out(figure, width=width)
    canvas = Canvas(figsize=(page.width, page.height), dpi=dpi)
    FigureCanvasAgg(canvas)
    _write_page(canvas, page)
    for slot in page.slots:
        _paint_panel(canvas, page, slot, figure)
    if page.shared_bar is not None:
        panel = next(panel for panel in figure.panels if isinstance(panel, Heatmap | Tiles))
        scale = figure.scales[panel.scale]
        maps.paint_bar(_axes(canvas, page, page.shared_bar), scale, scale.label)
    return canvas


def _paint_panel(canvas: Canvas, page: Page, slot: Slot, figure: Figure) -> None:
    axes, panel = _axes(canvas, page, slot.box), slot.panel
    if isinstance(panel, Heatmap):
        maps.paint_heatmap(axes, panel, figure.scales[panel.scale], slot)
        if slot.bar is not None:
            maps.paint_bar(_axes(canvas, page, slot.bar), figure.scales[panel.scale], bar_label(figure, panel))
    elif isinstance(panel, Tiles):
        maps.paint_tiles(axes, panel, figure.scales[panel.scale], slot)
        if slot.bar is not None:
            maps.paint_bar(_axes(canvas, page, slot.bar), figure.scales[panel.scale], bar_label(figure, panel))
    elif isinstance(panel, CategoryMap):
        maps.paint_categories(axes, panel, slot)
    elif isinstance(panel, Curves):
        plots.paint_curves(axes, panel)
    elif isinstance(panel, Scatter):
        plots.paint_scatter(axes, panel, slot)
    elif isinstance(panel, Intervals):
        plots.paint_intervals(axes, panel, slot)
    elif isinstance(panel, Legend):
        plots.paint_legend(axes, panel, slot)
    _write_down(canvas, page, slot.box.left, slot.titles_top, (slot.title, PANEL_TITLE), (slot.subtitle, SMALL))


def _write_page(canvas: Canvas, page: Page) -> None:
    _write_down(canvas, page, MARGIN, page.height - MARGIN, (page.title, TITLE), (page.subtitle, SUBTITLE))
    notes_top = MARGIN + len(page.notes) * line_height(NOTE)
    _write_down(canvas, page, MARGIN, notes_top, ((), NOTE), (page.notes, NOTE))


def _write_down(
    canvas: Canvas,
    page: Page,
    x: float,
    top: float,
    title: tuple[tuple[str, ...], float],
    rest: tuple[tuple[str, ...], float],
) -> None:
    """Lines from ``top`` on, first those of a title in bold, then the others in grey; each with its size in points."""
    for (lines, points), weight, colour in ((title, "bold", INK), (rest, "normal", GREY)):
        for line in lines:
            top -= line_height(points)
            baseline = top + 0.25 * points / 72  # descenders stay inside
            canvas.text(x / page.width, baseline / page.height, line, fontsize=points, fontweight=weight, color=colour)


def _axes(canvas: Canvas, page: Page, box: Box) -> Axes:
    return canvas.add_axes(
        (box.left / page.width, box.bottom / page.height, box.width / page.width, box.height / page.height)
    )


def _metadata(figure: Figure, suffix: str) -> dict[str, str | None]:
    if suffix == ".pdf":
        return {"Title": figure.title, "Subject": figure.alt or None, "Creator": "Headwise", "CreationDate": None}
    if suffix == ".svg":
        return {"Title": figure.title, "Description": figure.alt or None, "Creator": "Headwise", "Date": None}
    return {"Title": figure.title, "Description": figure.alt or "", "Software": "Headwise"}


def _packed(svg: str) -> str:
    """Embedded pictures with a palette, where they have at most 256 colours: a third of the size."""

    def pack(found: re.Match[str]) -> str:
        picture = Image.open(io.BytesIO(base64.b64decode(found[2]))).convert("RGB")
        if picture.getcolors(256) is None:
            return found[0]
        file = io.BytesIO()
        picture.quantize(256, dither=Image.Dither.NONE).save(file, format="png", optimize=True)
        return f"{found[1]}{base64.b64encode(file.getvalue()).decode()}"

    return re.sub(r"(data:image/png;base64,\s*)([A-Za-z0-9+/=\s]+)", pack, svg)


def _spoken(svg: str, figure: Figure) -> str:
    """Tell screen readers that this is one picture and what it shows, and machines without the font what to take."""
    svg = svg.replace("font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, Arial, sans-serif")
    svg = svg.replace("<svg ", '<svg role="img" ', 1)
    if figure.alt:
        svg = svg.replace("</title>", f"</title>\n <desc>{escape(figure.alt)}</desc>", 1)
    return svg
