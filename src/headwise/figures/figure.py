"""A figure as data: panels in a grid, the scales they share, and the words around them.

A study makes one of these from its Dataset, and everything that shows it starts here: the drawing for a paper
(`drawing.py`), the JSON for the browser (`payload.py`). The two cannot disagree, because neither computes a number.
Wording that describes the figure (`alt`) is attached by the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwise.core.errors import DataError, did_you_mean
from headwise.figures.panels import Heatmap, Panel
from headwise.figures.scale import Scale
from headwise.figures.tiles import Tiles


@dataclass(frozen=True, eq=False)
class Figure:
    """Panels in reading order, ``columns`` to a row. A panel's position is its index in the list.

    Examples:
        >>> figure = atlas.figure("profile", statistics=["sink", "induction"])
        >>> [panel.key for panel in figure.panels], figure.columns
        (['sink', 'induction', 'legend'], 3)
        >>> figure.panel("induction").values.shape
        (6, 6)
    """

    title: str  # in large letters
    panels: tuple[Panel, ...]  # in reading order
    columns: int  # panels in a row
    scales: Mapping[str, Scale] = field(default_factory=dict)  # by the key that panels name
    subtitle: str = ""  # under the title
    notes: tuple[str, ...] = ()  # under the panels
    alt: str = ""  # the figure in one or two sentences, for readers who cannot see it
    provenance: str = ""  # model, data and versions on one line, as a caption

    def __post_init__(self) -> None:
        if not self.panels or self.columns < 1:
            raise DataError(
                f"The figure {self.title!r} has {len(self.panels)} panels in {self.columns} columns; "
                "it needs at least one of each."
            )
        twice = [key for key, count in Counter(panel.key for panel in self.panels).items() if count > 1]
        if twice:
            raise DataError(
                f"The figure {self.title!r} has two panels called {twice[0]!r}; give each panel its own key."
            )
        for panel in self.panels:
            if isinstance(panel, Heatmap | Tiles) and panel.scale not in self.scales:
                raise DataError(
                    f"Panel {panel.key!r} asks for the scale {panel.scale!r}. {did_you_mean(panel.scale, self.scales)}"
                )

    def panel(self, key: str) -> Panel:
        """The panel with this key."""
        for panel in self.panels:
            if panel.key == key:
                return panel
        raise DataError(
            f"The figure {self.title!r} has no panel {key!r}. {did_you_mean(key, (panel.key for panel in self.panels))}"
        )

    def without_subtitles(self) -> Figure:
        """The same figure with nothing under the titles of its panels."""
        return replace(self, panels=tuple(replace(panel, subtitle="") for panel in self.panels))

    def with_alt(self, text: str) -> Figure:
        """The same figure with its description in words."""
        return replace(self, alt=text)

    def __repr__(self) -> str:
        return f"<Figure {self.title!r}: {', '.join(panel.key for panel in self.panels[:6])}{', …' * (len(self.panels) > 6)}>"

    def _repr_html_(self) -> str:
        from headwise.figures.drawing import figure_html  # matplotlib loads when the first figure is drawn

        return figure_html(self)
