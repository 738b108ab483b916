"""Is a figure legible? Every text inside the page, and none on another."""

from __future__ import annotations

from itertools import combinations

import matplotlib
import matplotlib.style
from matplotlib.text import Text

from headwise.figures import Figure, drawing


def written(figure: Figure) -> list[Text]:
    """Every text on the page that is not empty, after layout."""
    with matplotlib.style.context(["default", drawing.STYLE]):
        canvas = drawing.draw(figure)
        canvas.draw_without_rendering()
    return [text for text in canvas.findobj(Text) if text.get_text().strip() and text.get_visible()]


def assert_legible(figure: Figure) -> None:
    """No text leaves the page, and no two texts stand on each other."""
    texts = written(figure)
    canvas = texts[0].get_figure()
    page = canvas.bbox
    boxes = {text.get_text() + str(index): text.get_window_extent() for index, text in enumerate(texts)}
    for name, box in boxes.items():
        assert box.x0 >= page.x0 - 0.5 and box.x1 <= page.x1 + 0.5, name
        assert box.y0 >= page.y0 - 0.5 and box.y1 <= page.y1 + 0.5, name
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 0.5 or high <= 1.5, (one, other)
